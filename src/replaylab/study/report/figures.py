"""The figures of a report: each takes numbers and returns a `Drawing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Polygon
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from replaylab.number_format import tick
from replaylab.plotting import palette, svg
from replaylab.plotting.drawing import MEDIUM, SMALL, WIDE, Drawing, Panel, PanelGroup, new_panel, shortened, write
from replaylab.plotting.palette import LineStyle
from replaylab.plotting.readout import ReadoutCurve, readout
from replaylab.statistics import Band, Interval, normalised_score
from replaylab.study.analysis.comparisons import Curve, thinned
from replaylab.study.analysis.seed_values import StrategyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from replaylab.study.spec.spec import Spec

CellCurves = Sequence[tuple[Curve, Band]]
"""The curves of one environment and learner, a strategy each, with their bands."""

MOST_TOGETHER = 7
"""Largest number of strategies in one panel; more strategies get a panel each."""

MOST_POINTS = 60
"""Points drawn of one run's line; its CSV file has all of them."""


References = Mapping[str, tuple[float, str]]
"""A return to compare curves with, and its label, by environment."""


@dataclass(frozen=True)
class CurveStyle:
    """Style of the curves of a figure."""

    lines: Mapping[str, LineStyle]
    """Line styles of strategies, by name."""

    spec: Spec
    unit: str
    """Label of the vertical axis."""

    references: References = field(default_factory=dict)

    @property
    def time(self) -> str:
        """Label of the horizontal axis."""
        return self.spec.budget.counted

    def title_of(self, cell: CellCurves) -> str:
        """Title of the panels of an environment and learner."""
        return self.spec.place_of(*cell[0][0].cell)


def curves(cells: Sequence[CellCurves], style: CurveStyle, *, small: bool = False) -> Drawing:
    """Draw every strategy's curve with its interval: one panel for each environment and learner.

    With more than `MOST_TOGETHER` strategies each has its own panel, with the baseline beside it.
    """
    if max(map(len, cells)) > MOST_TOGETHER:
        return multiples(cells, style, runs=False)
    panels = [_overlay(cell, style, small=small) for cell in cells]
    shown = {curve.strategy for cell in cells for curve, _ in cell}
    axes = f"across: {style.time}; up: {style.unit}" if small else ""
    legend = [(line.title, line) for name, line in style.lines.items() if name in shown]
    return Drawing([PanelGroup("", panels)], legend, axes)


def _last_step(cell: CellCurves) -> int:
    """Return where the longest curve ends: strategies may have their own budgets."""
    return max(int(curve.steps[-1]) for curve, _ in cell)


def _overlay(cell: CellCurves, style: CurveStyle, *, small: bool) -> Panel:
    figure, axes = new_panel(SMALL, 170) if small else new_panel(MEDIUM, 280, left=66, bottom=44)
    lines = [(style.lines[curve.strategy], curve, band) for curve, band in cell]
    read = [_draw(axes, line.title, curve.steps, band, line) for line, curve, band in lines]
    _draw_reference(axes, style.references.get(cell[0][0].environment))
    if not small:
        axes.set_xlabel(style.time, loc="left", labelpad=7)
        axes.set_ylabel(style.unit)
        axes.yaxis.set_label_coords(-46 / (MEDIUM - 84), 0.5)
    title = style.title_of(cell)
    panel = _framed(figure, axes, title, style.time, read, (0, _last_step(cell)), integer=True)
    return replace(panel, title=f"{title}: {'' if small else style.unit} over {style.time}")


def _draw_reference(axes: Axes, reference: tuple[float, str] | None) -> None:
    """Draw a labelled horizontal line; None: nothing."""
    if reference is None:
        return
    value, label = reference
    axes.axhline(value, color=palette.MUTED, lw=1.2, ls=":")
    axes.margins(y=0.09)  # room for the label above a line at the top
    across = axes.get_yaxis_transform()
    axes.text(0.99, value, f"{label} {tick(value)}", transform=across, ha="right", va="bottom", color=palette.MUTED)


def _draw(axes: Axes, name: str, x: NDArray[Any], band: Band, style: LineStyle) -> ReadoutCurve:
    """Draw a curve with its band, and return what is read of it."""
    _fill(axes, x, band.low, band.high, style, 0.14)
    (line,) = axes.plot(x, band.estimate, linestyle=style.dashes, color=style.light, lw=2.0)
    svg.mark(line, style.series)
    return ReadoutCurve(name, style.series, style.variable, x, band)


def _framed(
    figure: Figure,
    axes: Axes,
    title: str,
    across: str,
    read: Sequence[ReadoutCurve],
    limits: tuple[float, float],
    *,
    most: int = 4,
    integer: bool = False,
) -> Panel:
    """Return a panel of curves with its title, the limits of its horizontal axis, and the ticks of both."""
    axes.set_title(shortened(title, (1 - axes.get_position().x0) * 72 * figure.get_figwidth() - 14, 12.5), y=1.0)
    axes.set_xlim(limits)
    _ticks(axes.xaxis, most, integer=integer)
    _ticks(axes.yaxis, 5)
    return Panel(title, figure, readout(axes, across, read))


def _fill(axes: Axes, x: NDArray[Any], low: NDArray[Any], high: NDArray[Any], style: LineStyle, alpha: float) -> None:
    """Fill between two lines; where a point is missing, so is the band."""
    finite = np.isfinite(low) & np.isfinite(high)
    for part in np.split(np.arange(len(x)), np.flatnonzero(np.diff(finite)) + 1):
        if finite[part[0]]:
            sides = [np.stack([x[part], low[part]], axis=1), np.stack([x[part], high[part]], axis=1)[::-1]]
            around = np.concatenate(sides)
            filled = Polygon(around, closed=False, color=style.light, alpha=alpha, linewidth=0)
            svg.mark(filled, style.series)
            axes.add_artist(filled)
            axes.update_datalim(around)  # add_patch would style for curves in the outline, for long


def multiples(cells: Sequence[CellCurves], style: CurveStyle, *, runs: bool) -> Drawing:
    """Draw one small panel for each strategy: its IQM bold, the baseline's dashed, every run thin if asked for.

    All panels of an environment and learner share their scales.
    """
    groups, baseline = [], style.spec.baseline
    for cell in cells:
        base = next((pair for pair in cell if pair[0].strategy == baseline), None)
        line = style.references.get(cell[0][0].environment)
        ends = [c.values if runs else np.stack(b) for c, b in cell]
        axis = (_limits([*ends, np.array([line[0]] if line else [])]), _last_step(cell))
        panels = [_own_panel(pair, None if pair is base else base, style, axis, runs=runs) for pair in cell]
        groups.append(PanelGroup(style.title_of(cell), panels))
    others = any(c.strategy != baseline for cell in cells for c, _ in cell)
    note = f"dashed: {style.lines[baseline].title}" if others else ""
    return Drawing(groups, axes="; ".join(filter(None, (f"across: {style.time}", f"up: {style.unit}", note))))


def _limits(values: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the ends of an axis that holds all values, with a margin; equal values are in its middle."""
    together = np.concatenate([v[np.isfinite(v)] for v in values])
    if not len(together):
        return 0.0, 1.0
    bottom, top = float(together.min()), float(together.max())
    pad = 0.05 * (top - bottom) or max(1.0, 0.05 * abs(top))
    return bottom - pad, top + pad


def _own_panel(
    pair: tuple[Curve, Band],
    base: tuple[Curve, Band] | None,
    style: CurveStyle,
    axis: tuple[tuple[float, float], int],
    *,
    runs: bool,
) -> Panel:
    """Draw a strategy's panel on shared axes: the limits of the vertical one, and the end of the horizontal one."""
    figure, axes = new_panel(SMALL, 170)
    (curve, band), line = pair, style.lines[pair[0].strategy]
    if runs:
        few = thinned(curve, MOST_POINTS)
        axes.plot(few.steps, few.values.T, "-", color=line.light, lw=0.7, alpha=0.4)
    _fill(axes, curve.steps, band.low, band.high, replace(line, series=""), 0.18)  # its panel would be empty without it
    if base is not None:
        axes.plot(base[0].steps, base[1].estimate, "--", color=style.lines[style.spec.baseline].light, lw=1.3)
    axes.plot(curve.steps, band.estimate, "-", color=line.light, lw=2.2)
    _draw_reference(axes, style.references.get(curve.environment))
    axes.set_ylim(axis[0])
    read = [
        ReadoutCurve(style.lines[c.strategy].title, "", style.lines[c.strategy].variable, c.steps, b)
        for c, b in (pair, *([base] if base else []))
    ]
    return _framed(figure, axes, line.title, style.time, read, (0, axis[1]), integer=True)


def over_environments(
    cells: Sequence[CellCurves], style: CurveStyle, scale: Callable[[str], tuple[float, float]]
) -> Drawing:
    """Draw one panel for each strategy and learner: its curve on every environment, in line styles.

    Args:
        cells: environments and learners.
        style: its unit is that of the scaled returns.
        scale: for an environment, the returns that are drawn as 0 and as 1.
    """
    environments = list(dict.fromkeys(cell[0][0].environment for cell in cells))
    patterns = palette.LINES * (len(environments) // len(palette.LINES) + 1)
    patterned = {
        name: LineStyle(palette.MUTED, palette.MUTED, pattern, "--muted", f"e{i}", name)
        for i, (name, pattern) in enumerate(zip(environments, patterns, strict=False))
    }
    several = style.spec.names_learners
    panels = []
    for strategy, line in style.lines.items():
        learners = dict.fromkeys(curve.learner for cell in cells for curve, _ in cell) if several else [""]
        for learner in learners:
            pairs = [(c, b) for cell in cells for c, b in cell if c.strategy == strategy and learner in ("", c.learner)]
            if pairs:
                title = f"{line.title}, {style.spec.learner_title_of(learner)}" if several else line.title
                panels.append(_environments_panel(pairs, title, line, patterned, scale))
    axes = f"across: share of the budget in {style.time}; up: {style.unit}"
    return Drawing([PanelGroup("", panels)], list(patterned.items()), axes)


def _environments_panel(
    pairs: CellCurves,
    title: str,
    line: LineStyle,
    patterned: Mapping[str, LineStyle],
    scale: Callable[[str], tuple[float, float]],
) -> Panel:
    figure, axes = new_panel(SMALL, 170)
    read = []
    for curve, band in pairs:
        pattern = patterned[curve.environment]
        scaled = Band(*(normalised_score(side, *scale(curve.environment)) for side in band))
        drawn_as = replace(line, dashes=pattern.dashes, series=pattern.series)
        read.append(_draw(axes, curve.environment, curve.steps / curve.steps[-1], scaled, drawn_as))
    axes.set_ylim(-0.08, 1.08)
    return _framed(figure, axes, title, "share of the budget", read, (0, 1), most=2)


@dataclass(frozen=True)
class EpisodeTrace(StrategyResult):
    """One traced episode of one run: its seed, when it ended, and of each of its T steps Q and the return, (T,)."""

    seed: int
    at: int
    q: NDArray[np.float64]
    returns: NDArray[np.float64]


def traces(groups: Sequence[tuple[str, Sequence[EpisodeTrace]]], styles: dict[str, LineStyle], time: str) -> Drawing:
    """Draw a panel for each episode: its Q values, and dashed the returns; all of a group on one scale."""
    drawn = []
    for title, episodes in groups:
        limits = _limits([values for episode in episodes for values in (episode.q, episode.returns)])
        drawn.append(
            PanelGroup(title, [_trace_panel(episode, styles[episode.strategy], limits, time) for episode in episodes])
        )
    return Drawing(drawn, axes="across: step of the episode; up: Q value and discounted return")


def _trace_panel(episode: EpisodeTrace, style: LineStyle, limits: tuple[float, float], time: str) -> Panel:
    figure, axes = new_panel(SMALL, 170)
    steps = np.arange(len(episode.q))
    axes.plot(steps, episode.returns, "--", color=palette.BASELINE[0], lw=1.3)
    axes.plot(steps, episode.q, "-", color=style.light, lw=2.2)
    axes.set_ylim(limits)
    read = [
        ReadoutCurve(name, "", variable, steps, Band(values, values, values))
        for name, variable, values in (("Q", style.variable, episode.q), ("return", "--muted", episode.returns))
    ]
    title = f"{style.title}, {time[:-1]} {episode.at:,}"
    return _framed(figure, axes, title, "step of the episode", read, (0, max(len(steps) - 1, 1)), integer=True)


NO_RUNS = np.empty(0)


@dataclass(frozen=True)
class Row:
    """One row of a panel of dots: an estimate with its interval, and one small dot for each run."""

    label: str
    color: str
    middle: Interval
    runs: NDArray[np.float64] = field(default_factory=lambda: NO_RUNS)
    bound: float | None = None
    """Half the width of a grey band around 0: differences that do not matter."""


@dataclass(frozen=True)
class Dots:
    """A panel of dots: rows under each other on one axis."""

    title: str
    rows: Sequence[Row]
    reference: float | None = None
    limits: tuple[float, float] | None = None
    ends: tuple[str, str] | None = None
    """Labels left and right of the reference, such as ("B higher", "A higher")."""


def dots(groups: Sequence[tuple[str, Sequence[Dots]]], unit: str, *, small: bool = False) -> Drawing:
    """Draw panels of dots, as wide as the longest label asks for."""
    longest = max(len(row.label) for _, panels in groups for panel in panels for row in panel.rows)
    room = round(6.4 * longest) + 14
    width = next((w for w in ((SMALL, MEDIUM, WIDE) if small else (MEDIUM, WIDE)) if w - room >= 0.5 * w), WIDE)
    return Drawing(
        [PanelGroup(title, [_dots(panel, width, room) for panel in panels]) for title, panels in groups], axes=unit
    )


def _dots(shown: Dots, width: int, room: int) -> Panel:
    count = len(shown.rows)
    each = (26 if width == SMALL else 36) if count <= 8 else 20
    left = min(room, width // 2)
    lines = _end_lines(shown.ends, width) if shown.ends else []
    bottom = 24 + 18 * len(lines)
    figure, axes = new_panel(width, 26 + bottom + each * count, left=left, bottom=bottom)
    for i, line in enumerate(lines):
        y = 26 + each * count + 38 + 18 * i
        for text, right in line:
            write(figure, text, width - 4 if right else 2, y, color=palette.MUTED, right=right)
    ends = [np.concatenate([row.runs, row.middle]) for row in shown.rows]
    axes.set_xlim(shown.limits or _limits([*ends, np.array([] if shown.reference is None else [shown.reference])]))
    if shown.reference is not None:
        axes.axvline(shown.reference, color=palette.BASELINE[0], lw=1.2, ls="--")
    for i, row in enumerate(shown.rows):
        if row.bound is not None:
            axes.fill_between([-row.bound, row.bound], i - 0.42, i + 0.42, color=palette.RULE, alpha=0.75, lw=0)
    for color in dict.fromkeys(row.color for row in shown.rows):
        _marks(axes, [(i, row) for i, row in enumerate(shown.rows) if row.color == color], color, dense=each == 20)
    write(figure, shortened(shown.title, width, 12.5), 2, 21, color=palette.INK, size=12.5)
    axes.set_yticks(range(count), [shortened(row.label, left) for row in shown.rows])
    axes.tick_params(axis="y", labelcolor=palette.INK, labelsize=11.5)
    axes.set_ylim(count - 0.35, -0.55)  # the first on top
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    _ticks(axes.xaxis, 3)
    return Panel(shown.title, figure)


def _end_lines(ends: tuple[str, str], width: int) -> list[list[tuple[str, bool]]]:
    """Return the lines below an axis that name its ends, each text with whether it stands at the right."""
    left, right = f"← {ends[0]}", f"{ends[1]} →"
    if 6.4 * (len(left) + len(right) + 3) <= width:
        return [[(left, False), (right, True)]]
    return [[(shortened(left, width), False)], [(shortened(right, width), True)]]


def _marks(axes: Axes, rows: Sequence[tuple[int, Row]], color: str, *, dense: bool) -> None:
    """Draw the rows of one colour, their intervals as far as the axes go."""
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
    axes.plot(x, y, "o", color=color, markersize=size, alpha=alpha, zorder=3)


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
    for title, bands in panels:
        figure, axes = new_panel(MEDIUM, 280, left=66, bottom=44) if len(panels) == 1 else new_panel(SMALL, 170)
        read = [_draw(axes, styles[strategy].title, taus, band, styles[strategy]) for strategy, band in bands]
        axes.set_ylim(-0.03, 1.03)
        drawn.append(_framed(figure, axes, title, "score", read, (float(taus[0]), float(taus[-1]))))
    shown = dict.fromkeys(strategy for _, bands in panels for strategy, _ in bands)
    return Drawing(
        [PanelGroup("", drawn)],
        [(styles[s].title, styles[s]) for s in styles if s in shown],
        "across: score; up: share of runs above it",
    )


def _ticks(axis: Axis, most: int, *, integer: bool = False) -> None:
    """Put ticks at round numbers."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=integer))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
