"""The numbers of the curves of panels, which a page shows when the reader points at a curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DIGITS = 5
"""Significant digits on the page, relative to the span of the axis; the CSV file has all digits."""

_MOST_DIGITS = 12


@dataclass(frozen=True)
class ReadoutCurve:
    """A curve with its interval: its name, its CSS class, and its numbers."""

    name: str
    series: str
    variable: str
    """Name of the CSS variable of its colour."""

    x: NDArray[Any]
    """Shape (T,)."""

    band: Sequence[NDArray[np.float64]]
    """Estimate, low and high end, each of shape (T,)."""


@dataclass(frozen=True)
class Readout:
    """The box of a panel's axes, in CSS pixels from the panel's top left, their limits, and the curves."""

    box: tuple[float, float, float, float]
    """Left, top, right, bottom."""

    limits: tuple[float, float, float, float]
    """Axis values at the edges: left, right, bottom, top."""

    across: str
    """Name of the horizontal axis."""

    curves: Sequence[ReadoutCurve]


def readout(axes: Axes, across: str, curves: Sequence[ReadoutCurve]) -> Readout:
    """Return the readout of a panel whose limits are set."""
    box = axes.get_position()
    width, height = axes.figure.get_size_inches() * 72  # type: ignore[union-attr]
    place = (box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height)
    return Readout(place, (*axes.get_xlim(), *axes.get_ylim()), across, curves)


def to_json(panels: Sequence[Readout | None]) -> str:
    """Return the readouts of a figure's panels as JSON that can be embedded in a page's script element.

    ``x`` holds each horizontal grid once. Each of ``panels`` is null or has ``box``, ``limits``, ``across`` and
    ``curves``, each ``[name, series, variable, index of its x, estimates, lows, highs]``.
    """
    grids: dict[bytes, tuple[int, list[Any]]] = {}
    texts = []
    for panel in panels:
        if panel is None:
            texts.append("null")
            continue
        curves, digits = [], _digits(*panel.limits[2:])
        for curve in panel.curves:
            number, _ = grids.setdefault(curve.x.tobytes(), (len(grids), curve.x.tolist()))
            sides = ",".join(_numbers(side.tolist(), digits) for side in curve.band)
            name, series, variable = map(_text, (curve.name, curve.series, curve.variable))
            curves.append(f"[{name},{series},{variable},{number},{sides}]")
        limits = _numbers(panel.limits, _MOST_DIGITS)
        places = f'"box":{_numbers(panel.box)},"limits":{limits},"across":{_text(panel.across)}'
        texts.append(f'{{{places},"curves":[{",".join(curves)}]}}')
    grids_text = ",".join(_numbers(values, _MOST_DIGITS) for _, values in grids.values())
    return f'{{"x":[{grids_text}],"panels":[{",".join(texts)}]}}'


def _numbers(values: Sequence[float], digits: int = _DIGITS) -> str:
    return f"[{','.join(f'{v:.{digits}g}' if np.isfinite(v) else 'null' for v in values)}]"


def _digits(bottom: float, top: float) -> int:
    """Return how many significant digits tell values on an axis apart."""
    span, largest = abs(top - bottom), max(abs(bottom), abs(top))
    further = np.ceil(np.log10(largest / span)) if 0.0 < span < largest < np.inf else 0.0
    return int(min(_DIGITS + further, _MOST_DIGITS))


def _text(text: str) -> str:
    """Return a string as JSON in which nothing ends a script element or begins a comment."""
    return json.dumps(text).replace("<", "\\u003c")
