"""Maps of grid worlds: where the agents went, what they expect there, and what they would do.

Shapes: R replicas (or none), S states, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from replaylab.arguments import instance, mapping, reals, takes, text
from replaylab.errors import ConfigError, ShapeError
from replaylab.plotting import palette
from replaylab.plotting.svg import style
from replaylab.watch.grid import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

WIDTH = 760
"""Of a map, in CSS pixels."""

GRID = instance(Grid, "a Grid")

_DARK = palette.HUES[0][0]
COLOURS = LinearSegmentedColormap.from_list("replaylab", ["#eef5fa", "#8fc3e4", _DARK, "#00304d"])
"""Light to dark in one hue: order is seen by readers of any colour vision, and in print without colour."""


@takes(visits=mapping, grid=GRID, unit=text)
def visit_map(visits: Mapping[str, npt.ArrayLike], grid: Grid, *, unit: str = "visits of a state") -> Figure:
    """Draw how often each state was visited, one panel for each name, all in the same logarithmic colours.

    Args:
        visits: By a panel's title counts (S,), (rows, columns), or one more axis in front, (R, S): then the mean
            over the replicas is shown.
        grid: Which state is where.
        unit: What is counted.

    Raises:
        ShapeError: Counts do not fit the grid.
        ConfigError: There is no panel, or a count is negative.
    """
    if not visits:
        raise ConfigError("`visits` must have at least one panel, but it is empty")
    panels = {name: _mean(grid.cells(name, counts), name, grid) for name, counts in visits.items()}
    if any((counts < 0).any() for counts in panels.values()):
        raise ConfigError("`visits` must not be negative")
    seen = np.concatenate([counts[counts > 0] for counts in panels.values()])
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (1.0, 1.0)
    norm = LogNorm(low, high if high > low else 10 * low)
    with style():
        figure, axes = _panels(len(panels), grid)
        for ax, (name, counts) in zip(axes, panels.items(), strict=True):
            _cells(ax, np.where(counts > 0, counts, np.nan), grid, norm)
            _numbers(ax, counts, grid, norm)
            ax.set_title(name)
        _colour_bar(figure, axes, norm, unit)
        return figure


@takes(values=reals(), grid=GRID, title=text)
def value_map(values: npt.ArrayLike, grid: Grid, *, title: str = "") -> Figure:
    """Draw the value of each state, and the greedy policy as arrows.

    An arrow's length is the share of the replicas that take the action there; actions of equal value share
    their replica evenly, and where a replica has no preference at all it has no arrow.

    Args:
        values: Action values (S, A) or (R, S, A), shown with the policy; or state values (S,) or (rows, columns).
        grid: Which state is where, and where each action goes.
        title: Above the map.

    Raises:
        ShapeError: The values do not fit the grid.
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
        _cells(ax, shown, grid, norm)
        _numbers(ax, shown, grid, norm, low_in_cell=bool(policy.any()))
        _arrows(ax, np.where(chosen[:, None], policy, 0.0), shown, grid, norm)
        ax.set_title(title)
        _colour_bar(figure, [ax], norm, "value of a state")
        return figure


def greedy_shares(q: Floats) -> Floats:
    """Return the share of the replicas that take each action when greedy, float64 (S, A), for q (R, S, A).

    A replica shares itself evenly between actions of equal value, and is left out where all are equal.
    """
    best = q == q.max(2, keepdims=True)
    best &= ~best.all(2, keepdims=True)
    shares: Floats = (best / np.maximum(best.sum(2, keepdims=True), 1)).mean(0)
    return shares


def _mean(counts: Floats, name: str, grid: Grid) -> Floats:
    if counts.ndim > 2:
        raise ShapeError(f"`visits[{name!r}]` must have one axis in front at most, but got {list(counts.shape)}")
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


def _cells(ax: Axes, values: Floats, grid: Grid, norm: Normalize) -> None:
    """Paint the cells; those without a value are left as paper, with a thin border, closed ones are hatched."""
    rows, columns = grid.shape
    ax.pcolormesh(
        np.ma.masked_invalid(values.reshape(grid.shape)),
        cmap=COLOURS,
        norm=norm,
        edgecolors=palette.RULE,
        linewidth=0.8,
    )
    for state in grid.closed:
        if np.isnan(values[state]) and state not in grid.labels:
            row, column = divmod(state, columns)
            box = Rectangle((column, row), 1, 1, facecolor="#f1f2f4", edgecolor="#aab1b9", hatch="///", linewidth=0)
            ax.add_patch(box)
    for state, letter in grid.labels.items():
        row, column = divmod(state, columns)
        ax.text(column + 0.07, row + 0.07, letter, size=11, weight="bold", va="top", color=_ink(values[state], norm))
    ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(True)


def _numbers(ax: Axes, values: Floats, grid: Grid, norm: Normalize, *, low_in_cell: bool = False) -> None:
    """Write each cell's number into it, if the cells are large enough to read it."""
    if max(grid.shape) > 14:
        return
    for state, value in enumerate(values):
        if not np.isnan(value) and not (value == 0.0 and state in grid.closed):
            row, column = divmod(state, grid.shape[1])
            place = row + (0.86 if low_in_cell else 0.52)
            ink = _ink(value, norm)
            ax.text(column + 0.5, place, short(value), size=9.5, ha="center", va="center", color=ink)


def _arrows(ax: Axes, policy: Floats, values: Floats, grid: Grid, norm: Normalize) -> None:
    for state, action in np.argwhere(policy > 0.02):
        row, column = divmod(int(state), grid.shape[1])
        down, right = grid.moves[action]
        length = 0.12 + 0.18 * policy[state, action]
        ax.annotate(
            "",
            (column + 0.5 + right * length, row + 0.4 + down * length),
            (column + 0.5, row + 0.4),
            arrowprops={"arrowstyle": "-|>", "color": _ink(values[state], norm), "lw": 1.3, "shrinkA": 0, "shrinkB": 0},
        )


def _ink(value: float, norm: Normalize) -> str:
    """Return dark ink on light cells, light ink on dark ones."""
    if np.isnan(value) or (isinstance(norm, LogNorm) and value <= 0):
        return palette.INK
    red, green, blue = (((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(COLOURS(norm(value))))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return palette.INK if luminance > 0.22 else "#ffffff"  # where WCAG's contrast with the two is about equal


def short(value: float) -> str:
    """Return a number in at most five characters.

    Example:
        >>> [short(v) for v in (0.0, 0.042, 3.14159, 4.0, 52.3, 1234.0, 35210.0, -12.96, 2.5e6)]
        ['0', '0.04', '3.1', '4', '52', '1.2k', '35k', '−13', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return short(value / size) + letter
    digits = 0 if value == round(value) or abs(value) >= 9.95 else 1 if abs(value) >= 0.995 else 2
    return f"{value:.{digits}f}".replace("-", "−")


def _colour_bar(figure: Figure, axes: list[Axes], norm: Normalize, label: str) -> None:
    ticks = LogLocator(subs=(1.0, 2.0, 5.0)) if isinstance(norm, LogNorm) else MaxNLocator(6, steps=[1, 2, 5, 10])
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=axes, shrink=0.9, pad=0.02, aspect=18, ticks=ticks)
    bar.set_label(label)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    bar.outline.set_visible(False)
