"""Colours of strategies: the same in every figure, distinguishable for colour-blind readers, in light and in dark.

The hues are those of Okabe & Ito (https://jfly.uni-koeln.de/color/), with lighter steps of the same hue on a
dark page. The baseline is a neutral grey. Beyond six other strategies hues repeat with another line style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

INK, MUTED, RULE, PAPER = "#1b1f24", "#626a73", "#d9dde2", "#fefefe"
"""Text, secondary text, grid lines, page, as drawn into figures; on a page they become CSS variables."""

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
"""As matplotlib takes it: by sign, or an offset with lengths of dashes and gaps."""

LINES: tuple[DashPattern, ...] = ("-", "--", ":", "-.", (0.0, (8.0, 2.0, 1.5, 2.0, 1.5, 2.0)), (0.0, (2.0, 4.0)))


@dataclass(frozen=True)
class LineStyle:
    """How one strategy is drawn."""

    light: str
    dark: str
    dashes: DashPattern
    variable: str
    """Name of the CSS variable that carries its colour on a page."""

    series: str = ""
    """Class of all that is drawn of it on a page, by which a click on its legend hides it; empty: nothing does."""


def line_styles(strategies: Sequence[str], baseline: str) -> dict[str, LineStyle]:
    """Return the look of each strategy, by the order in the study file."""
    others = [s for s in strategies if s != baseline]
    chosen = {baseline: LineStyle(*BASELINE, "--", "--baseline", "s0")}
    for i, strategy in enumerate(others):
        hue = HUES[i % len(HUES)]
        dashes = LINES[i // len(HUES) % len(LINES)]
        chosen[strategy] = LineStyle(*hue, dashes, f"--hue-{i % len(HUES)}", f"s{i + 1}")
    return chosen


def variables() -> dict[str, tuple[str, str]]:
    """Return every CSS variable of the figures with its light and dark value."""
    return {
        "--ink": (INK, "#e8eaed"),
        "--muted": (MUTED, "#a2abb5"),
        "--rule": (RULE, "#363c44"),
        "--paper": (PAPER, "#15181c"),
        "--baseline": BASELINE,
        **{f"--hue-{i}": hue for i, hue in enumerate(HUES)},
    }
