"""A study that is reported again with other seeds reports it, in its report and on the terminal."""

import pytest

from replaylab.commands import main as cli
from replaylab.study.report import earlier_reports
from tests.study.tiny import pretended

BEFORE = "Looked at before, with"


@pytest.fixture
def found(tmp_path):
    return pretended(tmp_path / "results", 0.0, seeds=6, chunk_size=2)


def test_the_same_seeds_again_say_nothing(found):
    assert earlier_reports.warning(found, range(4)) is None
    earlier_reports.note(found, range(4))
    earlier_reports.note(found, range(4))
    assert earlier_reports.warning(found, range(4)) is None
    assert found.record("looks") == {"seeds": [[0, 1, 2, 3]]}


def test_other_seeds_say_with_how_many_there_was_a_look(found):
    earlier_reports.note(found, range(4))
    assert earlier_reports.warning(found, range(6)).startswith(f"{BEFORE} 4 seeds; now with 6.")
    earlier_reports.note(found, range(6))
    assert earlier_reports.warning(found, range(8)).startswith(f"{BEFORE} 4 and 6 seeds; now with 8.")
    assert earlier_reports.warning(found, [0, 1, 8, 9]).startswith(f"{BEFORE} 4 and 6 seeds; now with 4.")


def test_reports_remember_and_say_it(found, tmp_path, capsys):
    earlier_reports.note(found, range(4))
    before = (found.folder / "looks.json").read_bytes()
    elsewhere = found.report(tmp_path / "elsewhere", figure_files=False).read_text()
    assert f"{BEFORE} 4 seeds; now with 6." in elsewhere
    assert (found.folder / "looks.json").read_bytes() == before  # a folder that is only read
    assert cli.main(["study", "report", str(found.folder), "--no-figure-files"]) == 0
    assert f"{BEFORE} 4 seeds; now with 6." in capsys.readouterr().out
    assert found.record("looks") == {"seeds": [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]}


def test_a_strategy_that_was_looked_at_before_its_runs_were_all_there(tmp_path):
    """The seeds of the others were all there at the first look."""
    for name, looks, reported in (
        ("plain", None, f"{BEFORE} 3 seeds; now with 6."),
        ("planned", {"seeds": [6, 12]}, "Looked at outside the planned looks (6, 12 seeds), with 3 seeds"),
    ):
        made = pretended(tmp_path / name, 0.0, seeds=6, chunk_size=3, looks=looks)
        late = next(p for p in made.chunks if p.strategy == "prioritized" and 5 in p.seeds)
        rows = made.file_of(late).read_bytes()
        made.file_of(late).unlink()
        part = made.report(figure_files=False).read_text()
        assert ("there are results of 3 of the 6 seeds of this look" in part) == (looks is not None)
        made.file_of(late).write_bytes(rows)
        assert reported in made.report(figure_files=False).read_text()


def test_where_no_seed_is_compared_nothing_was_looked_at(found):
    earlier_reports.note(found, [])
    assert found.record("looks") == {}
