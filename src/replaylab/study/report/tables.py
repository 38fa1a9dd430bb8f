"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence

from replaylab.number_format import p_value
from replaylab.study.analysis import comparisons
from replaylab.study.report import sentences
from replaylab.study.report.page import KEYS, Page, ReportTable

RETURN_UNIT = "greedy return"
"""The unit of levels and differences, in words."""


def level_table(page: Page, levels: Sequence[comparisons.Level]) -> ReportTable:
    """How high each strategy came, by both measures."""
    by_cell: dict[tuple[str, str, str], dict[str, comparisons.Level]] = {}
    for level in levels:
        by_cell.setdefault((level.environment, level.learner, level.strategy), {})[level.measure] = level
    return page.table(
        "levels",
        "How high each strategy came",
        f"Interquartile mean over runs, with its 95 % bootstrap interval; unit: {RETURN_UNIT}.",
        ("Environment", "Learner", "Strategy", "Runs", "Final", "95 %", "Average", "95 %"),
        [
            (
                *cell,
                str(both["final"].runs),
                sentences.estimate(both["final"].iqm),
                sentences.interval(both["final"].iqm, both["final"].runs),
                sentences.estimate(both["area"].iqm),
                sentences.interval(both["area"].iqm, both["area"].runs),
            )
            for cell, both in by_cell.items()
        ],
        (*KEYS, "measure", "runs", "iqm", "low", "high"),
        ((lv.environment, lv.learner, lv.strategy, lv.measure, lv.runs, *lv.iqm) for lv in levels),
    )


def difference_table(
    page: Page, differences: Sequence[comparisons.Difference], key: str = "differences", metric: str = ""
) -> ReportTable:
    """Each strategy against the baseline, with its test; of another metric than the return, its title and unit."""
    return page.table(
        key,
        f"{metric}{': a' if metric else 'A'}gainst {page.spec.baseline}, in pairs of the same seed",
        "Difference of interquartile means with its paired 95 % bootstrap interval; p from the paired "
        "sign-flip permutation test or of the interval, whichever is larger, then corrected by max-T over all "
        f"comparisons of the same measure.{_bounds(differences)}",
        (
            "Environment",
            "Learner",
            "Strategy",
            "Measure",
            "Pairs",
            "Difference",
            "95 %",
            "p",
            "p (max-T)",
            "Verdict",
        ),
        [
            (
                d.environment,
                d.learner,
                d.strategy,
                sentences.MEASURE_NAMES[d.measure],
                str(d.pairs),
                sentences.effect(d.iqm),
                sentences.effect_interval(d.iqm, d.pairs),
                p_value(d.p),
                p_value(d.p_max_t),
                sentences.verdict(d),
            )
            for d in differences
        ],
        (*KEYS, "baseline", "measure", "pairs", "difference", "low", "high", "p", "p_max_t", "verdict", *_BOUNDED),
        (
            (
                *(d.environment, d.learner, d.strategy, d.baseline, d.measure, d.pairs),
                *(*d.iqm, d.p, d.p_max_t, sentences.verdict(d), *_bounded(d)),
            )
            for d in differences
        ),
    )


_BOUNDED = ("bound", "equivalence_low", "equivalence_high")
"""Columns that are empty where no bound was declared."""


def _bounded(difference: comparisons.Difference) -> tuple[float | str, ...]:
    tested = difference.equivalence
    return (tested.bounds.high, *tested.inner[1:]) if tested else ("",) * len(_BOUNDED)


def _bounds(differences: Sequence[comparisons.Difference]) -> str:
    """Return which differences were declared not to matter, and how that is judged; nothing where none were."""
    bounds = {d.environment: sentences.bounds(d) for d in differences if d.equivalence}
    if not bounds:
        return ""
    listed = sentences.joined([f"{bound} on {name}" for name, bound in bounds.items()])
    return f" Equivalent: an interval corrected for all comparisons with bounds lies within {listed}."


def budget_table(page: Page, spent: Sequence[comparisons.BudgetSpent]) -> ReportTable:
    """What one run of each strategy used up."""

    def whole(value: float) -> str:
        return f"{value:,.0f}" if value >= 0 else "not recorded"

    budget = page.spec.budget
    return page.table(
        "budgets",
        "What one run used up",
        "Means over the runs, at the last logged step.",
        ("Environment", "Learner", "Strategy", budget.counted.capitalize(), "Updates", "Transitions replayed"),
        [
            (
                s.environment,
                s.learner,
                s.strategy,
                *map(whole, (s.budget, s.updates, s.transitions_replayed)),
            )
            for s in spent
        ],
        (*KEYS, budget.counted.replace(" ", "_"), "updates", "transitions_replayed"),
        ((s.environment, s.learner, s.strategy, s.budget, s.updates, s.transitions_replayed) for s in spent),
    )
