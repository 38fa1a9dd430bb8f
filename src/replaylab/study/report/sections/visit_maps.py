"""Maps of visits as a report shows them: one panel for each strategy, with a scale of its colours below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import Colormap, FuncNorm, LogNorm, Normalize
from numpy.typing import NDArray

from replaylab.number_format import compact, signed
from replaylab.plotting import heat_map, palette
from replaylab.plotting.drawing import MEDIUM, SMALL, WIDE, Panel, new_panel, shortened, write
from replaylab.study.analysis.comparisons import SIGNIFICANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replaylab.watch.grid import Grid

Floats = NDArray[np.float64]

_LARGEST_CELL, _READABLE_CELL = 44.0, 21.0
"""Sides of a cell in CSS pixels: at most, and the least with a number inside."""

_LEAST_SHARE = 0.01
"""Percent; smaller shares have the colour of this one."""


def shares(of_strategy: Mapping[str, Floats], grid: Grid) -> list[Panel]:
    """Return a map for each strategy: its shares (S,), in percent, all in the same logarithmic colours."""
    percent = {name: 100.0 * values.reshape(grid.shape) for name, values in of_strategy.items()}
    every = np.concatenate([values[values > 0] for values in percent.values()])
    low, high = max(_LEAST_SHARE, float(every.min())), float(every.max())
    high = max(high, 2.0 * low)
    norm, ticks = LogNorm(low, high, clip=True), (low, float(np.sqrt(low * high)), high)
    panels = []
    for name, values in percent.items():
        figure, axes, cell = _new_map(name, "", grid)
        _paint(axes, np.where(values > 0, values, np.nan), norm, heat_map.SEQUENTIAL, grid, cell)
        _scale(figure, norm, heat_map.SEQUENTIAL, ticks, lambda v: f"{compact(v)} %")
        panels.append(Panel(f"{name}: share of the time in each cell", figure))
    return panels


def differences(of_strategy: Mapping[str, tuple[Floats, Floats]], notes: Mapping[str, str], grid: Grid) -> list[Panel]:
    """Return a map for each strategy: its differences in share (S,), cells with a small p-value (S,) framed.

    Colours go by the square root of the size, to both sides alike, so that small differences are seen beside large
    ones. Above each map is a note.
    """
    percent = {name: 100.0 * values.reshape(grid.shape) for name, (values, _) in of_strategy.items()}
    largest = max(float(np.abs(values).max()) for values in percent.values()) or 1.0
    norm = FuncNorm((_root, _square), vmin=-largest, vmax=largest)
    ticks = [-largest, -largest / 4, 0.0, largest / 4, largest]
    panels = []
    for name, values in percent.items():
        p = of_strategy[name][1]
        figure, axes, cell = _new_map(name, notes[name], grid)
        _paint(axes, np.where(values == 0.0, np.nan, values), norm, heat_map.DIVERGING, grid, cell)
        heat_map.frame_cells(axes, np.flatnonzero(p < SIGNIFICANCE), values, norm, heat_map.DIVERGING)
        _scale(figure, norm, heat_map.DIVERGING, ticks, lambda v: signed(compact(v), v))
        panels.append(Panel(f"{name}: difference in share, {notes[name]}", figure))
    return panels


def color(p: float) -> str:
    """Return the colour of a difference in a list: blue where its place is called different."""
    return palette.HUES[0][0] if p < SIGNIFICANCE else palette.BASELINE[0]


def _root(x: Floats) -> Floats:
    return np.asarray(np.sign(x) * np.sqrt(np.abs(x)))


def _square(x: Floats) -> Floats:
    return np.asarray(np.sign(x) * x**2)


def _new_map(name: str, note: str, grid: Grid) -> tuple[Figure, Axes, float]:
    """Return a panel with room for a title, a note, the map and its scale, and the side of a cell."""
    rows, columns = grid.shape
    width = next((w for w in (SMALL, MEDIUM) if (w - 16) / columns >= 27), WIDE)
    cell = min(_LARGEST_CELL, (width - 16) / columns)
    top = 44 if note else 26
    height = round(top + rows * cell + 42)
    right = round(width - 8 - columns * cell)
    figure, axes = new_panel(width, height, left=8, right=right, top=top, bottom=42)
    write(figure, shortened(name, width - 16, 12.5), 8, 16, color=palette.INK, size=12.5)
    if note:
        write(figure, shortened(note, width - 10, 11.0), 8, 34, color=palette.MUTED, size=11)
    return figure, axes, cell


def _paint(axes: Axes, values: Floats, norm: Normalize, colours: Colormap, grid: Grid, cell: float) -> None:
    small = cell < 30
    heat_map.paint_cells(axes, values, norm, colours, labels=grid.labels, closed=grid.closed, size=8.5 if small else 10)
    if cell >= _READABLE_CELL:
        heat_map.write_numbers(axes, values, norm, colours, height=0.62, size=8.5 if small else 9.5)


def _scale(
    figure: Figure, norm: Normalize, colours: Colormap, ticks: Sequence[float], text: Callable[[float], str]
) -> None:
    width, height = figure.get_size_inches() * 72
    across = min(width - 60, 300)
    axes = figure.add_axes((22 / width, 22 / height, across / width, 9 / height))
    heat_map.scale_below(axes, norm, colours, ticks, text)
