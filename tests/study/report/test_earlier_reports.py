"""A study that is reported again with other seeds reports it, in its report and on the terminal."""

import numpy as np
import pytest
import scipy.stats

from replaylab.commands import main as cli
from replaylab.study.report import earlier_reports
from replaylab.study.results import records
from tests.study.tiny import pretended

BEFORE = "Reported before with"
pytestmark = pytest.mark.usefixtures("no_sections")


@pytest.fixture
def six_seeds(tmp_path):
    return pretended(tmp_path / "results", 0.0, seeds=6, chunk_size=2)


def test_the_same_seeds_again_say_nothing(six_seeds):
    assert earlier_reports.warning(six_seeds, range(4)) is None
    earlier_reports.note(six_seeds, range(4))
    earlier_reports.note(six_seeds, range(4))
    assert earlier_reports.warning(six_seeds, range(4)) is None
    assert six_seeds.record("reports") == {"seeds": [[0, 1, 2, 3]]}


def test_other_seeds_say_with_how_many_it_was_reported_before(six_seeds):
    earlier_reports.note(six_seeds, range(4))
    assert earlier_reports.warning(six_seeds, range(6)).startswith(f"{BEFORE} 4 seeds; now with 6.")
    earlier_reports.note(six_seeds, range(6))
    assert earlier_reports.warning(six_seeds, range(8)).startswith(f"{BEFORE} 4 and 6 seeds; now with 8.")
    assert earlier_reports.warning(six_seeds, [0, 1, 8, 9]).startswith(f"{BEFORE} 4 and 6 seeds; now with 4.")


def test_reports_remember_and_say_it(six_seeds, tmp_path, capsys):
    earlier_reports.note(six_seeds, range(4))
    before = (six_seeds.folder / "reports.json").read_bytes()
    elsewhere = six_seeds.report(tmp_path / "elsewhere", figure_files=False).read_text()
    assert f"{BEFORE} 4 seeds; now with 6." in elsewhere
    assert (six_seeds.folder / "reports.json").read_bytes() == before  # a folder that is only read
    assert cli.main(["study", "report", str(six_seeds.folder), "--no-figure-files"]) == 0
    assert f"{BEFORE} 4 seeds; now with 6." in capsys.readouterr().out
    assert six_seeds.record("reports") == {"seeds": [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]}


def test_missing_runs_at_the_first_report_are_remembered(tmp_path):
    """The seeds of the other strategy were all there at the first report."""
    study = pretended(tmp_path, 0.0, seeds=6, chunk_size=3)
    late = next(chunk for chunk in study.chunks if chunk.strategy == "prioritized" and 5 in chunk.seeds)
    rows = study.file_of(late).read_bytes()
    study.file_of(late).unlink()
    assert BEFORE not in study.report(figure_files=False).read_text()
    study.file_of(late).write_bytes(rows)
    assert f"{BEFORE} 3 seeds; now with 6." in study.report(figure_files=False).read_text()


def test_records_with_planned_analyses_are_read(six_seeds):
    """Folders of earlier versions also recorded which analyses were planned."""
    records.write(six_seeds.folder / "reports.json", {"seeds": [[0, 1]], "planned": [{"seeds": [2, 6]}]})
    assert earlier_reports.warning(six_seeds, range(6)).startswith(f"{BEFORE} 2 seeds; now with 6.")


@pytest.mark.parametrize("strategies", [1, 3])
def test_three_analyses_err_twice_as_often_as_one(strategies):
    """The reason for the warning, in 40,000 studies of equal strategies, by exact t-tests with Holm's correction.

    A share of 11 % has a standard error of 0.16 %. A study's own tests are conservative, and err in 8 to 10 %.
    """
    runs = np.random.default_rng(7).normal(size=(40_000, 30, strategies + 1))
    different = np.zeros(len(runs), bool)
    for seeds in (10, 20, 30):
        p = scipy.stats.ttest_1samp(runs[:, :seeds, 1:] - runs[:, :seeds, :1], 0.0, axis=1).pvalue
        different |= p.min(axis=1) * strategies < 0.05
    assert 0.1 < different.mean() < 0.12


def test_where_no_seed_is_compared_nothing_was_reported(six_seeds):
    earlier_reports.note(six_seeds, [])
    assert six_seeds.record("reports") == {}
