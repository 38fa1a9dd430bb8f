"""Colours of strategies: the same in every figure, distinguishable for colour-blind readers, for light and dark pages.

The hues are those of Okabe & Ito (https://jfly.uni-koeln.de/color/), with lighter steps of the same hue on a
dark page. A strategy has the same colour in every report, by its name or kind (`FIXED`): learning without replay is
grey, uniform replay blue, prioritized replay orange, and so on. Other strategies get a colour that depends on their
name. If a figure has more strategies than colours, colours repeat with another line style. The baseline is dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

INK, MUTED, RULE, PAPER = "#1b1f24", "#626a73", "#d9dde2", "#fefefe"
"""Colours of text, secondary text, grid lines and page in figures; on a page they become CSS variables."""

BASELINE = ("#4f5861", "#b9c1ca")
HUES = (
    ("#0072b2", "#58b1ea"),
    ("#d55e00", "#ff8f4a"),
    ("#009e73", "#35c99c"),
    ("#b5589a", "#e597c8"),
    ("#b87a00", "#f0b840"),
    ("#3f93c7", "#9ad4f7"),
)
"""(light, dark) pairs; some are a step darker than the originals so that thin lines stay visible."""

DashPattern = Literal["-", "--", ":", "-."] | tuple[float, tuple[float, ...]]
"""A line style of matplotlib: a sign, or an offset with lengths of dashes and gaps."""

LINES: tuple[DashPattern, ...] = ("-", "--", ":", "-.", (0.0, (8.0, 2.0, 1.5, 2.0, 1.5, 2.0)), (0.0, (2.0, 4.0)))


_PATTERNS = tuple(pattern for pattern in LINES if pattern != "--")
"""Line styles of strategies that share a colour; dashes belong to the baseline."""


@dataclass(frozen=True)
class LineStyle:
    """Line style of one strategy."""

    light: str
    dark: str
    dashes: DashPattern
    variable: str
    """Name of the CSS variable that carries its colour on a page."""

    series: str = ""
    """CSS class of everything drawn of it on a page, so that a click on the legend can hide it; empty: no class."""

    title: str = ""
    """Name in legends and panels."""


COLORS = {"--baseline": BASELINE, **{f"--hue-{i}": hue for i, hue in enumerate(HUES)}}
"""(light, dark) pairs of strategies, by the names of their CSS variables on a page."""

FIXED = {
    "none": "--baseline",
    "online": "--baseline",
    "queue": "--baseline",
    "uniform": "--hue-0",
    "prioritized": "--hue-1",
    "combined": "--hue-2",
    "rank_based": "--hue-3",
    "hindsight": "--hue-3",
    "lap": "--hue-5",
}
"""Colours of strategies by name, or by kind if the name is not here."""

_FREE = tuple(COLORS)[1:] + tuple(COLORS)[:1]
"""Colours in the order in which other strategies look for one; grey last."""

_SIMILAR = {"--hue-4": "--hue-1", "--hue-5": "--hue-0"}
"""Ochre is close to orange, and sky to blue: a strategy gets one beside the other only if no other colour is free."""


def line_styles(
    strategies: Sequence[str],
    baseline: str,
    *,
    kinds: Mapping[str, str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> dict[str, LineStyle]:
    """Return the look of each strategy.

    Args:
        strategies: names.
        baseline: which of them is dashed.
        kinds: types of strategies, such as "uniform", by name.
        titles: what legends call them, by name.
    """
    uses = dict.fromkeys(COLORS, 0)
    chosen: dict[str, str] = {}
    preferred = {s: FIXED.get(s) or FIXED.get((kinds or {}).get(s, ""), "") for s in strategies}
    for strategy in sorted(strategies, key=lambda s: (s not in FIXED, not preferred[s])):  # the known ones first
        preference = preferred[strategy]
        start = _FREE.index(preference) if preference else crc32(strategy.encode()) % len(HUES)
        similar = {variable for variable, other in _SIMILAR.items() if uses[other]} - {preference}
        chosen[strategy] = min([*_FREE[start:], *_FREE[:start]], key=lambda v: (uses[v], v in similar))
        uses[chosen[strategy]] += 1
    patterns = {variable: iter(_PATTERNS * len(strategies)) for variable in COLORS}
    styles = {}
    for i, strategy in enumerate(sorted(strategies, key=lambda s: s != baseline)):
        variable = chosen[strategy]
        dashes = "--" if strategy == baseline else next(patterns[variable])
        title = (titles or {}).get(strategy, strategy)
        styles[strategy] = LineStyle(*COLORS[variable], dashes, variable, f"s{i}", title)
    return styles


def variables() -> dict[str, tuple[str, str]]:
    """Return every CSS variable of the figures with its light and dark value."""
    return {
        "--ink": (INK, "#e8eaed"),
        "--muted": (MUTED, "#a2abb5"),
        "--rule": (RULE, "#363c44"),
        "--paper": (PAPER, "#15181c"),
        **COLORS,
    }
