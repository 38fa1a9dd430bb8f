"""What strategies replayed, beside how they did: the measures of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.learners.metrics.registry import REGISTRY
from replaylab.plotting.drawing import Drawing, Key, PanelGroup
from replaylab.study.analysis.comparisons import ComparisonResults, Curve
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import KEYS, Page, ReportFigure, ReportTable, Section, cells_of

QUANTITIES = tuple(
    REGISTRY[f"replay/{name}"]
    for name in (
        "effective_batch_size",
        "same_episode_share",
        "duplicate_share",
        "autocorrelation_time",
        "row_correlation_excess",
        "energy_distance",
        "law_evenness",
        "weight_effective_size",
        "drawn_age_mean",
        "never_replayed_share",
        "replay_gini",
        "td_error_mean",
        "td_error_percentile",
        "td_error_gap",
    )
)
"""The measures that are shown beside the returns, in this order."""

_RESAMPLES = 2_000
_RETURN = "average return"


@dataclass(frozen=True)
class Measured:
    """A quantity of one strategy: the mean of each run's looks, and the IQM over runs with its interval."""

    environment: str
    learner: str
    strategy: str
    metric: str
    seeds: NDArray[np.int64]
    runs: NDArray[np.float64]
    level: statistics.Interval


def measured(page: Page) -> list[Measured]:
    """Return every quantity that was measured, of every strategy; runs without a finite mean are left out."""
    variances = {(*c.cell, c.strategy): c for c in page.curves_of("replay/gradient_variance")}
    uniform = {(*c.cell, c.strategy): c for c in page.curves_of("replay/gradient_variance_uniform")}
    found = []
    for quantity in QUANTITIES:
        for curve in page.curves_of(quantity.name):
            key = (*curve.cell, curve.strategy)
            if quantity.name == "replay/effective_batch_size" and key in variances and key in uniform:
                runs = _effective(curve, variances[key], uniform[key])
            else:
                runs = curve.values.mean(axis=1)
            finite = np.isfinite(runs)
            if finite.any():
                level = statistics.bootstrap_interval(runs[finite], resamples=_RESAMPLES)
                found.append(Measured(*key, quantity.name, curve.seeds[finite], runs[finite], level))
    return found


def _effective(size: Curve, own: Curve, uniform: Curve) -> NDArray[np.float64]:
    """Return effective batch sizes over all looks: the batch size by the ratio of mean variances, shape (N,).

    The mean of the looks' own ratios would be too large, as each is a ratio of two noisy estimates.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = size.values * own.values / uniform.values  # the same at every look that says it
        batch = np.where(np.isfinite(batch), batch, 0.0).max(axis=1)
        exact = batch * uniform.values.mean(axis=1) / own.values.mean(axis=1)
    return np.asarray(np.where(np.isfinite(exact) & (batch > 0), exact, size.values.mean(axis=1)))


def section(page: Page, results: ComparisonResults) -> Section | None:
    """Return the measures beside the levels: a figure, a table, and their course; None where nothing was measured."""
    found = measured(page)
    if not found:
        return None
    shown: list[ReportFigure | ReportTable] = [_figure(page, found), _table(page, results, found), *_course(page)]
    return Section(
        "What was replayed",
        shown,
        [
            "What each strategy did to the batches, beside how well it did. Each is the mean over a run’s looks, then "
            "the interquartile mean over runs with its 95 % interval. Shown, not tested: that two strategies differ in "
            "a measure and in their return does not say that one is the cause of the other."
        ],
        terms=[(q.title, f"{q.meaning}.") for q in QUANTITIES if any(m.metric == q.name for m in found)],
    )


def _figure(page: Page, found: Sequence[Measured]) -> ReportFigure:
    returns = {(*c.cell, c.strategy): c for c in page.curves}
    groups = []
    for cell in dict.fromkeys((m.environment, m.learner) for m in found):
        own = [c for c in page.curves if c.cell == cell]
        panels = [
            figures.Dots(
                "Average return",
                [
                    figures.Row(
                        c.strategy,
                        page.line_styles[c.strategy].light,
                        statistics.bootstrap_interval(c.of_runs("area"), resamples=_RESAMPLES),
                        c.of_runs("area"),
                    )
                    for c in own
                ],
            )
        ]
        for quantity in QUANTITIES:
            rows = [
                figures.Row(m.strategy, page.line_styles[m.strategy].light, m.level, m.runs)
                for m in found
                if (m.environment, m.learner, m.metric) == (*cell, quantity.name)
            ]
            if rows:
                panels.append(figures.Dots(quantity.title, rows))
        groups.append((page.heading(*cell), panels))
    return page.figure(
        "measures",
        "Measures beside the return",
        "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval. What each measure "
        "means, and its unit, stands below.",
        figures.dots(groups, "", small=True),
        (*KEYS, "metric", "seed", "value"),
        [
            *(
                (*key, _RETURN, seed, value)
                for key, c in returns.items()
                for seed, value in zip(c.seeds.tolist(), c.of_runs("area").tolist(), strict=True)
            ),
            *(
                (m.environment, m.learner, m.strategy, m.metric, seed, value)
                for m in found
                for seed, value in zip(m.seeds.tolist(), m.runs.tolist(), strict=True)
            ),
        ],
    )


def _table(page: Page, results: ComparisonResults, found: Sequence[Measured]) -> ReportTable:
    of = {(m.environment, m.learner, m.strategy, m.metric): m for m in found}
    levels = {(lv.environment, lv.learner, lv.strategy, lv.measure): lv.iqm for lv in results.levels}
    present = [q for q in QUANTITIES if any(m.metric == q.name for m in found)]
    rows = []
    for curve in page.curves:
        key = (*curve.cell, curve.strategy)
        own = [sentences.with_interval(levels[*key, measure], len(curve.seeds)) for measure in ("final", "area")]
        there = [of.get((*key, q.name)) for q in present]
        rows.append((*key, *own, *(sentences.with_interval(m.level, len(m.runs)) if m else "–" for m in there)))
    return page.table(
        "measures",
        "Levels and measures of each strategy",
        "Interquartile mean over runs, with its 95 % interval.",
        ("Environment", "Learner", "Strategy", "Final return", "Average return", *(q.title for q in present)),
        rows,
        (*KEYS, "metric", "runs", "iqm", "low", "high"),
        ((m.environment, m.learner, m.strategy, m.metric, len(m.runs), *m.level) for m in found),
    )


def _course(page: Page) -> Iterable[ReportFigure]:
    """Yield the figure of all quantities over time, where the strategies fit into one panel."""
    if len(page.spec.strategies) > figures.MOST_TOGETHER:
        return
    time = page.spec.budget.counted
    groups: list[PanelGroup] = []
    rows: list[tuple[Any, ...]] = []
    legend: Sequence[Key] = ()
    for quantity in QUANTITIES:
        curves = page.curves_of(quantity.name)
        if curves:
            cells = cells_of(curves)
            drawn = figures.curves(cells, page.spec.baseline, page.line_styles, quantity.title, time, small=True)
            groups.append(PanelGroup(quantity.title, drawn.groups[0].panels))
            legend = drawn.legend
            rows.extend(
                (*c.cell, c.strategy, quantity.name, *point)
                for cell in cells
                for c, band in cell
                for point in zip(c.steps.tolist(), *(side.tolist() for side in band), strict=True)
            )
    yield page.figure(
        "measures_over_time",
        "Measures over training",
        "Interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
        Drawing(groups, legend, f"across: {time}"),
        (*KEYS, "metric", "step", "iqm", "low", "high"),
        rows,
        folded=True,
    )
