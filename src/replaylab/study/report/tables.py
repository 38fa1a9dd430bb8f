"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence

from replaylab.number_format import p_value
from replaylab.statistics import Equivalence
from replaylab.study.analysis.comparisons import BudgetSpent, Difference, Level, percent
from replaylab.study.report import sentences
from replaylab.study.report.page import KEY_COLUMNS, KEYS, Column, Page, ReportTable

RETURN_UNIT = "evaluation return"
"""The unit of levels and differences, in words."""


def level_table(page: Page, levels: Sequence[Level]) -> ReportTable:
    """The final and the average return of each strategy."""
    by_key: dict[tuple[str, str, str], dict[str, Level]] = {}
    for level in levels:
        by_key.setdefault(level.key, {})[level.measure] = level
    columns: list[Column[dict[str, Level]]] = [
        Column("Environment", lambda of: of["final"].environment),
        Column("Learner", lambda of: of["final"].learner),
        Column("Strategy", lambda of: of["final"].strategy),
        Column("Runs", lambda of: str(of["final"].runs)),
        Column("Final", lambda of: sentences.estimate(of["final"].iqm)),
        Column("95 %", lambda of: sentences.interval(of["final"].iqm, of["final"].runs)),
        Column("Average", lambda of: sentences.estimate(of["area"].iqm)),
        Column("95 %", lambda of: sentences.interval(of["area"].iqm, of["area"].runs)),
    ]
    return page.table(
        "levels",
        "Final and average return of each strategy",
        f"Interquartile mean over runs, with its 95 % bootstrap interval; unit: {RETURN_UNIT}.",
        list(by_key.values()),
        columns,
        [(*KEYS, "measure", "runs", "iqm", "low", "high"), *((*lv.key, lv.measure, lv.runs, *lv.iqm) for lv in levels)],
    )


def difference_table(
    page: Page, differences: Sequence[Difference], key: str = "differences", metric: str = ""
) -> ReportTable:
    """Each strategy against the baseline, with its test; of another metric than the return, its title and unit."""
    columns: list[Column[Difference]] = [
        *page.versus_columns,
        Column("Measure", lambda d: sentences.MEASURE_NAMES[d.measure], "measure", lambda d: d.measure),
        Column("Pairs", lambda d: str(d.pairs), "pairs", lambda d: d.pairs),
        Column("Difference", lambda d: sentences.effect(d.iqm), "difference low high", lambda d: d.iqm),
        Column(UNCORRECTED_HEAD, lambda d: sentences.effect_interval(d.iqm, d.pairs)),
        Column("p", lambda d: p_value(d.p), "p", lambda d: d.p),
        Column("p (max-T)", lambda d: p_value(d.p_max_t), "p_max_t", lambda d: d.p_max_t),
        Column("Verdict", _verdict, "verdict", sentences.verdict),
        Column(names="bound equivalence_low equivalence_high", numbers=_bounded),
    ]
    if any(d.equivalence for d in differences):
        columns.insert(-2, Column(EQUIVALENCE_HEAD, lambda d: equivalence_interval(d.equivalence)))
    return page.table(
        key,
        f"{metric}{': d' if metric else 'D'}ifferences from {page.spec.title_of(page.spec.baseline)}, paired by seed",
        "Difference of interquartile means with its paired 95 % bootstrap interval, uncorrected; p from the paired "
        "sign-flip permutation test or of the interval, whichever is larger, then corrected by max-T over all "
        f"comparisons of the same measure.{_bounds(differences)}",
        differences,
        columns,
    )


def _verdict(difference: Difference) -> str:
    return sentences.in_words(sentences.verdict(difference), sentences.bounds(difference))


UNCORRECTED_HEAD = "95 %, uncorrected"
EQUIVALENCE_HEAD = "Equivalence interval"
"""Heads of the columns of both intervals."""


def equivalence_interval(tested: Equivalence | None) -> str:
    """Return the interval that decides about equivalence, with its level; a dash without bounds."""
    if tested is None:
        return "–"
    return f"{percent(tested.level)}: {sentences.effect_interval(tested.inner, pairs=2)}"


def _bounded(difference: Difference) -> tuple[float | str, ...]:
    """Return the bound and the equivalence interval, empty where no bound was declared."""
    tested = difference.equivalence
    return (tested.bounds.high, *tested.inner[1:]) if tested else ("", "", "")


def _bounds(differences: Sequence[Difference]) -> str:
    """Return the equivalence margins, and how equivalence is judged; nothing if none were declared."""
    bounds = {d.environment: sentences.bounds(d) for d in differences if d.equivalence}
    if not bounds:
        return ""
    listed = sentences.joined([f"{bound} on {name}" for name, bound in bounds.items()])
    return f" Equivalent: the equivalence interval, corrected for all comparisons with a margin, lies within {listed}."


def budget_table(page: Page, spent: Sequence[BudgetSpent]) -> ReportTable:
    """Return the table of budgets: what one run of each strategy used."""

    def rounded(value: float) -> str:
        return f"{value:,.0f}" if value >= 0 else "not recorded"

    counted = page.spec.budget.counted
    columns: list[Column[BudgetSpent]] = [
        *KEY_COLUMNS,
        Column(counted.capitalize(), lambda s: rounded(s.budget), counted.replace(" ", "_"), lambda s: s.budget),
        Column("Updates", lambda s: rounded(s.updates), "updates", lambda s: s.updates),
        Column(
            "Transitions replayed",
            lambda s: rounded(s.transitions_replayed),
            "transitions_replayed",
            lambda s: s.transitions_replayed,
        ),
    ]
    caption = "Means over the runs, at the last logged step."
    return page.table("budgets", "What one run used up", caption, spent, columns)
