"""Two folders side by side: matched by name, paired by seed where they can be, with the settings that differ."""

import csv

import numpy as np
import pytest

from replaylab.commands.main import main
from replaylab.errors import SpecError
from replaylab.study.analysis import comparisons
from replaylab.study.report.compare.comparison_page import lines, write
from replaylab.study.report.compare.two_studies import compared
from tests.study.tiny import pretend, study


@pytest.fixture
def before(tmp_path):
    found = study(tmp_path / "before", seeds=8, population=8)
    pretend(found, 10.0)
    return found


def test_shared_seeds_are_paired_and_settings_that_differ_are_named(before, tmp_path, capsys):
    after = study(
        tmp_path / "after", seeds=8, population=8, learners__dqn__batch_size=16, strategies__none={"type": "online"}
    )
    pretend(after, 40.0)
    found = compared(before, after)
    by = {(d.strategy, d.measure): d for d in found.differences}
    assert by["uniform", "final"].verdict == "same runs"
    assert by["prioritized", "final"].verdict == "higher"
    assert by["prioritized", "final"].pairs == 8
    assert by["prioritized", "final"].size.estimate == pytest.approx(30.0, abs=0.1)
    assert ("learners.dqn.batch_size", "8", "16") in found.settings
    assert found.unmatched == [("CartPole-v1 · dqn · none", "B")]
    assert main(["study", "compare", str(before.folder), str(after.folder), "--out", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:-1] == lines(found)
    assert "setting learners.dqn.batch_size: A 8, B 16" in printed
    page = (tmp_path / "page" / "comparison.html").read_text()
    assert '<td class="higher"><b>▲ higher</b>+' in page
    with (tmp_path / "page" / "tables" / "comparison.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


def test_other_seeds_are_compared_as_groups(before, tmp_path):
    after = study(tmp_path / "after", seeds=list(range(100, 106)), population=6)
    pretend(after, 60.0)
    found = compared(before, after)
    assert {d.pairs for d in found.differences} == {0}
    gain = next(d for d in found.differences if (d.strategy, d.measure) == ("prioritized", "final"))
    assert gain.verdict == "higher"
    assert gain.runs == (8, 6)
    assert gain.size.low < 50.0 < gain.size.high
    assert any("unpaired, 8 and 6 runs" in line for line in lines(found))
    write(found, tmp_path / "page")


def test_few_shared_seeds_do_not_throw_the_others_away(before, tmp_path):
    """Two of 8 and 20: two pairs have a p-value of .5 at least."""
    after = study(tmp_path / "after", seeds=[0, 1, *range(100, 118)], population=20)
    pretend(after, 60.0)
    gain = next(d for d in compared(before, after).differences if (d.strategy, d.measure) == ("prioritized", "final"))
    assert (gain.pairs, gain.runs, gain.verdict) == (0, (8, 20), "higher")


def test_more_seeds_of_the_same_runs_are_the_same_runs(before, tmp_path):
    after = study(tmp_path / "after", seeds=30, population=30)
    pretend(after, 10.0)
    assert {(d.pairs, d.verdict) for d in compared(before, after).differences} == {(8, "same runs")}


@pytest.mark.parametrize("others", [range(8), range(100, 108)])
def test_runs_without_a_number_are_left_out(before, tmp_path, monkeypatch, others):
    after = study(tmp_path / "after", seeds=list(others), population=8)
    pretend(after, 60.0)
    curves_of = comparisons.curves_of

    def holed(*args):
        found = curves_of(*args)
        for curve in found:
            curve.values[2:4] = np.nan
        return found

    monkeypatch.setattr(comparisons, "curves_of", holed)
    for one in compared(before, after).differences:
        assert (one.runs, one.pairs) == ((6, 6), 6 if others[0] == 0 else 0)
        assert np.isfinite([*one.first, *one.second, *one.size, one.p_holm]).all()


def test_nothing_in_common(before, tmp_path):
    other = study(tmp_path / "other", environments=["Acrobot-v1"])
    pretend(other, 0.0)
    with pytest.raises(SpecError, match="must have an environment, learner and strategy in common"):
        compared(before, other)


def test_budgets_in_steps_and_in_episodes_are_not_compared(before, tmp_path):
    other = study(tmp_path / "other", budget={"episodes": 300})
    with pytest.raises(SpecError, match=r"must count its budget as .*, in environment steps, but counts episodes"):
        compared(before, other)
