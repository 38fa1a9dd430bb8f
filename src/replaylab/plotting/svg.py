"""Matplotlib figures as small SVG and as pixels: reproducible, with text as text, fit for a light or a dark page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from replaylab.plotting import palette
from replaylab.plotting.svg_size import lighter, rounded

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
"""The reader's own fonts, instead of the one that comes with matplotlib."""

PIXELS_PER_INCH = 160
"""Of raster images; a figure 760 wide has some 1,690 pixels."""

_NUMBERS = re.compile(r'( (?:x|y|width|height)=")([^"]*)')
_TAG = re.compile(r"<[^>]*>")
_ELEMENTS = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", flags=re.DOTALL)
_SERIES_ID = re.compile(r'<g id="series-(\w+)">')
_DROPPED = re.compile(r" font-family: [^;\"]*;?| transform=\"rotate\(-?0 [^\"]*\"")


def mark(artist: Artist, series: str) -> None:
    """Have all that is drawn of an artist carry a class on the page; an empty one changes nothing."""
    if series:
        artist.set_gid(f"series-{series}")


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this block: one style for all figures, whatever the user's own matplotlib settings are."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "path.simplify": False,
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
        "text.parse_math": False,  # a name is written as it is, with all its $ and _
        "text.usetex": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # an empty box, in pixels only
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


def body(figure: Figure) -> str:
    """Return what stands inside the figure's ``<svg>``: coordinates to a tenth of a pixel, colours as drawn.

    Only what is referred to keeps its id; `with_ids` makes those unique where several bodies stand on one page.
    """
    text = io.StringIO()
    figure.patch.set_visible(False)
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    figure.patch.set_visible(True)
    svg = text.getvalue()
    svg = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    svg = _in_tags(_ELEMENTS.sub("", svg), _cleaned)
    return lighter(re.sub(r">\s+<", "><", svg).strip())


def _in_tags(text: str, change: Callable[[str], str]) -> str:
    """Change every tag; what stands between tags are the user's own names."""
    return _TAG.sub(lambda found: change(found[0]), text)


def _cleaned(tag: str) -> str:
    tag = re.sub(r'<g id="[^"]*">', _group, _DROPPED.sub("", tag))
    return _NUMBERS.sub(lambda found: found[1] + re.sub(r"-?\d+\.\d+", rounded, found[2]), tag)


def _group(found: re.Match[str]) -> str:
    """Return a group without its id; what belongs to a series keeps that as its class."""
    series = _SERIES_ID.fullmatch(found[0])
    return f'<g class="{series[1]}">' if series else "<g>"


def to_svg(figure: Figure) -> str:
    """Return the figure as a stand-alone SVG document on white, the same bytes for the same data."""
    width, height = (round(float(side) * 72) for side in figure.get_size_inches())
    return document([((0, 0), (width, height), body(figure))], (width, height))


def with_ids(inside: str, prefix: str) -> str:
    """Return a body with ``prefix`` before each of its ids, and before what refers to them."""
    return _in_tags(inside, lambda tag: re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", tag))


def on_page(inside: str, size: tuple[int, int], key: str, label: str) -> str:
    """Return a body as an SVG element of an HTML page, whose CSS variables give the colours.

    Args:
        inside: what `body` returned.
        size: width and height, in CSS pixels.
        key: unique on the page; put before every id.
        label: what the figure shows, in words, for screen readers.
    """
    inside = _in_tags(inside, _with_variables)
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    width, height = size
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}">'
        f"{with_ids(inside, f'{key}-')}</svg>"
    )


def _with_variables(tag: str) -> str:
    for variable, (light, _) in palette.variables().items():
        tag = tag.replace(light, f"var({variable})")
    return tag


def document(parts: Iterable[tuple[tuple[int, int], tuple[int, int], str]], size: tuple[int, int]) -> str:
    """Return a stand-alone SVG document, on white.

    Args:
        parts: each with its place (left, top), its size and its body.
        size: width and height of the whole, in pixels.
    """
    width, height = size
    inside = "\n".join(
        f'<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="0 0 {w} {h}">{with_ids(part, f"p{i}-")}</svg>'
        for i, ((x, y), (w, h), part) in enumerate(parts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="{FONTS}" stroke-linejoin="round">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )


def pixels(figure: Figure) -> NDArray[np.uint8]:
    """Return the figure on white as pixels, shape (height, width, 3), uint8, `PIXELS_PER_INCH` dense."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_facecolor("white")
    figure.set_dpi(PIXELS_PER_INCH)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return cast("NDArray[np.uint8]", np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
