"""Maps of grid worlds: visits of states, values of states, and the greedy policy.

Shapes: R replicas (or none), S states, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from replaylab.arguments import instance, mapping, reals, takes, text
from replaylab.errors import ConfigError, ShapeError
from replaylab.number_format import compact
from replaylab.plotting.drawing import shortened
from replaylab.plotting.heat_map import SEQUENTIAL, ink_on, paint_cells, write_numbers
from replaylab.plotting.svg import style
from replaylab.watch.grid import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

WIDTH = 760
"""Width of a map, in CSS pixels."""

_MOST_READABLE = 14
"""Largest number of rows or columns of a map whose cells show their numbers."""

GRID = instance(Grid, "a Grid")


@takes(visits=mapping, grid=GRID, unit=text)
def visit_map(visits: Mapping[str, npt.ArrayLike], grid: Grid, *, unit: str = "visits of a state") -> Figure:
    """Draw how often each state was visited, a panel for each name, all on one logarithmic colour scale.

    Args:
        visits: Counts by title of a panel: (S,), (rows, columns), or with a leading axis of replicas, (R, S), whose
            mean is shown.
        grid: The layout of the states.
        unit: Label of the colour scale.

    Raises:
        ShapeError: Counts do not fit the grid.
        ConfigError: There is no panel, or a count is negative, NaN or infinite.
    """
    if not visits:
        raise ConfigError("`visits` must have at least one panel, but it is empty")
    panels = {name: _mean(grid.cells(name, counts), name, grid) for name, counts in visits.items()}
    for name, counts in panels.items():
        if not ((counts >= 0) & np.isfinite(counts)).all():
            raise ConfigError(f"`visits[{name!r}]` must be finite and not negative")
    visited = np.concatenate([counts[counts > 0] for counts in panels.values()])
    low, high = (float(visited.min()), float(visited.max())) if visited.size else (1.0, 1.0)
    norm = LogNorm(low, high if high > low else 10 * low)
    with style():
        figure, axes = _panels(len(panels), grid)
        room = max(72 * figure.get_figwidth() - 100, 160) / (len(axes) if grid.shape[1] <= grid.shape[0] else 1)
        for ax, (name, counts) in zip(axes, panels.items(), strict=True):
            _paint(ax, np.where(counts > 0, counts, np.nan), counts, grid, norm)
            ax.set_title(shortened(name, room, 12.5), parse_math=False)
        _colour_bar(figure, axes, norm, unit)
        return figure


@takes(values=reals(finite=True), grid=GRID, title=text)
def value_map(values: npt.ArrayLike, grid: Grid, *, title: str = "") -> Figure:
    """Draw the value of each state, and the greedy policy as arrows.

    An arrow's length is the share of the replicas that take the action there; actions of equal value share a
    replica evenly, and a replica whose actions are all equal is left out.

    Args:
        values: Action values (S, A) or (R, S, A), shown with the policy; or state values (S,) or (rows, columns).
        grid: The layout of the states and the moves of the actions.
        title: Title of the map.

    Raises:
        ShapeError: The values do not fit the grid.
        ConfigError: A value is NaN or infinite.
    """
    array = np.asarray(values, np.float64)
    A = len(grid.moves)
    if array.ndim > 1 and array.shape[-2:] == (grid.size, A):
        q = array.reshape(-1, grid.size, A)
        state_values, policy = q.max(2).mean(0), greedy_shares(q)
    elif array.shape in ((grid.size,), grid.shape):
        state_values, policy = array.reshape(-1), np.zeros((grid.size, A))
    else:
        raise ShapeError(
            f"`values` must be of shape ({grid.size}, {A}) or (R, {grid.size}, {A}) for actions, or ({grid.size},) for "
            f"states, but got {list(array.shape)}"
        )
    chosen = np.array([s not in grid.closed for s in range(grid.size)])
    shown = np.where(chosen, state_values, np.nan)
    low, high = (float(np.nanmin(shown)), float(np.nanmax(shown))) if chosen.any() else (0.0, 1.0)
    norm = Normalize(low, high if high > low else low + 1.0)
    with style():
        figure, (ax,) = _panels(1, grid)
        _paint(ax, shown, shown, grid, norm, height=0.86 if policy.any() else 0.52)
        _arrows(ax, np.where(chosen[:, None], policy, 0.0), shown, grid, norm)
        ax.set_title(title)
        _colour_bar(figure, [ax], norm, "value of a state")
        return figure


def greedy_shares(q: Floats) -> Floats:
    """Return the share of the replicas that take each action when greedy, float64 (S, A), for q (R, S, A).

    A replica counts evenly for actions of equal value, and is left out where all are equal.
    """
    best = q == q.max(2, keepdims=True)
    best &= ~best.all(2, keepdims=True)
    shares: Floats = (best / np.maximum(best.sum(2, keepdims=True), 1)).mean(0)
    return shares


def _mean(counts: Floats, name: str, grid: Grid) -> Floats:
    if counts.ndim > 2:
        raise ShapeError(f"`visits[{name!r}]` must have at most one leading axis, but got {list(counts.shape)}")
    mean: Floats = counts.reshape(-1, grid.size).mean(0)
    return mean


def _panels(count: int, grid: Grid) -> tuple[Figure, list[Axes]]:
    rows, columns = grid.shape
    across = count if columns <= rows else 1  # tall and square grids side by side, wide ones below each other
    cell = min(60.0, (WIDTH - 100 - 30 * across) / (across * columns))
    down = -(-count // across)
    size = (across * (columns * cell + 30) + 100, down * (rows * cell + 40) + 10)
    figure = Figure(figsize=(max(size[0], 260) / 72, size[1] / 72), layout="constrained")
    return figure, list(figure.subplots(down, across, squeeze=False).ravel())


def _paint(ax: Axes, painted: Floats, numbers: Floats, grid: Grid, norm: Normalize, *, height: float = 0.52) -> None:
    """Paint the cells, and write each cell's number into it if the cells are large enough."""
    paint_cells(ax, painted.reshape(grid.shape), norm, SEQUENTIAL, labels=grid.labels, closed=grid.closed)
    if max(grid.shape) <= _MOST_READABLE:
        write_numbers(ax, numbers.reshape(grid.shape), norm, SEQUENTIAL, skipped=grid.closed, height=height)


def _arrows(ax: Axes, policy: Floats, values: Floats, grid: Grid, norm: Normalize) -> None:
    for state, action in np.argwhere(policy > 0.02):
        row, column = divmod(int(state), grid.shape[1])
        down, right = grid.moves[action]
        length = 0.12 + 0.18 * policy[state, action]
        ax.annotate(
            "",
            (column + 0.5 + right * length, row + 0.4 + down * length),
            (column + 0.5, row + 0.4),
            arrowprops={
                "arrowstyle": "-|>",
                "color": ink_on(values[state], norm, SEQUENTIAL),
                "lw": 1.3,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _colour_bar(figure: Figure, axes: list[Axes], norm: Normalize, label: str) -> None:
    ticks = LogLocator(subs=(1.0, 2.0, 5.0)) if isinstance(norm, LogNorm) else MaxNLocator(6, steps=[1, 2, 5, 10])
    bar = figure.colorbar(ScalarMappable(norm, SEQUENTIAL), ax=axes, shrink=0.9, pad=0.02, aspect=18, ticks=ticks)
    bar.set_label(label)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    bar.outline.set_visible(False)
    assert bar.solids is not None
    bar.solids.set_edgecolor("face")  # without gaps between the colours
