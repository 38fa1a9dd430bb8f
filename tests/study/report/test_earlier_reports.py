"""A study that is reported again with other seeds reports it, in its report and on the terminal."""

import pytest

from replaylab.commands import main as cli
from replaylab.study.report import earlier_reports
from tests.study.tiny import pretended

BEFORE = "Reported before with"
pytestmark = pytest.mark.usefixtures("no_sections")


@pytest.fixture
def found(tmp_path):
    return pretended(tmp_path / "results", 0.0, seeds=6, chunk_size=2)


def test_the_same_seeds_again_say_nothing(found):
    assert earlier_reports.warning(found, range(4)) is None
    earlier_reports.note(found, range(4))
    earlier_reports.note(found, range(4))
    assert earlier_reports.warning(found, range(4)) is None
    assert found.record("reports") == {"seeds": [[0, 1, 2, 3]]}


def test_other_seeds_say_with_how_many_it_was_reported_before(found):
    earlier_reports.note(found, range(4))
    assert earlier_reports.warning(found, range(6)).startswith(f"{BEFORE} 4 seeds; now with 6.")
    earlier_reports.note(found, range(6))
    assert earlier_reports.warning(found, range(8)).startswith(f"{BEFORE} 4 and 6 seeds; now with 8.")
    assert earlier_reports.warning(found, [0, 1, 8, 9]).startswith(f"{BEFORE} 4 and 6 seeds; now with 4.")


def test_reports_remember_and_say_it(found, tmp_path, capsys):
    earlier_reports.note(found, range(4))
    before = (found.folder / "reports.json").read_bytes()
    elsewhere = found.report(tmp_path / "elsewhere", figure_files=False).read_text()
    assert f"{BEFORE} 4 seeds; now with 6." in elsewhere
    assert (found.folder / "reports.json").read_bytes() == before  # a folder that is only read
    assert cli.main(["study", "report", str(found.folder), "--no-figure-files"]) == 0
    assert f"{BEFORE} 4 seeds; now with 6." in capsys.readouterr().out
    assert found.record("reports") == {"seeds": [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]}


def test_a_strategy_that_was_reported_before_its_runs_were_all_there(tmp_path):
    """The seeds of the others were all there at the first report."""
    for name, plan, reported in (
        ("plain", None, f"{BEFORE} 3 seeds; now with 6."),
        ("planned", {"seeds": [6, 12]}, "Reported outside the planned interim analyses (6, 12 seeds), with 3 seeds"),
    ):
        made = pretended(tmp_path / name, 0.0, seeds=6, chunk_size=3, interim=plan)
        late = next(p for p in made.chunks if p.strategy == "prioritized" and 5 in p.seeds)
        rows = made.file_of(late).read_bytes()
        made.file_of(late).unlink()
        part = made.report(figure_files=False).read_text()
        assert ("there are results of 3 of its 6 seeds" in part) == (plan is not None)
        made.file_of(late).write_bytes(rows)
        assert reported in made.report(figure_files=False).read_text()


def test_where_no_seed_is_compared_nothing_was_reported(found):
    earlier_reports.note(found, [])
    assert found.record("reports") == {}
