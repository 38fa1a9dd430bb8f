"""What strategies replayed, beside how they did: the measures of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.plotting.drawing import Drawing, Group, Key
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import figures
from replaylab.study.report import sentences as words
from replaylab.study.report.page import KEYS, Page, ReportFigure, ReportTable, Section, cells_of
from replaylab.study.report.return_sections import Told


class Quantity(NamedTuple):
    """A measure of what is replayed, as `docs/laboratory/measures.md` has it."""

    metric: str
    title: str
    meaning: str


QUANTITIES = tuple(
    Quantity(f"replay/{name}", title, meaning)
    for name, title, meaning in (
        (
            "effective_batch_size",
            "Effective batch size",
            "how many independent uniform rows tell as much about the gradient as a batch does, in rows; uniform "
            "draws: the batch size",
        ),
        (
            "same_episode_share",
            "Pairs from one episode",
            "share of a batch’s pairs of rows that come from one episode; uniform draws: about one in the number of "
            "stored episodes",
        ),
        ("duplicate_share", "Duplicates", "share of rows that repeat another of their batch"),
        (
            "autocorrelation_time",
            "Autocorrelation time",
            "of the TD errors in the order drawn, in rows; independent draws: 1",
        ),
        (
            "row_correlation_excess",
            "Excess correlation of rows",
            "mean absolute correlation between a batch’s observations, whitened, minus that of uniform draws: 0 is as "
            "uniform draws",
        ),
        (
            "energy_distance",
            "Distance from the buffer",
            "energy distance between a batch and uniform draws, in standard deviations of the observations; uniform "
            "draws: 0",
        ),
        ("law_evenness", "Evenness of the law", "entropy of the drawing probabilities, 1 where all are equal"),
        (
            "weight_effective_size",
            "Effective size of the weights",
            "rows of equal weight that are worth a batch’s importance weights",
        ),
        ("drawn_age_mean", "Age of drawn rows", "steps stored since a drawn row was"),
        ("never_replayed_share", "Never replayed", "share of the stored steps that were never drawn"),
        (
            "replay_gini",
            "Gini of replay counts",
            "how unevenly stored steps were drawn: 0 all alike, 1 all draws on one",
        ),
        ("td_error_mean", "TD error of drawn rows", "mean absolute TD error, in the unit of the reward"),
        (
            "td_error_percentile",
            "Percentile of TD errors",
            "where the drawn rows’ TD errors stand among the buffer’s, in percent; uniform draws: 50",
        ),
        (
            "td_error_gap",
            "Staleness of priorities",
            "absolute TD error now minus the one fed back when the row was drawn",
        ),
    )
)

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
        for curve in page.curves_of(quantity.metric):
            key = (*curve.cell, curve.strategy)
            if quantity.metric == "replay/effective_batch_size" and key in variances and key in uniform:
                runs = _effective(curve, variances[key], uniform[key])
            else:
                runs = curve.values.mean(axis=1)
            told = np.isfinite(runs)
            if told.any():
                level = statistics.bootstrap_interval(runs[told], resamples=_RESAMPLES)
                found.append(Measured(*key, quantity.metric, curve.seeds[told], runs[told], level))
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


def section(page: Page, told: Told) -> Section | None:
    """Return the measures beside the levels: a figure, a table, and their course; None where nothing was measured."""
    found = measured(page)
    if not found:
        return None
    shown: list[ReportFigure | ReportTable] = [_figure(page, found), _table(page, told, found), *_course(page)]
    return Section(
        "What was replayed",
        shown,
        [
            "What each strategy did to the batches, beside how well it did. Each is the mean over a run’s looks, then "
            "the interquartile mean over runs with its 95 % interval. Shown, not tested: that two strategies differ in "
            "a measure and in their return does not say that one is the cause of the other."
        ],
        terms=[(q.title, f"{q.meaning}.") for q in QUANTITIES if any(m.metric == q.metric for m in found)],
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
                        page.looks[c.strategy].light,
                        statistics.bootstrap_interval(c.of_runs("area"), resamples=_RESAMPLES),
                        c.of_runs("area"),
                    )
                    for c in own
                ],
            )
        ]
        for quantity in QUANTITIES:
            rows = [
                figures.Row(m.strategy, page.looks[m.strategy].light, m.level, m.runs)
                for m in found
                if (m.environment, m.learner, m.metric) == (*cell, quantity.metric)
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


def _table(page: Page, told: Told, found: Sequence[Measured]) -> ReportTable:
    of = {(m.environment, m.learner, m.strategy, m.metric): m for m in found}
    levels = {(lv.environment, lv.learner, lv.strategy, lv.measure): lv.iqm for lv in told.levels}
    present = [q for q in QUANTITIES if any(m.metric == q.metric for m in found)]
    rows = []
    for curve in page.curves:
        key = (*curve.cell, curve.strategy)
        intervals = [levels[*key, "final"], levels[*key, "area"]]
        there = [of.get((*key, q.metric)) for q in present]
        rows.append((*key, *map(_with_interval, intervals), *(_with_interval(m.level) if m else "–" for m in there)))
    return page.table(
        "measures",
        "Levels and measures of each strategy",
        "Interquartile mean over runs, with its 95 % interval.",
        ("Environment", "Learner", "Strategy", "Final return", "Average return", *(q.title for q in present)),
        rows,
        (*KEYS, "metric", "runs", "iqm", "low", "high"),
        ((m.environment, m.learner, m.strategy, m.metric, len(m.runs), *m.level) for m in found),
    )


def _with_interval(found: statistics.Interval) -> str:
    return f"{words.estimate(found)} ({words.interval(found)})"


def _course(page: Page) -> Iterable[ReportFigure]:
    """Yield the figure of all quantities over time, where the strategies fit into one panel."""
    if len(page.spec.strategies) > figures.MOST_TOGETHER:
        return
    time = page.spec.budget.counted
    groups: list[Group] = []
    rows: list[tuple[Any, ...]] = []
    legend: Sequence[Key] = ()
    for quantity in QUANTITIES:
        curves = page.curves_of(quantity.metric)
        if curves:
            cells = cells_of(curves)
            drawn = figures.curves(cells, page.spec.baseline, page.looks, quantity.title, time, small=True)
            groups.append(Group(quantity.title, drawn.groups[0].panels))
            legend = drawn.legend
            rows.extend(
                (*c.cell, c.strategy, quantity.metric, *point)
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
