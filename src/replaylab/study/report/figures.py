"""The figures of a report: each takes numbers and returns a `Drawing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from replaylab.number_format import tick
from replaylab.plotting import palette, svg
from replaylab.plotting.drawing import MEDIUM, SMALL, WIDE, Drawing, Panel, PanelGroup, new_panel, shortened, write
from replaylab.plotting.palette import LineStyle
from replaylab.plotting.readout import Readout, ReadoutCurve, readout
from replaylab.statistics import Band, Interval, normalised_score
from replaylab.study.analysis.comparisons import Curve, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CellCurves = Sequence[tuple[Curve, Band]]
"""The curves of one environment and learner, a strategy each, with their bands."""

MOST_TOGETHER = 7
"""Strategies whose curves stand in one panel; more of them get a panel each."""

MOST_POINTS = 60
"""Points drawn of one run's line; its CSV file has all of them."""

_NICE = [1, 2, 2.5, 5, 10]
"""Steps between ticks, times a power of ten."""


def title_of(curve: Curve, several_learners: bool) -> str:
    """Return the name of a curve's environment, with its learner's where a study has several."""
    return f"{curve.environment}, {curve.learner}" if several_learners else curve.environment


def curves(
    cells: Sequence[CellCurves],
    baseline: str,
    styles: dict[str, LineStyle],
    unit: str,
    time: str,
    *,
    small: bool = False,
) -> Drawing:
    """Draw every strategy's curve with its interval: one panel for each environment and learner.

    With more than `MOST_TOGETHER` strategies each has a panel of its own, with the baseline beside it.
    """
    if max(map(len, cells)) > MOST_TOGETHER:
        return multiples(cells, baseline, styles, unit, time, runs=False)
    panels = [_overlay(cell, title, styles, "" if small else unit, time, small) for title, cell in _titled(cells)]
    shown = list(dict.fromkeys(curve.strategy for cell in cells for curve, _ in cell))
    axes = f"across: {time}; up: {unit}" if small else ""
    return Drawing([PanelGroup("", panels)], [(name, styles[name]) for name in styles if name in shown], axes)


def _titled(cells: Sequence[CellCurves]) -> list[tuple[str, CellCurves]]:
    several = len({curve.learner for cell in cells for curve, _ in cell}) > 1
    return [(title_of(cell[0][0], several), cell) for cell in cells]


def _last_step(cell: CellCurves) -> int:
    """Return where the longest curve ends: strategies may have budgets of their own."""
    return max(int(curve.steps[-1]) for curve, _ in cell)


def _overlay(cell: CellCurves, title: str, styles: dict[str, LineStyle], unit: str, time: str, small: bool) -> Panel:
    figure, axes = new_panel(SMALL, 170) if small else new_panel(MEDIUM, 280, left=66, bottom=44)
    for curve, band in cell:
        _draw(axes, curve.steps, band, styles[curve.strategy])
    _title(axes, shortened(title, SMALL - 60 if small else MEDIUM - 80, 12.5))
    _time_frame(axes, _last_step(cell))
    if not small:
        write(figure, time, 66, 270, color=palette.MUTED)
        write(figure, unit, 9, 131, color=palette.MUTED, turned=True)
    return Panel(f"{title}: {unit} over {time}", figure, _readout(axes, time, cell, styles))


def _draw(axes: Axes, x: NDArray[Any], band: Band, style: LineStyle) -> None:
    _fill(axes, x, band.low, band.high, style, 0.14)
    (line,) = axes.plot(x, band.estimate, linestyle=style.dashes, color=style.light, lw=2.0)
    svg.mark(line, style.series)


def _readout(axes: Axes, time: str, cell: CellCurves, styles: dict[str, LineStyle]) -> Readout:
    """Return the numbers of a panel of curves over time, whose limits are set."""
    looks = [styles[curve.strategy] for curve, _ in cell]
    return readout(
        axes,
        time,
        [
            ReadoutCurve(curve.strategy, look.series, look.variable, curve.steps, band)
            for (curve, band), look in zip(cell, looks, strict=True)
        ],
    )


def _fill(axes: Axes, x: NDArray[Any], low: NDArray[Any], high: NDArray[Any], style: LineStyle, alpha: float) -> None:
    """Fill between two lines; where a point is missing, so is the band."""
    there = np.isfinite(low) & np.isfinite(high)
    for part in np.split(np.arange(len(x)), np.flatnonzero(np.diff(there)) + 1):
        if there[part[0]]:
            sides = [np.stack([x[part], low[part]], axis=1), np.stack([x[part], high[part]], axis=1)[::-1]]
            around = np.concatenate(sides)
            filled = Polygon(around, color=style.light, alpha=alpha, linewidth=0)
            svg.mark(filled, style.series)
            axes.add_artist(filled)
            axes.update_datalim(around)  # add_patch would style for curves in the outline, for long


def multiples(
    cells: Sequence[CellCurves], baseline: str, styles: dict[str, LineStyle], unit: str, time: str, *, runs: bool
) -> Drawing:
    """Draw one small panel for each strategy: its IQM bold, the baseline's dashed, every run thin if asked for.

    All panels of an environment and learner share their scales.
    """
    groups = []
    for title, cell in _titled(cells):
        reference = next((pair for pair in cell if pair[0].strategy == baseline), None)
        limits = _limits([c.values if runs else np.stack(b) for c, b in cell])
        groups.append(
            PanelGroup(
                title,
                [
                    _own_panel(curve, band, reference, styles, limits, _last_step(cell), time, runs)
                    for curve, band in cell
                ],
            )
        )
    note = f"dashed grey: {baseline}" if any(c.strategy != baseline for cell in cells for c, _ in cell) else ""
    return Drawing(groups, axes="; ".join(filter(None, (f"across: {time}", f"up: {unit}", note))))


def _limits(values: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the ends of an axis that holds all values, with some room; equal values stand in its middle."""
    together = np.concatenate([v[np.isfinite(v)] for v in values])
    if not len(together):
        return 0.0, 1.0
    bottom, top = float(together.min()), float(together.max())
    pad = 0.05 * (top - bottom) or max(1.0, 0.05 * abs(top))
    return bottom - pad, top + pad


def _own_panel(
    curve: Curve,
    band: Band,
    reference: tuple[Curve, Band] | None,
    styles: dict[str, LineStyle],
    limits: tuple[float, float],
    last: int,
    time: str,
    runs: bool,
) -> Panel:
    figure, axes = new_panel(SMALL, 170)
    style = styles[curve.strategy]
    unmarked = replace(style, series="")  # its panel would be empty without it
    if runs:
        few = thinned(curve, MOST_POINTS)
        axes.plot(few.steps, few.values.T, "-", color=style.light, lw=0.7, alpha=0.4)
    _fill(axes, curve.steps, band.low, band.high, unmarked, 0.18)
    if reference is not None and reference[0] is not curve:
        axes.plot(reference[0].steps, reference[1].estimate, "--", color=palette.BASELINE[0], lw=1.3)
    axes.plot(curve.steps, band.estimate, "-", color=style.light, lw=2.2)
    _title(axes, shortened(curve.strategy, SMALL - 60, 12.5))
    axes.set_ylim(limits)
    _time_frame(axes, last)
    shown = [(curve, band), *([reference] if reference is not None and reference[0] is not curve else [])]
    fixed = {name: replace(each, series="") for name, each in styles.items()}
    return Panel(curve.strategy, figure, _readout(axes, time, shown, fixed))


def over_environments(
    cells: Sequence[CellCurves],
    styles: dict[str, LineStyle],
    scale: Callable[[str], tuple[float, float]],
    unit: str,
    time: str,
) -> Drawing:
    """Draw one panel for each strategy and learner: its curve on every environment, in line styles.

    Args:
        cells: environments and learners.
        styles: of the strategies.
        scale: for an environment, the returns that are drawn as 0 and as 1.
        unit: of the vertical axis.
        time: of the horizontal one.
    """
    environments = list(dict.fromkeys(cell[0][0].environment for cell in cells))
    patterns = palette.LINES * (len(environments) // len(palette.LINES) + 1)
    lines = {
        name: LineStyle(palette.MUTED, palette.MUTED, pattern, "--muted", f"e{i}")
        for i, (name, pattern) in enumerate(zip(environments, patterns, strict=False))
    }
    several = len({curve.learner for cell in cells for curve, _ in cell}) > 1
    panels = []
    for strategy in styles:
        for learner in dict.fromkeys(curve.learner for cell in cells for curve, _ in cell):
            own = [(c, b) for cell in cells for c, b in cell if (c.strategy, c.learner) == (strategy, learner)]
            if own:
                title = f"{strategy}, {learner}" if several else strategy
                panels.append(_environments_panel(own, title, styles[strategy], lines, scale))
    return Drawing([PanelGroup("", panels)], list(lines.items()), f"across: share of the budget in {time}; up: {unit}")


def _environments_panel(
    own: CellCurves,
    title: str,
    style: LineStyle,
    lines: dict[str, LineStyle],
    scale: Callable[[str], tuple[float, float]],
) -> Panel:
    figure, axes = new_panel(SMALL, 170)
    read = []
    for curve, band in own:
        line = lines[curve.environment]
        look = replace(style, dashes=line.dashes, series=line.series)
        low, high = scale(curve.environment)
        shares = curve.steps / curve.steps[-1]
        scaled = Band(*(normalised_score(side, low, high) for side in band))
        _draw(axes, shares, scaled, look)
        read.append(ReadoutCurve(curve.environment, look.series, look.variable, shares, scaled))
    _title(axes, shortened(title, SMALL - 60, 12.5))
    axes.set_ylim(-0.08, 1.08)
    _share_frame(axes)
    return Panel(title, figure, readout(axes, "share of the budget", read))


@dataclass(frozen=True)
class Row:
    """One row of a panel of dots: an estimate with its interval, and one small dot for each run."""

    label: str
    color: str
    middle: Interval
    runs: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    bound: float | None = None
    """Half the width of a grey band around 0: differences that do not matter."""


@dataclass(frozen=True)
class Dots:
    """A panel of dots: rows under each other on one axis."""

    title: str
    rows: Sequence[Row]
    reference: float | None = None
    limits: tuple[float, float] | None = None


def dots(groups: Sequence[tuple[str, Sequence[Dots]]], unit: str, *, small: bool = False) -> Drawing:
    """Draw panels of dots, as wide as the longest label asks for."""
    longest = max(len(row.label) for _, panels in groups for one in panels for row in one.rows)
    room = round(6.4 * longest) + 14
    width = next((w for w in ((SMALL, MEDIUM, WIDE) if small else (MEDIUM, WIDE)) if w - room >= 0.5 * w), WIDE)
    return Drawing(
        [PanelGroup(title, [_dots(one, width, room) for one in panels]) for title, panels in groups], axes=unit
    )


def _dots(shown: Dots, width: int, room: int) -> Panel:
    count = len(shown.rows)
    each = (26 if width == SMALL else 36) if count <= 8 else 20
    figure, axes = new_panel(width, 50 + each * count, left=min(room, width // 2), bottom=24)
    ends = [np.concatenate([row.runs, row.middle]) for row in shown.rows]
    axes.set_xlim(shown.limits or _limits([*ends, np.array([] if shown.reference is None else [shown.reference])]))
    if shown.reference is not None:
        axes.axvline(shown.reference, color=palette.BASELINE[0], lw=1.2, ls="--")
    for i, row in enumerate(shown.rows):
        if row.bound is not None:
            axes.fill_between([-row.bound, row.bound], i - 0.42, i + 0.42, color=palette.RULE, alpha=0.75, lw=0)
    for color in dict.fromkeys(row.color for row in shown.rows):
        _marks(axes, [(i, row) for i, row in enumerate(shown.rows) if row.color == color], color, dense=each == 20)
    _title(axes, shortened(shown.title, width, 12.5), left=-min(room, width // 2) + 2, width=width)
    _rows_frame(axes, [shortened(row.label, min(room, width // 2)) for row in shown.rows])
    return Panel(shown.title, figure)


def _marks(axes: Axes, rows: Sequence[tuple[int, Row]], color: str, *, dense: bool) -> None:
    """Draw the rows of one colour, their intervals as far as the axes go.

    Dots are round ends of lines of no length: as small as a file can have them.
    """
    lanes = 0.26 + 0.07 * (np.arange(5) if dense else np.arange(5) * 0.8)
    heights = [i + lanes[np.arange(len(row.runs)) % 5] for i, row in rows]
    runs = np.concatenate([row.runs for _, row in rows])
    if len(runs):
        _points(axes, runs, np.concatenate(heights), color, 3.6, 0.5)
    lines = np.array([[*np.clip(row.middle[1:], *axes.get_xlim()), np.nan] for _, row in rows])
    levels = np.array([[i, i, np.nan] for i, _ in rows], dtype=np.float64)
    axes.plot(lines.ravel(), levels.ravel(), "-", color=color, lw=2.4)
    middles, at = np.array([row.middle.estimate for _, row in rows]), levels[:, 0]
    _points(axes, middles, at, palette.PAPER, 9.5, 1.0)
    _points(axes, middles, at, color, 7, 1.0)


def _points(axes: Axes, x: NDArray[Any], y: NDArray[Any], color: str, size: float, alpha: float) -> None:
    there = np.isfinite(x)
    if not there.any():
        return
    x, y = x[there], y[there]
    tiny = 1e-7 * max(float(np.ptp(x)), float(np.abs(x).max()), 1e-6)
    ends = np.stack([x, x + tiny, np.full(len(x), np.nan)], axis=1).ravel()
    axes.plot(ends, np.repeat(y, 3), "-", color=color, lw=size, alpha=alpha, snap=False, zorder=3)


def profiles(
    panels: Sequence[tuple[str, Sequence[tuple[str, Band]]]], taus: Any, styles: dict[str, LineStyle]
) -> Drawing:
    """Draw the share of runs above each score: one line a strategy, or with many strategies a panel each.

    Args:
        panels: for each title, strategies with their profiles.
        taus: scores, shape (T,).
        styles: of the strategies.
    """
    drawn = []
    for title, found in panels:
        figure, axes = new_panel(MEDIUM, 280, left=66, bottom=44) if len(panels) == 1 else new_panel(SMALL, 170)
        for strategy, band in found:
            _draw(axes, taus, band, styles[strategy])
        _title(axes, shortened(title, SMALL - 60, 12.5))
        axes.set_xlim(float(taus[0]), float(taus[-1]))
        axes.set_ylim(-0.03, 1.03)
        _frame(axes, _ticks(axes.get_xlim(), 4), _ticks(axes.get_ylim(), 5))
        read = [ReadoutCurve(s, styles[s].series, styles[s].variable, taus, band) for s, band in found]
        drawn.append(Panel(title, figure, readout(axes, "score", read)))
    shown = dict.fromkeys(strategy for _, found in panels for strategy, _ in found)
    return Drawing(
        [PanelGroup("", drawn)],
        [(s, styles[s]) for s in styles if s in shown],
        "across: score; up: share of runs above it",
    )


def _title(axes: Axes, text: str, left: float = 0, width: int = 0) -> None:
    """Write a title above the axes; a given place saves matplotlib looking for one."""
    if width:
        box = axes.get_position()
        axes.text(left / (box.width * width), 1, text, transform=axes.transAxes, va="bottom", size=12.5, clip_on=False)
    else:
        axes.set_title(text, y=1.0)


Ticks = Sequence[tuple[float, str]]
"""Places along an axis, and what is written there."""


def _frame(axes: Axes, across: Ticks, up: Ticks, *, rows: bool = False) -> None:
    """Draw the axes, the grid and the labels of ticks: matplotlib's own take most of a small panel's time.

    Args:
        axes: whose limits are set already.
        across: ticks of the horizontal axis.
        up: ticks of the vertical axis.
        rows: whether the vertical axis has labelled rows; the grid is vertical then.
    """
    axes.set_axis_off()
    figure, box = cast("Figure", axes.figure), axes.get_position()
    width, height = figure.get_size_inches() * 72
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    xs = [box.x0 + (x - left) / (right - left) * box.width for x, _ in across]
    ys = [box.y0 + (y - bottom) / (top - bottom) * box.height for y, _ in up]
    lines = [((box.x0, box.y0), (box.x1, box.y0)), *([] if rows else [((box.x0, box.y0), (box.x0, box.y1))])]
    lines += [((x, box.y0), (x, box.y1)) for x in xs] if rows else [((box.x0, y), (box.x1, y)) for y in ys]
    ends = np.array([(*line, (np.nan, np.nan)) for line in lines]).reshape(-1, 2).T
    figure.add_artist(Line2D(*ends, color=palette.RULE, linewidth=0.8, zorder=-1))
    for x, (_, text) in zip(xs, across, strict=True):
        figure.text(x, box.y0 - 15 / height, text, ha="center", color=palette.MUTED, size=11)
    for y, (_, text) in zip(ys, up, strict=True):
        color, size = (palette.INK, 11.5) if rows else (palette.MUTED, 11)
        figure.text(box.x0 - 6 / width, y - 4 / height, text, ha="right", color=color, size=size)


def _ticks(limits: tuple[float, float], most: int, *, integer: bool = False) -> Ticks:
    """Return ticks at round numbers within limits."""
    found = MaxNLocator(most, steps=_NICE, integer=integer).tick_values(*limits)
    slack = 1e-9 * (limits[1] - limits[0])
    return [(float(v), tick(float(v))) for v in found if limits[0] - slack <= v <= limits[1] + slack]


def _time_frame(axes: Axes, last: int) -> None:
    """Frame a panel of curves over time."""
    axes.set_xlim(0, last)
    _frame(axes, _ticks((0, last), 4, integer=True), _ticks(axes.get_ylim(), 5))


def _share_frame(axes: Axes) -> None:
    """Frame a panel over a share of the budget."""
    axes.set_xlim(0, 1)
    _frame(axes, [(0, "0"), (0.5, "0.5"), (1, "1")], _ticks(axes.get_ylim(), 5))


def _rows_frame(axes: Axes, labels: Sequence[str]) -> None:
    """Frame a panel of labelled rows, the first on top."""
    axes.set_ylim(len(labels) - 0.35, -0.55)
    _frame(axes, _ticks(axes.get_xlim(), 3), [(i, label) for i, label in enumerate(labels)], rows=True)
