"""Matplotlib figures as SVG: reproducible, with text as text, fit for a light or a dark page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from replaylab import palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this block: one style for all figures, whatever the user's own matplotlib settings are."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "replaylab",
        "font.family": ["DejaVu Sans"],
        "font.size": 12,
        "axes.titlesize": 12.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 7,
        "axes.labelsize": 11.5,
        "axes.labelcolor": palette.MUTED,
        "axes.edgecolor": palette.RULE,
        "axes.linewidth": 1,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "axes.titlecolor": palette.INK,
        "figure.facecolor": "none",
        "grid.color": palette.RULE,
        "grid.linewidth": 0.8,
        "text.color": palette.INK,
        "xtick.color": palette.RULE,
        "ytick.color": palette.RULE,
        "xtick.labelcolor": palette.MUTED,
        "ytick.labelcolor": palette.MUTED,
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "xtick.major.size": 3,
        "ytick.major.size": 0,
        "lines.solid_capstyle": "round",
        "legend.frameon": False,
        "legend.fontsize": 11.5,
        "figure.dpi": 72,
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


def to_svg(figure: Figure) -> str:
    """Return the figure as a stand-alone SVG document on white, the same bytes for the same data."""
    figure.set_facecolor("white")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    figure.set_facecolor("none")
    return _plain_fonts(text.getvalue())


def to_inline(figure: Figure, key: str, label: str) -> str:
    """Return the figure for an HTML page: CSS variables for colours, own ids, a label for screen readers.

    Args:
        figure: the figure; one unit of its size is one CSS pixel.
        key: unique on the page; put before every id.
        label: what the figure shows, in words.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    svg = _plain_fonts(text.getvalue())
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    for variable, (light, _) in palette.variables().items():
        svg = svg.replace(light, f"var({variable})")
    svg = re.sub(r'\bid="', f'id="{key}-', svg)
    svg = re.sub(r"url\(#", f"url(#{key}-", svg)
    svg = re.sub(r'href="#', f'href="#{key}-', svg)
    width, height = (round(float(v)) for v in figure.get_size_inches() * 72)
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(
        r"<svg [^>]*>",
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">',
        svg,
        count=1,
    )


def _plain_fonts(svg: str) -> str:
    """Name the reader's own fonts, not the one that came with matplotlib."""
    return re.sub(r"'DejaVu Sans'(, [^;\"]+)?", _FONTS, svg)
