"""Learning curves: strategies together, each strategy over the environments, and every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from replaylab.study.analysis.comparisons import ComparisonResults, Curve
from replaylab.study.report import figures, tables
from replaylab.study.report.page import BAND, KEYS, BandedCurves, Page, Section, Shown, band_rows, cells_of


def section(page: Page, _: ComparisonResults) -> Section:
    """Return the learning curves: per environment over strategies, every run, per strategy over environments."""
    cells = cells_of(page.curves)
    references = {name: (line.value, line.label) for name, line in page.spec.reference.items()}
    style = replace(page.curve_style(tables.RETURN_UNIT), references=references)
    shown: list[Shown] = []
    if not page.many_strategies:  # with many, every strategy has its own panel, and those are in "every run"
        shown.append(
            page.figure(
                "learning_curves",
                "Learning curves",
                "Evaluation return of the greedy policy: interquartile mean over runs, with pointwise 95 % bootstrap "
                "intervals.",
                figures.curves(cells, style),
                BAND,
                band_rows(cells),
            )
        )
    if len(page.spec.environments) > 1:
        shown.append(
            page.figure(
                "over_environments",
                "Each strategy in all environments",
                "The same curves, one panel a strategy. Each environment’s returns are drawn between the lowest (0) "
                "and the highest (1) point of all its strategies’ curves: compare heights within an environment, not "
                "between environments.",
                figures.over_environments(
                    cells, page.curve_style("share of the environment’s range"), _range_of(cells)
                ),
                BAND,
                band_rows(cells),
            )
        )
    shown.append(
        page.figure(
            "every_run",
            "Every run",
            "Thin: one run each. Bold: their interquartile mean, with its 95 % interval. All panels of an environment "
            "share their scales.",
            figures.multiples(cells, style, runs=True),
            (*KEYS, "seed", "step", "value"),
            _run_rows(page.curves),
            folded=True,
        )
    )
    return Section("Learning curves", shown)


def _range_of(cells: BandedCurves) -> Any:
    """Return the function that gives the lowest and highest point of all curves of an environment."""
    ends: dict[str, tuple[float, float]] = {}
    for curve, band in (pair for cell in cells for pair in cell):
        low, high = ends.get(curve.environment, (np.inf, -np.inf))
        ends[curve.environment] = min(low, float(band.estimate.min())), max(high, float(band.estimate.max()))

    def scale(environment: str) -> tuple[float, float]:
        low, high = ends[environment]
        return low, high if high > low else low + max(1.0, abs(low))

    return scale


def _run_rows(curves: Sequence[Curve]) -> Iterable[Sequence[Any]]:
    for curve in curves:
        steps = curve.steps.tolist()
        for seed, values in zip(curve.seeds.tolist(), curve.values.tolist(), strict=True):
            for step, value in zip(steps, values, strict=True):
                yield (*curve.key, seed, step, value)
