"""The figures of a report: each takes numbers and a layout, and returns a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from replaylab import palette
from replaylab.palette import Look
from replaylab.statistics import Band
from replaylab.study.analysis import Curve, Difference, Level, Measure, paired_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURE_TITLES: dict[Measure, str] = {"final": "Final level", "area": "Average over training (area)"}

_NICE = [1, 2, 2.5, 5, 10]
"""Steps between ticks, times a power of ten."""


@dataclass(frozen=True)
class Layout:
    """How wide a figure is, in CSS pixels, and how many panels stand side by side."""

    name: str
    width: int
    columns: int


WIDE = Layout("wide", 760, 2)
NARROW = Layout("narrow", 350, 1)


def _panels(count: int, layout: Layout, height: int, **kwargs: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels of a height, row by row."""
    columns = min(layout.columns, count)
    rows = math.ceil(count / columns)
    engine = ConstrainedLayoutEngine(h_pad=7 / 72)
    figure = Figure(figsize=(layout.width / 72, (rows * height + 8) / 72), layout=engine)
    axes = figure.subplots(rows, columns, squeeze=False, **kwargs).ravel()
    for unused in axes[count:]:
        unused.remove()
    return figure, list(axes[:count])


def _title(curve: Curve, several_learners: bool) -> str:
    return f"{curve.environment}, {curve.learner}" if several_learners else curve.environment


def _steps_axis(axes: Axes, last: int) -> None:
    axes.set_xlim(0, last)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=_NICE, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))


def curves(
    cells: Sequence[Sequence[tuple[Curve, Band]]], looks: dict[str, Look], layout: Layout, unit: str, time: str
) -> Figure:
    """Draw one panel per environment and learner: every strategy's IQM with its interval, over `time`."""
    single = len(cells) == 1
    figure, panels = _panels(len(cells), layout, 330 if single and layout is WIDE else 270)
    learners = {c.learner for cell in cells for c, _ in cell}
    for axes, cell in zip(panels, cells, strict=True):
        for curve, band in cell:
            look = looks[curve.strategy]
            axes.fill_between(curve.steps, band.low, band.high, color=look.light, alpha=0.14, linewidth=0)
            axes.plot(curve.steps, band.estimate, look.line, color=look.light, lw=2.2, label=curve.strategy)
        axes.set_title(_title(cell[0][0], len(learners) > 1))
        _steps_axis(axes, int(cell[0][0].steps[-1]))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=_NICE))
        axes.set_xlabel(time)
        axes.set_ylabel(unit)
    entries = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = 4 if layout is WIDE else 2
    figure.legend([*entries.values()], [*entries], loc="outside upper left", ncols=columns, handlelength=2.2)
    return figure


def every_run(
    cells: Sequence[Sequence[tuple[Curve, Band]]],
    baseline: str,
    looks: dict[str, Look],
    layout: Layout,
    unit: str,
    time: str,
) -> Figure:
    """Draw one panel per strategy: each run thin, the IQM bold, the baseline's IQM for comparison."""
    count = sum(len(cell) for cell in cells)
    several = len(cells) > 1
    figure, panels = _panels(count, layout, 210, sharex=not several, sharey=not several)
    todo = iter(panels)
    for cell in cells:
        reference = next((band for c, band in cell if c.strategy == baseline), None)
        top = max(float(c.values.max()) for c, _ in cell)
        bottom = min(float(c.values.min()) for c, _ in cell)
        for curve, band in cell:
            axes, look = next(todo), looks[curve.strategy]
            axes.plot(curve.steps, curve.values.T, "-", color=look.light, lw=0.7, alpha=0.45)
            axes.fill_between(curve.steps, band.low, band.high, color=look.light, alpha=0.18, linewidth=0)
            if reference is not None and curve.strategy != baseline:
                axes.plot(curve.steps, reference.estimate, "--", color=palette.BASELINE[0], lw=1.3)
            axes.plot(curve.steps, band.estimate, "-", color=look.light, lw=2.4)
            axes.set_title(f"{curve.environment}: {curve.strategy}" if several else curve.strategy)
            _steps_axis(axes, int(curve.steps[-1]))
            pad = 0.04 * (top - bottom or 1.0)
            axes.set_ylim(bottom - pad, top + pad)
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=_NICE))
    figure.supxlabel(time, color=palette.MUTED, size=11.5)
    figure.supylabel(unit, color=palette.MUTED, size=11.5)
    return figure


def rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    """Give the vertical axis a labelled row for each label, the first on top."""
    axes.set_yticks(range(len(labels)), labels=list(labels))
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", labelcolor=palette.INK, labelsize=11.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=_NICE))


def dots(axes: Axes, values: np.ndarray[Any, np.dtype[np.float64]], row: float, color: str) -> None:
    """Draw one dot a run, spread over the row's lower part in a fixed pattern so that none hides another."""
    spread = 0.20 + 0.045 * (np.arange(len(values)) % 5)
    axes.plot(values, row + spread, "o", color=color, ms=4, alpha=0.5, mew=0)


def mark(axes: Axes, low: float, middle: float, high: float, row: float, color: str) -> None:
    """Draw an estimate and its interval in a row."""
    axes.plot([low, high], [row, row], "-", color=color, lw=2.6)
    axes.plot([middle], [row], "o", color=color, ms=8, mec=palette.PAPER, mew=1.4)


def level_dots(
    curves_: Sequence[Curve], found: Sequence[Level], looks: dict[str, Look], layout: Layout, unit: str
) -> Figure:
    """Draw every run's measure as a dot, and the IQM with its interval above them."""
    cells = list(dict.fromkeys((lv.environment, lv.learner, lv.measure) for lv in found))
    most = max(len({c.strategy for c in curves_ if c.cell == cell[:2]}) for cell in cells)
    figure, panels = _panels(len(cells), layout, 62 + 40 * most)
    for axes, (environment, learner, measure) in zip(panels, cells, strict=True):
        rows = [lv for lv in found if (lv.environment, lv.learner, lv.measure) == (environment, learner, measure)]
        of = {c.strategy: c for c in curves_ if c.cell == (environment, learner)}
        rows_axis(axes, [lv.strategy for lv in rows])
        for row, level in enumerate(rows):
            color = looks[level.strategy].light
            dots(axes, of[level.strategy].of_runs(measure), row, color)
            mark(axes, level.iqm.low, level.iqm.estimate, level.iqm.high, row, color)
        axes.set_title(_panel_title(environment, measure, len(cells) > 2))
        axes.set_xlabel(unit)
    return figure


def difference_dots(
    pairs: Sequence[tuple[Curve, Curve]],
    found: Sequence[Difference],
    looks: dict[str, Look],
    layout: Layout,
    unit: str,
) -> Figure:
    """Draw each strategy's difference from the baseline: its interval, and every seed's own as a dot."""
    cells = list(dict.fromkeys((d.environment, d.learner, d.measure) for d in found))
    most = max(sum((d.environment, d.learner, d.measure) == cell for d in found) for cell in cells)
    figure, panels = _panels(len(cells), layout, 62 + 40 * most)
    for axes, (environment, learner, measure) in zip(panels, cells, strict=True):
        rows = [d for d in found if (d.environment, d.learner, d.measure) == (environment, learner, measure)]
        of = {c.strategy: (c, base) for c, base in pairs if c.cell == (environment, learner)}
        rows_axis(axes, [d.strategy for d in rows])
        axes.axvline(0, color=palette.BASELINE[0], lw=1.2, ls="--")
        for row, difference in enumerate(rows):
            color = looks[difference.strategy].light
            ours, theirs = paired_values(*of[difference.strategy], measure)
            dots(axes, ours - theirs, row, color)
            mark(axes, difference.iqm.low, difference.iqm.estimate, difference.iqm.high, row, color)
        axes.set_title(_panel_title(environment, measure, len(cells) > 2))
        axes.set_xlabel(f"{unit}, minus {rows[0].baseline}")
    return figure


def _panel_title(environment: str, measure: Measure, several: bool) -> str:
    return f"{environment}: {MEASURE_TITLES[measure].lower()}" if several else MEASURE_TITLES[measure]
