"""Figures for report pages: groups of panels of equal width, side by side or under each other.

Every panel is a separate small matplotlib figure with fixed margins, drawn once as SVG and once as pixels. The page
shows three, two or one of them in a row, depending on the width of the screen; image files have them on one sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from replaylab.plotting import palette, svg
from replaylab.plotting.palette import LineStyle
from replaylab.plotting.readout import Readout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL, MEDIUM, WIDE = 242, 372, 760
"""Widths of panels, in CSS pixels: three, two and one in a row."""

GAP = 16
"""Gap between panels, in CSS pixels."""

Key = tuple[str, LineStyle]
"""An entry of a legend: its text and style."""


@dataclass(frozen=True)
class Panel:
    """One panel: its title, for screen readers, and its figure, with 1/72 inch for each CSS pixel."""

    title: str
    figure: Figure
    readout: Readout | None = None
    """The numbers behind its curves, if it has curves."""

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height in CSS pixels."""
        return svg.size_of(self.figure)

    @cached_property
    def body(self) -> str:
        """Content of its SVG element, with the colours of a light page."""
        return svg.body(self.figure)


@dataclass(frozen=True)
class PanelGroup:
    """Panels under one heading, for example those of an environment."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Drawing:
    """A complete figure: groups of panels, a legend and a text on the axes."""

    groups: Sequence[PanelGroup]
    legend: Sequence[Key] = ()
    axes: str = ""
    """Description of the axes of all panels, if the panels have no labels."""

    @property
    def width(self) -> int:
        """Width of a panel, in CSS pixels."""
        return self.groups[0].panels[0].size[0]

    @cached_property
    def sheet(self) -> Sheet:
        """The complete figure on one sheet, for image files."""
        return _sheet(self)


@dataclass(frozen=True)
class Sheet:
    """Panels, headings and legend, each with its position (left, top) in CSS pixels."""

    parts: Sequence[tuple[tuple[int, int], Panel]]
    size: tuple[int, int]

    def svg(self) -> str:
        """Return the sheet as a stand-alone SVG document."""
        return svg.document(((place, part.size, part.body) for place, part in self.parts), self.size)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the sheet as an image, shape (height, width, 3)."""
        scale = svg.PIXELS_PER_INCH / 72
        width, height = (round(side * scale) + 2 for side in self.size)
        image = np.full((height, width, 3), 255, dtype=np.uint8)
        for (x, y), part in self.parts:
            drawn = svg.pixels(part.figure)
            left, top = round(x * scale), round(y * scale)
            h, w = min(drawn.shape[0], height - top), min(drawn.shape[1], width - left)
            image[top : top + h, left : left + w] = drawn[:h, :w]
        return image


def _sheet(drawing: Drawing) -> Sheet:
    columns = max(1, (WIDE + GAP) // (drawing.width + GAP))
    columns = min(columns, max(len(group.panels) for group in drawing.groups))
    width = max(columns * (drawing.width + GAP) - GAP, MEDIUM)
    parts: list[tuple[tuple[int, int], Panel]] = []
    top = 0
    if drawing.legend:
        parts.append(((0, top), _legend(drawing.legend, width)))
        top += parts[-1][1].size[1]
    for group in drawing.groups:
        if len(drawing.groups) > 1:
            parts.append(((0, top), _line(group.title, width, 26, palette.INK, 13.5)))
            top += 26
        for start in range(0, len(group.panels), columns):
            row = group.panels[start : start + columns]
            parts.extend(((i * (drawing.width + GAP), top), panel) for i, panel in enumerate(row))
            top += max(panel.size[1] for panel in row) + GAP
    if drawing.axes:
        parts.append(((0, top - GAP // 2), _line(drawing.axes, width, 20, palette.MUTED, 11.5)))
        top += 20
    return Sheet(parts, (width, top - GAP // 2))


def new_panel(
    width: int, height: int, *, left: int = 46, right: int = 18, top: int = 26, bottom: int = 22
) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes inside fixed margins, all in CSS pixels.

    Fixed margins are free; measuring all text to find them takes longer than drawing.
    """
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
    axes.patch.set_visible(False)
    return figure, axes


def write(
    figure: Figure, text: str, x: float, y: float, *, color: str, size: float = 11.5, right: bool = False
) -> None:
    """Write a line into a figure that begins, or with `right` ends, at ``(x, y)``, in CSS pixels from its top left."""
    width, height = figure.get_size_inches() * 72
    figure.text(x / width, 1 - y / height, text, color=color, size=size, ha="right" if right else "left")


def shortened(text: str, room: float, size: float = 11.5) -> str:
    """Return a text that fits into a width in CSS pixels: unchanged, or its beginning, "…" and its end."""
    most = max(int(room / (0.55 * size)), 3)
    if len(text) <= most:
        return text
    end = (most - 1) // 2  # names of factorial cells differ at their ends
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def _line(text: str, width: int, height: int, color: str, size: float) -> Panel:
    figure = Figure(figsize=(width / 72, height / 72))
    write(figure, text, 0, 0.68 * height, color=color, size=size)
    return Panel(text, figure)


def _legend(legend: Sequence[Key], width: int) -> Panel:
    longest = max(len(name) for name, _ in legend)
    columns = max(1, min(len(legend), width // round(48 + 6.6 * longest)))
    rows = -(-len(legend) // columns)
    height = 20 * rows + 6
    figure = Figure(figsize=(width / 72, height / 72))
    for i, (name, style) in enumerate(legend):
        row, column = divmod(i, columns)
        x, y = column * width / columns, 20 * row + 14
        level = 1 - (y - 4) / height
        ends = [x / width, (x + 26) / width]
        figure.add_artist(Line2D(ends, [level, level], color=style.light, linestyle=style.dashes, linewidth=2.2))
        write(figure, name, x + 33, y, color=palette.INK)
    return Panel("legend", figure)
