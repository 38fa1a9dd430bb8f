"""Replay statistics: what strategies replayed, beside their returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.learners.metrics import REGISTRY, Metric
from replaylab.plotting.drawing import Drawing, Key, PanelGroup
from replaylab.study.analysis.comparisons import RETURN, ComparisonResults, Curve, Measure
from replaylab.study.analysis.seed_values import StrategyResult
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import (
    KEY_COLUMNS,
    KEYS,
    Column,
    Page,
    ReportFigure,
    ReportTable,
    Section,
    cells_of,
    point_rows,
    seed_rows,
)
from replaylab.study.spec.contrasts import ResolvedContrast

QUANTITIES = tuple(
    REGISTRY[f"replay/{name}"]
    for name in (
        "effective_batch_size",
        "same_episode_share",
        "duplicate_share",
        "autocorrelation_time",
        "row_correlation_excess",
        "energy_distance",
        "sampling_evenness",
        "weight_effective_size",
        "drawn_age_mean",
        "end_share",
        "steps_to_end_mean",
        "moved_share",
        "never_replayed_share",
        "replay_gini",
        "td_error_mean",
        "td_error_percentile",
        "td_error_gap",
    )
)
"""The measures that are shown beside the returns, in this order."""

EFFECTIVE_SIZE = "replay/effective_batch_size"
EFFECTIVE_PARTS = ("replay/gradient_variance", "replay/gradient_variance_uniform")
"""The metrics that effective batch sizes are ratios of."""

_RESAMPLES = 2_000
_RETURN = "average return"


@dataclass(frozen=True)
class Measured(StrategyResult):
    """A quantity of one strategy: the mean of each run's measurements, and the IQM over runs with its interval."""

    metric: str
    seeds: NDArray[np.int64]
    runs: NDArray[np.float64]
    level: statistics.Interval


def measured(page: Page) -> list[Measured]:
    """Return every quantity that was measured, of every strategy; runs without a finite mean are left out."""
    measures = []
    for metric, curve, runs in measures_of_runs(page.curves_of):
        finite = np.isfinite(runs)
        if finite.any():
            level = statistics.bootstrap_interval(runs[finite], resamples=_RESAMPLES)
            measures.append(Measured(*curve.key, metric, curve.seeds[finite], runs[finite], level))
    return measures


def measures_of_runs(
    curves_of: Callable[[str], Sequence[Curve]],
) -> Iterator[tuple[str, Curve, NDArray[np.float64]]]:
    """Yield every quantity that was measured, of every strategy: its metric, its curve, and each run's mean, (N,).

    Args:
        curves_of: gives the curves of a metric.
    """
    for quantity in QUANTITIES:
        for curve, runs in _of_quantity(quantity.name, curves_of):
            yield quantity.name, curve, runs


def _of_quantity(name: str, curves_of: Callable[[str], Sequence[Curve]]) -> Iterator[tuple[Curve, NDArray[np.float64]]]:
    variances, uniform = (
        {c.key: c for c in curves_of(part)} if name == EFFECTIVE_SIZE else {} for part in EFFECTIVE_PARTS
    )
    for curve in curves_of(name):
        key = curve.key
        if key in variances and key in uniform:
            yield curve, _effective(curve, variances[key], uniform[key])
        else:
            yield curve, curve.values.mean(axis=1)


def effective_rows(curves_of: Callable[[str], Sequence[Curve]]) -> dict[tuple[str, str, str], float]:
    """Return the effective batch size of each environment, learner and strategy: the IQM over runs.

    Args:
        curves_of: gives the curves of a metric.
    """
    sizes = {curve.key: runs[np.isfinite(runs)] for curve, runs in _of_quantity(EFFECTIVE_SIZE, curves_of)}
    return {key: float(statistics.interquartile_mean(runs)) for key, runs in sizes.items() if len(runs)}


def effective_of_sides(
    contrast: ResolvedContrast, rows: Mapping[tuple[str, str, str], float]
) -> tuple[float, float] | None:
    """Return the mean effective rows of both sides, by weight if a contrast has weights; None where unmeasured.

    None also for checks, and for a difference of two contrasts: the table has each of the two.

    Args:
        contrast: the contrast.
        rows: the effective batch size of each environment, learner and strategy.
    """
    if contrast.check is not None or contrast.metric != RETURN or not set(contrast.cells) <= rows.keys():
        return None
    sides = []
    for sign in (1, -1):
        weighted = [(cell, sign * weight) for group in contrast.weighted for cell, weight in group if sign * weight > 0]
        for group in contrast.groups:
            side = group.more if sign > 0 else group.less
            weighted += [(cell, 1.0 / len(side)) for cell in side]
        if not weighted:
            return None
        total = sum(weight for _, weight in weighted)
        sides.append(sum(weight * rows[cell] for cell, weight in weighted) / total)
    return sides[0], sides[1]


def _effective(size: Curve, variances: Curve, uniform: Curve) -> NDArray[np.float64]:
    """Return effective batch sizes over all measurements: the batch size by the ratio of mean variances, shape (N,).

    The mean of the measurements' ratios would be too large, as each is a ratio of two noisy estimates.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = size.values * variances.values / uniform.values  # the same at every measurement
        batch = np.where(np.isfinite(batch), batch, 0.0).max(axis=1)
        exact = batch * uniform.values.mean(axis=1) / variances.values.mean(axis=1)
    return np.asarray(np.where(np.isfinite(exact) & (batch > 0), exact, size.values.mean(axis=1)))


def section(page: Page, results: ComparisonResults) -> Section | None:
    """Return the measures beside the levels: a figure, a table, and their course; None where nothing was measured."""
    measures = measured(page)
    if not measures:
        return None
    return Section(
        "Replay statistics",
        [_figure(page, measures), table(page, results, measures), *_course(page)],
        [
            "What each strategy did to the batches, beside how well it did. Each is the mean over a run’s "
            "measurements, then the interquartile mean over runs with its 95 % interval. Shown, not tested: that two "
            "strategies differ in a measure and in their return does not say that one is the cause of the other."
        ],
        terms=[(q.title, f"{q.meaning}.") for q in QUANTITIES if any(m.metric == q.name for m in measures)],
    )


def _figure(page: Page, measures: Sequence[Measured]) -> ReportFigure:
    groups = []
    for cell in dict.fromkeys(m.cell for m in measures):
        returns = [
            page.row(c.strategy, statistics.bootstrap_interval(runs, resamples=_RESAMPLES), runs)
            for c in page.curves
            if c.cell == cell
            for runs in [c.of_runs("area")]
        ]
        panels = [figures.Dots("Average return", returns)]
        for quantity in QUANTITIES:
            of_quantity = [m for m in measures if (m.cell, m.metric) == (cell, quantity.name)]
            if of_quantity:
                panels.append(
                    figures.Dots(quantity.title, [page.row(m.strategy, m.level, m.runs) for m in of_quantity])
                )
        groups.append((page.spec.place_of(*cell), panels))
    return page.figure(
        "measures",
        "Measures beside the return",
        "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval. What each measure "
        "means, and its unit, stands below.",
        figures.dots(groups, "", small=True),
        (*KEYS, "metric", "seed", "value"),
        chain(
            *(seed_rows((*c.key, _RETURN), c.seeds, c.of_runs("area")) for c in page.curves),
            *(seed_rows((*m.key, m.metric), m.seeds, m.runs) for m in measures),
        ),
    )


def table(page: Page, results: ComparisonResults, measures: Sequence[Measured]) -> ReportTable:
    """Return levels and measures of each strategy as a table."""
    of = {(*m.key, m.metric): m for m in measures}
    levels = {(*lv.key, lv.measure): lv.iqm for lv in results.levels}

    def level(title: str, measure: Measure) -> Column[Curve]:
        return Column(title, lambda curve: sentences.with_interval(levels[*curve.key, measure], len(curve.seeds)))

    def measure(quantity: Metric) -> Column[Curve]:
        def text(curve: Curve) -> str:
            m = of.get((*curve.key, quantity.name))
            return sentences.with_interval(m.level, len(m.runs)) if m else "–"

        return Column(quantity.title, text)

    present = [measure(q) for q in QUANTITIES if any(m.metric == q.name for m in measures)]
    return page.table(
        "measures",
        "Levels and measures of each strategy",
        "Interquartile mean over runs, with its 95 % interval.",
        page.curves,
        [*KEY_COLUMNS, level("Final return", "final"), level("Average return", "area"), *present],
        [
            (*KEYS, "metric", "runs", "iqm", "low", "high"),
            *((*m.key, m.metric, len(m.runs), *m.level) for m in measures),
        ],
    )


def _course(page: Page) -> Iterable[ReportFigure]:
    """Yield the figure of all quantities over time, where the strategies fit into one panel."""
    if page.many_strategies:
        return
    groups: list[PanelGroup] = []
    rows: list[tuple[Any, ...]] = []
    legend: Sequence[Key] = ()
    for quantity in QUANTITIES:
        curves = page.curves_of(quantity.name)
        if curves:
            cells = cells_of(curves)
            drawn = figures.curves(cells, page.curve_style(quantity.title), small=True)
            groups.append(PanelGroup(quantity.title, drawn.groups[0].panels))
            legend = drawn.legend
            for c, band in chain(*cells):
                rows.extend(point_rows((*c.key, quantity.name), c.steps, band))
    yield page.figure(
        "measures_over_time",
        "Measures over training",
        "Interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
        Drawing(groups, legend, f"across: {page.spec.budget.counted}"),
        (*KEYS, "metric", "step", "iqm", "low", "high"),
        rows,
        folded=True,
    )
