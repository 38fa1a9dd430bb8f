"""Where a study stands in its planned looks: the present level, and intervals that hold over all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replaylab import statistics
from replaylab.number_format import signed_significant, significant
from replaylab.statistics import Interval
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.analysis.planned_looks import interval_at
from replaylab.study.report import sentences
from replaylab.study.report.page import Page, ReportTable, Section
from replaylab.study.spec.planned_looks import PlannedLooks


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the looks with their levels, and the intervals of the present one; None where none were planned."""
    plan = page.spec.looks
    if plan is None:
        return None
    level = page.spec.look_level
    return Section(
        "Planned looks",
        [_levels(page, plan), _intervals(page, level)],
        [where(plan, len(page.spec.seeds))],
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
    spent = dict(zip(plan.levels, np.cumsum(list(plan.levels.values())).tolist(), strict=True))
    return page.table(
        "planned_looks",
        "The planned looks",
        f"The error is spent by {plan.spending}.",
        ("Look", "Seeds", "Level", "Spent so far"),
        [
            (str(i), str(seeds), significant(level), significant(spent[seeds]))
            for i, (seeds, level) in enumerate(plan.levels.items(), 1)
        ],
        ("look", "seeds", "level", "spent"),
        ((i, seeds, level, spent[seeds]) for i, (seeds, level) in enumerate(plan.levels.items(), 1)),
    )


def _intervals(page: Page, level: float) -> ReportTable:
    rows = list(_compared(page, level))
    return page.table(
        "repeated_intervals",
        "What holds over all looks",
        "Interquartile means as in the tables of differences and contrasts, with the interval of the present look.",
        ("What", "Measure", "Size", f"{100 * (1 - level):.2f} %"),
        [(what, measure, signed_significant(size.estimate), _ends(size)) for what, measure, size in rows],
        ("what", "measure", "estimate", "low", "high"),
        ((what, measure, *size) for what, measure, size in rows),
    )


def _compared(page: Page, level: float) -> Iterator[tuple[str, str, Interval]]:
    for measure in comparisons.MEASURES:
        for curve, base in comparisons.pairs_with_baseline(page.curves, page.spec.baseline):
            pair = comparisons.paired_values(curve, base, measure)
            what = f"{curve.strategy} against {base.strategy}, {page.heading(*curve.cell)}"
            yield what, sentences.MEASURE_NAMES[measure], interval_at(1.0 - level, pair, statistics.paired_difference)
    if page.spec.contrasts:
        for found in evaluate_contrasts(page.spec, page.curves_of).results:
            size = interval_at(1.0 - level, [found.each.values], statistics.bootstrap_interval)
            yield found.contrast.name, sentences.MEASURE_NAMES[found.contrast.measure], size


def _ends(size: Interval) -> str:
    return f"{signed_significant(size.low)} to {signed_significant(size.high)}"
