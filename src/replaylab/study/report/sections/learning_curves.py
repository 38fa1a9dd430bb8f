"""The sections of a report that show how strategies did: learning, levels, differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replaylab.study.analysis import comparisons as analysis
from replaylab.study.analysis.comparisons import Curve, Measure
from replaylab.study.report import figures, tables
from replaylab.study.report import sentences as words
from replaylab.study.report.page import KEYS, Cells, Page, ReportFigure, ReportTable, Section, cells_of

MEASURE_TITLES: dict[Measure, str] = {"final": "Final level", "area": "Average over training (area)"}

_BAND = (*KEYS, "step", "iqm", "low", "high")

_INSIDE = {
    "rollout/ep_rew": ("Return while exploring", "return of an episode"),
    "eval/held_out_q": ("Q traces: value of held-out states", "mean of max Q"),
    "eval/value_error": ("Error of the Q values", "root mean square of Q − Q*"),
    "train/q_mean": ("Q traces: Q value of the drawn steps", "mean Q"),
    "train/td_error_mean": ("TD error of the drawn steps", "mean |TD error|"),
    "train/loss": ("Loss", "loss"),
}
"""Curves shown without a test, where they were logged: title, and unit of the vertical axis."""

_INSIDE_POINTS = 50
"""Points of those curves; more would not be seen."""


@dataclass(frozen=True)
class Told:
    """The numbers of the comparison that several sections share."""

    levels: Sequence[analysis.Level]
    differences: Sequence[analysis.Difference]
    spent: Sequence[analysis.Spent]


def learning(page: Page, _: Told) -> Section:
    """Return the learning curves: per environment over strategies, every run, per strategy over environments."""
    cells, time = cells_of(page.curves), page.spec.budget.counted
    baseline, looks, unit = page.spec.baseline, page.looks, tables.RETURN_UNIT
    shown: list[ReportFigure | ReportTable] = []
    if not _many(page):  # with many, every strategy has a panel of its own, and those are in "every run"
        shown.append(
            page.figure(
                "learning_curves",
                "Learning curves",
                "Greedy return: interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
                figures.curves(cells, baseline, looks, unit, time),
                _BAND,
                _band_rows(cells),
            )
        )
    if len(page.spec.environments) > 1:
        shown.append(
            page.figure(
                "over_environments",
                "Each strategy over environments",
                "The same curves, one panel a strategy. Each environment’s returns are drawn between the lowest (0) "
                "and the highest (1) point of all its strategies’ curves: compare heights within an environment, not "
                "between environments.",
                figures.over_environments(cells, looks, _range_of(cells), "share of the environment’s range", time),
                _BAND,
                _band_rows(cells),
            )
        )
    shown.append(
        page.figure(
            "every_run",
            "Every run",
            "Thin: one run each. Bold: their interquartile mean, with its 95 % interval. All panels of an environment "
            "share their scales.",
            figures.multiples(cells, baseline, looks, unit, time, runs=True),
            (*KEYS, "seed", "step", "value"),
            _run_rows(page.curves),
        )
    )
    return Section("Learning", shown)


def _many(page: Page) -> bool:
    """Return whether there are too many strategies to draw them together."""
    return len(page.looks) > figures.MOST_TOGETHER


def _range_of(cells: Cells) -> Any:
    """Return the function that gives the lowest and highest point of all curves of an environment."""
    ends: dict[str, tuple[float, float]] = {}
    for curve, band in (pair for cell in cells for pair in cell):
        low, high = ends.get(curve.environment, (np.inf, -np.inf))
        ends[curve.environment] = min(low, float(band.estimate.min())), max(high, float(band.estimate.max()))
    return lambda environment: (ends[environment][0], max(ends[environment][1], ends[environment][0] + 1e-9))


def _band_rows(cells: Cells) -> Iterable[Sequence[Any]]:
    for curve, band in (pair for cell in cells for pair in cell):
        for point in zip(curve.steps.tolist(), *(side.tolist() for side in band), strict=True):
            yield (*curve.cell, curve.strategy, *point)


def _run_rows(curves: Sequence[Curve]) -> Iterable[Sequence[Any]]:
    for curve in curves:
        steps = curve.steps.tolist()
        for seed, values in zip(curve.seeds.tolist(), curve.values.tolist(), strict=True):
            for step, value in zip(steps, values, strict=True):
                yield (*curve.cell, curve.strategy, seed, step, value)


def heights(page: Page, told: Told) -> Section:
    """Return how high the strategies came: every run's level, and the table."""
    of = {(*c.cell, c.strategy): c for c in page.curves}
    panels = [
        (
            page.heading(*cell),
            [
                figures.Dots(
                    MEASURE_TITLES[measure],
                    [
                        figures.Row(lv.strategy, page.looks[lv.strategy].light, lv.iqm, c.of_runs(measure))
                        for lv in told.levels
                        if (lv.environment, lv.learner, lv.measure) == (*cell, measure)
                        for c in [of[*cell, lv.strategy]]
                    ],
                )
                for measure in analysis.MEASURES
            ],
        )
        for cell in dict.fromkeys(c.cell for c in page.curves)
    ]
    figure = page.figure(
        "levels",
        "Level of every run",
        "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}"),
        (*KEYS, "measure", "seed", "value"),
        (
            (*c.cell, c.strategy, m, seed, value)
            for m in analysis.MEASURES
            for c in page.curves
            for seed, value in zip(c.seeds.tolist(), c.of_runs(m).tolist(), strict=True)
        ),
    )
    text = (
        f"Two measures of a run, both in units of the return. Its final level is the mean of its evaluations in the "
        f"last {100 * analysis.FINAL_SHARE:.0f} % of the budget; its average over training is the area under its "
        f"learning curve, divided by the curve’s length."
    )
    return Section("How high they came", [tables.level_table(page, told.levels), figure], [text])


def distances(page: Page, told: Told) -> Section | None:
    """Return how far strategies are from the baseline: every seed's difference, the tests, the effect sizes."""
    if not told.differences:
        return None
    baseline = page.spec.baseline
    pairs = list(analysis.comparisons(page.curves, baseline))
    of = {(*c.cell, c.strategy): (c, base) for c, base in pairs}
    panels = [
        (
            page.heading(*cell),
            [
                figures.Dots(
                    MEASURE_TITLES[measure],
                    [
                        figures.Row(d.strategy, page.looks[d.strategy].light, d.iqm, np.subtract(*both))
                        for d in told.differences
                        if (d.environment, d.learner, d.measure) == (*cell, measure)
                        for both in [analysis.paired_values(*of[*cell, d.strategy], measure)]
                    ],
                    reference=0.0,
                )
                for measure in analysis.MEASURES
            ],
        )
        for cell in dict.fromkeys((d.environment, d.learner) for d in told.differences)
    ]
    figure = page.figure(
        "differences",
        "Difference of every seed",
        "Small dots: one seed each, its run minus the baseline’s run of the same seed. Large dot and bar: difference "
        "of interquartile means with its paired 95 % interval. Right of the dashed line is better.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}, minus {baseline}"),
        (*KEYS, "baseline", "measure", "pair", "difference"),
        (
            (*c.cell, c.strategy, baseline, m, i, difference)
            for m in analysis.MEASURES
            for c, base in pairs
            for i, difference in enumerate(np.subtract(*analysis.paired_values(c, base, m)).tolist())
        ),
    )
    return Section(
        f"Differences from {baseline}",
        [figure, tables.difference_table(page, told.differences)],
        points=[words.comparison(d) for d in told.differences] if len(panels) == 1 else [],  # else the table has them
        note="“No difference shown” does not mean that there is none: the interval says which differences the data "
        "leave open.",
    )


def inside(page: Page, told: Told) -> Section | None:
    """Return what went on inside the learner: its budgets, and, of few strategies, curves of what was logged."""
    shown: list[ReportFigure | ReportTable] = [tables.budget_table(page, told.spent)] if told.spent else []
    if not _many(page):
        shown.extend(_inside_figures(page))
    return Section("Inside the learner", shown) if shown else None


def _inside_figures(page: Page) -> Iterable[ReportFigure]:
    time = page.spec.budget.counted
    for metric, (title, unit) in _INSIDE.items():
        found = [analysis.thinned(curve, _INSIDE_POINTS) for curve in page.curves_of(metric)]
        if found:
            cells = cells_of(found)
            yield page.figure(
                metric.replace("/", "_"),
                title,
                f"{metric}: interquartile mean over runs, with pointwise 95 % bootstrap intervals, at up to "
                f"{_INSIDE_POINTS} points. Shown, not tested.",
                figures.curves(cells, page.spec.baseline, page.looks, unit, time, small=len(cells) > 2),
                _BAND,
                _band_rows(cells),
            )
