"""Two folders side by side: matched by name, paired by seed where they can be, with the settings that differ."""

from itertools import combinations

import numpy as np
import pytest

from replaylab.commands.main import main
from replaylab.errors import SpecError
from replaylab.study.analysis import comparisons
from replaylab.study.report.compare.comparison_page import lines, write
from replaylab.study.report.compare.two_studies import compared, least_p
from tests.study.tiny import csv_rows, pretend, pretended, study


@pytest.fixture
def before(tmp_path):
    return pretended(tmp_path / "before", 10.0, seeds=8, chunk_size=8)


def test_shared_seeds_are_paired_and_settings_that_differ_are_named(before, tmp_path, capsys):
    after = pretended(
        tmp_path / "after",
        40.0,
        seeds=8,
        chunk_size=8,
        learners__dqn__batch_size=16,
        strategies__none={"type": "online"},
    )
    found = compared(before, after)
    by = {(d.strategy, d.measure): d for d in found.differences}
    assert by["uniform", "final"].verdict == "inconclusive", "equal returns of other settings"
    assert all("(uncorrected 95 % interval " in line for line in lines(found) if ": B minus A " in line)
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
    assert '<span class="note">uncorrected 95 %: ' in page
    assert len(csv_rows(tmp_path / "page" / "tables" / "comparison.csv")) == 4


def test_averages_are_over_the_shorter_budget(before, tmp_path):
    """The second rises at half the pace to as high a level, of which its average must not know."""
    after = pretended(tmp_path / "after", 10.0, seeds=8, chunk_size=8, budget={"steps": 600})
    by = {(d.strategy, d.measure): d for d in compared(before, after).differences}
    assert by["uniform", "final"].size.estimate == pytest.approx(0.0, abs=1e-9)
    area = by["uniform", "area"]
    assert area.second.estimate == pytest.approx(area.first.estimate / 2)
    assert area.verdict == "lower"


def test_other_seeds_are_compared_as_groups(before, tmp_path):
    after = pretended(tmp_path / "after", 60.0, seeds=list(range(100, 106)), chunk_size=6)
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
    after = pretended(tmp_path / "after", 60.0, seeds=[0, 1, *range(100, 118)], chunk_size=20)
    gain = next(d for d in compared(before, after).differences if (d.strategy, d.measure) == ("prioritized", "final"))
    assert (gain.pairs, gain.runs, gain.verdict) == (0, (8, 20), "higher")


def test_more_seeds_of_the_same_runs_are_the_same_runs(before, tmp_path):
    after = pretended(tmp_path / "after", 10.0, seeds=30, chunk_size=30)
    found = compared(before, after)
    assert {(d.pairs, d.verdict) for d in found.differences} == {(8, "same runs")}
    page = write(found, tmp_path / "page").read_text()
    assert "2 comparisons: 2 same runs." in page
    assert "<b>= same runs</b>" in page


def without_numbers(monkeypatch, runs):
    """Let some runs of every curve have no number."""
    curves_of = comparisons.curves_of

    def holed(*args):
        curves = curves_of(*args)
        for curve in curves:
            curve.values[runs] = np.nan
        return curves

    monkeypatch.setattr(comparisons, "curves_of", holed)


@pytest.mark.parametrize("others", [range(8), range(100, 108)])
def test_runs_without_a_number_are_left_out(before, tmp_path, monkeypatch, others):
    after = pretended(tmp_path / "after", 60.0, seeds=list(others), chunk_size=8)
    without_numbers(monkeypatch, slice(2, 4))
    for one in compared(before, after).differences:
        assert (one.runs, one.pairs) == ((6, 6), 6 if others[0] == 0 else 0)
        assert np.isfinite([*one.first, *one.second, *one.size, one.p_holm]).all()


@pytest.mark.parametrize(
    ("runs", "others", "verdict"),
    [(3, 3, "inconclusive"), (2, 20, "inconclusive"), (4, 4, "inconclusive"), (5, 5, "higher")],
)
def test_groups_too_small_for_any_difference_show_none(tmp_path, runs, others, verdict):
    """By the interval alone 31 % of studies that do not differ had a difference, with two runs each.

    Four each would do for one comparison, but here there are two.
    """
    before = pretended(tmp_path / "before", 10.0, seeds=runs, chunk_size=runs)
    after = pretended(tmp_path / "after", 500.0, seeds=list(range(100, 100 + others)), chunk_size=others)
    found = compared(before, after)
    gain = next(d for d in found.differences if (d.strategy, d.measure) == ("prioritized", "final"))
    assert gain.size.low > 400.0
    assert (gain.verdict, gain.too_few) == (verdict, verdict != "higher")
    assert any("p is the least that so few runs can have: add seeds" in line for line in lines(found)) == gain.too_few


@pytest.mark.parametrize(("first", "second", "least"), [(3, 3, 0.1), (4, 4, 2 / 70), (3, 5, 2 / 56)])
def test_the_least_p_of_two_groups_is_that_of_exchanging_their_runs(first, second, least):
    runs = np.arange(first + second)
    means = [runs[list(own)].mean() for own in combinations(runs, first)]
    ends = np.isin(means, [min(means), max(means)])
    assert least_p(first, second) == pytest.approx(least) == ends.mean()


def test_the_same_runs_are_no_part_of_the_correction(before, tmp_path):
    """Uniform is the same to the last bit, so the other strategy is the one comparison that is tested."""
    after = pretended(tmp_path / "after", 40.0, seeds=8, chunk_size=8)
    found = compared(before, after)
    assert {d.p_holm for d in found.differences if not d.same} == {d.p for d in found.differences if not d.same}
    same = next(line for line in lines(found) if "same runs" in line)
    assert "Holm" not in same


def test_what_has_too_few_runs_is_reported(tmp_path, monkeypatch):
    before, after = (study(tmp_path / name, seeds=seeds, chunk_size=8) for name, seeds in (("a", 1), ("b", 8)))
    pretend(before, 10.0)
    pretend(after, 10.0)
    found = compared(before, after)
    assert found.differences == []
    assert [line for line in lines(found) if line.startswith("not compared")] == [
        f"not compared: CartPole-v1 · dqn · {strategy}: A has 1 run; B has 8 runs; it takes 2 of each"
        for strategy in ("uniform", "prioritized")
    ]
    page = write(found, tmp_path / "page").read_text()
    assert "CartPole-v1 · dqn · uniform (A has 1 run; B has 8 runs; it takes 2 of each)" in page
    assert "<p>Nothing is compared.</p>" in page
    without_numbers(monkeypatch, slice(1, None))
    reported = compared(before, after).not_compared
    assert {why for _, why in reported} == {"A has 1 run; B has 8 runs, 1 with a number; it takes 2 of each"}


def test_of_a_strategys_settings_those_that_say_something_are_named(before, tmp_path):
    own = {"type": "prioritized", "learner": {"batch_size": 16}}
    after = pretended(tmp_path / "after", 10.0, seeds=8, chunk_size=8, strategies__prioritized=own)
    assert compared(before, after).settings == [("overrides.prioritized.learner.batch_size", "–", "16")]


def test_nothing_in_common(before, tmp_path):
    other = pretended(tmp_path / "other", 0.0, environments=["Acrobot-v1"])
    with pytest.raises(SpecError, match="must have an environment, learner and strategy in common"):
        compared(before, other)


def test_budgets_in_steps_and_in_episodes_are_not_compared(before, tmp_path):
    other = study(tmp_path / "other", budget={"episodes": 300})
    with pytest.raises(SpecError, match=r"must count its budget as .*, in environment steps, but counts episodes"):
        compared(before, other)
