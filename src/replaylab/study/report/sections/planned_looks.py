"""Where a study stands in its planned looks: the present level, and intervals that hold over all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replaylab import statistics
from replaylab.number_format import significant
from replaylab.statistics import Interval
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.analysis.planned_looks import interval_at
from replaylab.study.report import sentences
from replaylab.study.report.page import Column, Page, ReportTable, Section
from replaylab.study.report.sections.differences import DIFFERENCES
from replaylab.study.spec.planned_looks import PlannedLooks


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the looks with their levels, and the intervals of the present one; None where none were planned."""
    plan = page.spec.looks
    if plan is None:
        return None
    level = page.spec.look_level
    return Section(
        f"{DIFFERENCES} {page.titled(page.spec.baseline)}",
        [_levels(page, plan), _intervals(page, level)],
        [where(plan, len(page.spec.seeds))],
        subtitle="Interim analyses",
        note="An interval here holds the true value at every look, all looks together, with 95 % for one comparison; "
        "the narrower ones of 95 % elsewhere on the page hold for a single look. One without ends is of a level that "
        "so few runs cannot tell.",
    )


def where(plan: PlannedLooks, seeds: int) -> str:
    """Return in a sentence which look this is, and what it is judged at."""
    level = plan.levels[seeds]
    return (
        f"Look {plan.seeds.index(seeds) + 1} of {len(plan.seeds)}, with {seeds} of at most {plan.seeds[-1]} seeds. It "
        f"is judged at {significant(level)}: p-values of differences and contrasts are multiplied by "
        f"{significant(comparisons.SIGNIFICANCE / level)}, and compared with {comparisons.SIGNIFICANCE}."
    )


def _levels(page: Page, plan: PlannedLooks) -> ReportTable:
    levels = list(plan.levels.values())
    looks = list(zip(range(1, len(levels) + 1), plan.levels, levels, np.cumsum(levels).tolist(), strict=True))
    columns: list[Column[tuple[int, int, float, float]]] = [
        Column("Look", lambda look: str(look[0]), "look", lambda look: look[0]),
        Column("Seeds", lambda look: str(look[1]), "seeds", lambda look: look[1]),
        Column("Level", lambda look: significant(look[2]), "level", lambda look: look[2]),
        Column("Spent so far", lambda look: significant(look[3]), "spent", lambda look: look[3]),
    ]
    return page.table("planned_looks", "The planned looks", f"The error is spent by {plan.spending}.", looks, columns)


def _intervals(page: Page, level: float) -> ReportTable:
    columns: list[Column[tuple[str, str, Interval]]] = [
        Column("What", lambda row: row[0], "what", lambda row: row[0]),
        Column("Measure", lambda row: row[1], "measure", lambda row: row[1]),
        Column("Difference", lambda row: sentences.effect(row[2]), "estimate low high", lambda row: row[2]),
        Column(f"{100 * (1 - level):.2f} %", lambda row: sentences.effect_interval(row[2], pairs=2)),
    ]
    return page.table(
        "repeated_intervals",
        "What holds over all looks",
        "Interquartile means as in the tables of differences and contrasts, with the interval of the present look.",
        list(_compared(page, level)),
        columns,
    )


def _compared(page: Page, level: float) -> Iterator[tuple[str, str, Interval]]:
    for measure in comparisons.MEASURES:
        for curve, base in comparisons.pairs_with_baseline(page.curves, page.spec.baseline):
            pair = comparisons.paired_values(curve, base, measure)
            titles = page.titled(curve.strategy), page.titled(base.strategy)
            what = f"{sentences.versus(*titles)}, {page.heading(*curve.cell)}"
            yield what, sentences.MEASURE_NAMES[measure], interval_at(1.0 - level, pair, statistics.paired_difference)
    if page.spec.contrasts:
        for result in evaluate_contrasts(page.spec, page.curves_of).results:
            size = interval_at(1.0 - level, [result.each.values], statistics.bootstrap_interval)
            yield result.contrast.name, sentences.MEASURE_NAMES[result.contrast.measure], size
