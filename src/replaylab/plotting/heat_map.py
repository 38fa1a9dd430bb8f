"""Heat maps of grids: painted cells with numbers, letters and hatching, and a colour scale below.

Cells have the same colours on light and dark pages, and so has the text in a painted cell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from replaylab.number_format import compact
from replaylab.plotting import palette

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

SEQUENTIAL = LinearSegmentedColormap.from_list("sequential", ["#eef5fa", "#8fc3e4", "#0a70ad", "#00304d"])
"""Light to dark in one hue: the order is visible with any colour vision, and in print without colour."""

DIVERGING = LinearSegmentedColormap.from_list(
    "diverging", ["#8a3c00", "#d86a14", "#f6c39b", "#f3f3f1", "#a9d0ea", "#1f83bd", "#00496f"]
)
"""Orange below 0, blue above: distinguishable with any colour vision."""

DARK_INK, LIGHT_INK = "#0b0d10", "#ffffff"
"""Text colours on light and on dark cells, independent of the page's colours."""

_HATCH = np.array(
    [
        *([(0, end), (end, 0), (np.nan, np.nan)] for end in (1 / 3, 2 / 3, 1)),
        *([(start, 1), (1, start), (np.nan, np.nan)] for start in (1 / 3, 2 / 3)),
    ]
).reshape(-1, 2)
"""Lines across a cell, from its lower left to its upper right, each followed by a gap."""

_STRIPES = 36
"""Number of stripes in a colour scale."""


def paint_cells(
    axes: Axes,
    values: Floats,
    norm: Normalize,
    colours: Colormap,
    *,
    labels: Mapping[int, str],
    closed: Collection[int],
    size: float = 11.0,
) -> None:
    """Paint cells; those without a value are left blank with a thin border, and hatched if closed.

    Args:
        axes: what to paint on.
        values: shape (rows, columns); NaN has no value.
        norm: maps values to [0, 1], the range of the colours.
        colours: from low to high.
        labels: letters by cell; cells are numbered row by row.
        closed: cells that cannot be entered or left.
        size: of the letters.
    """
    rows, columns = values.shape
    axes.pcolormesh(
        np.ma.masked_invalid(values), cmap=colours, norm=norm, edgecolors=palette.RULE, linewidth=0.8, snap=True
    )
    flat = values.ravel()
    hatched = [divmod(cell, columns) for cell in closed if np.isnan(flat[cell]) and cell not in labels]
    for row, column in hatched:
        axes.plot(*np.add(_HATCH, (column, row)).T, color="#9aa2ab", linewidth=1)
    for cell, letter in labels.items():
        row, column = divmod(cell, columns)
        ink = ink_on(flat[cell], norm, colours)
        axes.text(column + 0.07, row + 0.07, letter, size=size, weight="bold", va="top", color=ink)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)


def write_numbers(
    axes: Axes,
    values: Floats,
    norm: Normalize,
    colours: Colormap,
    *,
    skipped: Collection[int] = (),
    height: float = 0.52,
    size: float = 9.5,
) -> None:
    """Write each cell's number into it.

    Args:
        axes: what `paint_cells` painted on.
        values: shape (rows, columns); NaN is left out.
        norm: as the cells were painted.
        colours: as the cells were painted.
        skipped: cells whose 0 is left out.
        height: of the text in a cell: 0 is its upper edge, 1 its lower one.
        size: of the numbers.
    """
    for cell, value in enumerate(values.ravel()):
        if not np.isnan(value) and not (value == 0.0 and cell in skipped):
            row, column = divmod(cell, values.shape[1])
            ink = ink_on(float(value), norm, colours)
            axes.text(column + 0.5, row + height, compact(value), size=size, ha="center", va="center", color=ink)


def frame_cells(axes: Axes, cells: NDArray[np.intp], values: Floats, norm: Normalize, colours: Colormap) -> None:
    """Draw a frame inside each of the cells, to highlight them."""
    for cell in cells.tolist():
        row, column = divmod(cell, values.shape[1])
        ink = ink_on(float(values.ravel()[cell]), norm, colours)
        axes.add_patch(
            Rectangle((column + 0.06, row + 0.06), 0.88, 0.88, facecolor="none", edgecolor=ink, linewidth=1.3)
        )


def scale_below(
    axes: Axes, norm: Normalize, colours: Colormap, ticks: Sequence[float], text: Callable[[float], str]
) -> None:
    """Draw the colours from low to high as a strip, with numbers below it.

    Args:
        axes: for the strip only.
        norm: of the map.
        colours: of the map.
        ticks: values with a number.
        text: returns the text of a value.
    """
    for i in range(_STRIPES):  # each extends to the right end, so that no gaps are visible between two
        left = i / _STRIPES
        axes.add_patch(Rectangle((left, 0), 1 - left, 1, color=colours((i + 0.5) / _STRIPES), lw=0))
    for value in ticks:
        place = float(norm(value))
        axes.plot([place, place], [-0.25, 0], color=palette.MUTED, lw=0.8, clip_on=False)
        axes.text(place, -0.45, text(value), size=10, ha="center", va="top", color=palette.MUTED)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()


def ink_on(value: float, norm: Normalize, colours: Colormap) -> str:
    """Return the text colour for a cell: dark on light cells, light on dark ones, the page's on blank cells."""
    if np.isnan(value) or (isinstance(norm, LogNorm) and value <= 0):
        return palette.INK
    red, green, blue = (((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colours(norm(value))))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return DARK_INK if luminance > 0.19 else LIGHT_INK  # at 0.19 both have about the same WCAG contrast
