"""Interim analyses of a study: their levels, the current one, and intervals that hold over all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replaylab import statistics
from replaylab.number_format import significant
from replaylab.statistics import Interval
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.analysis.interim_analyses import interval_at
from replaylab.study.analysis.seed_values import pairs_with_baseline
from replaylab.study.report import sentences
from replaylab.study.report.page import Column, Page, ReportTable, Section
from replaylab.study.report.sections.differences import DIFFERENCES
from replaylab.study.spec.interim_analyses import InterimAnalyses


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the interim analyses with their levels, and the intervals of the current one; None if none are planned."""
    plan = page.spec.interim
    if plan is None:
        return None
    level = page.spec.analysis_level
    return Section(
        f"{DIFFERENCES} {page.spec.title_of(page.spec.baseline)}",
        [_levels(page, plan), _intervals(page, level)],
        [where(plan, len(page.spec.seeds))],
        subtitle="Interim analyses",
        note="For one comparison, the intervals of all interim analyses together contain the true value with 95 %; the "
        "narrower 95 % intervals elsewhere on the page are those of a single analysis. An interval is infinite if "
        "there are too few runs for its level.",
    )


def where(plan: InterimAnalyses, seeds: int) -> str:
    """Return in a sentence which interim analysis this is, and its level."""
    level = plan.levels[seeds]
    return (
        f"Interim analysis {plan.seeds.index(seeds) + 1} of {len(plan.seeds)}, with {seeds} of at most "
        f"{plan.seeds[-1]} seeds. It is judged at {significant(level)}: p-values of differences and contrasts are "
        f"multiplied by "
        f"{significant(comparisons.SIGNIFICANCE / level)}, and compared with {comparisons.SIGNIFICANCE}."
    )


def _levels(page: Page, plan: InterimAnalyses) -> ReportTable:
    levels = list(plan.levels.values())
    analyses = list(zip(range(1, len(levels) + 1), plan.levels, levels, np.cumsum(levels).tolist(), strict=True))
    columns: list[Column[tuple[int, int, float, float]]] = [
        Column("Analysis", lambda row: str(row[0]), "analysis", lambda row: row[0]),
        Column("Seeds", lambda row: str(row[1]), "seeds", lambda row: row[1]),
        Column("Level", lambda row: significant(row[2]), "level", lambda row: row[2]),
        Column("Spent so far", lambda row: significant(row[3]), "spent", lambda row: row[3]),
    ]
    return page.table(
        "interim_analyses", "Interim analyses", f"The error is spent by {plan.spending}.", analyses, columns
    )


def _intervals(page: Page, level: float) -> ReportTable:
    columns: list[Column[tuple[str, str, Interval]]] = [
        Column("What", lambda row: row[0], "what", lambda row: row[0]),
        Column("Measure", lambda row: row[1], "measure", lambda row: row[1]),
        Column("Difference", lambda row: sentences.effect(row[2]), "estimate low high", lambda row: row[2]),
        Column(f"{100 * (1 - level):.2f} %", lambda row: sentences.effect_interval(row[2], pairs=2)),
    ]
    return page.table(
        "repeated_intervals",
        "Intervals over all interim analyses",
        "Interquartile means as in the tables of differences and contrasts, with the interval of the current analysis.",
        list(_compared(page, level)),
        columns,
    )


def _compared(page: Page, level: float) -> Iterator[tuple[str, str, Interval]]:
    for measure in comparisons.MEASURES:
        for curve, base in pairs_with_baseline(page.curves, page.spec.baseline):
            pair = comparisons.paired_values(curve, base, measure)
            titles = page.spec.title_of(curve.strategy), page.spec.title_of(base.strategy)
            what = f"{sentences.versus(*titles)}, {page.spec.place_of(*curve.cell)}"
            yield what, sentences.MEASURE_NAMES[measure], interval_at(1.0 - level, pair, statistics.paired_difference)
    if page.spec.contrasts:
        for result in evaluate_contrasts(page.spec, page.curves_of).results:
            size = interval_at(1.0 - level, [result.each.values], statistics.bootstrap_interval)
            yield result.contrast.name, sentences.MEASURE_NAMES[result.contrast.measure], size
