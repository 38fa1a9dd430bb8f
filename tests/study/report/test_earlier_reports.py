"""A study that is reported again with other seeds says so, in its report and on the terminal."""

import pytest

from replaylab.commands import main as cli
from replaylab.study.report import earlier_reports
from tests.study.tiny import pretend, study

BEFORE = "Looked at before, with"


@pytest.fixture
def found(tmp_path):
    made = study(tmp_path / "results", seeds=6, population=2)
    pretend(made, 0.0)
    return made


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
