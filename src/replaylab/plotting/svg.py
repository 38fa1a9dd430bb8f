"""Figures as SVG and as pixels: reproducible, with text as text, for light and dark pages."""

from __future__ import annotations

import base64
import io
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray
from PIL import Image

from replaylab.arguments import checked, place
from replaylab.errors import ConfigError
from replaylab.plotting import palette

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure


FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
"""Fonts of the reader's system, instead of the one bundled with matplotlib."""

PIXELS_PER_INCH = 160
"""Resolution of raster images; a figure 760 CSS pixels wide has about 1,690 pixels."""

_ANCHORS = {"left": "start", "center": "middle", "right": "end"}
"""SVG's names of a text's horizontal alignment, by matplotlib's."""


def mark(artist: Artist, series: str) -> None:
    """Give everything drawn of an artist a CSS class on the page; "" for none."""
    if series:
        artist.set_gid(series)


@contextmanager
def style() -> Iterator[None]:
    """Context manager for drawing in the style of all figures, independent of the user's matplotlib settings."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "path.simplify": False,
        "path.simplify_threshold": 1.0,
        "font.family": ["DejaVu Sans"],
        "font.size": 12,
        "axes.titlesize": 12.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 7,
        "axes.labelsize": 11.5,
        "axes.labelcolor": palette.MUTED,
        "axes.edgecolor": palette.RULE,
        "axes.linewidth": 0.8,
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
        "xtick.labelcolor": palette.MUTED,
        "ytick.labelcolor": palette.MUTED,
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.major.pad": 5,
        "ytick.major.pad": 6,
        "lines.solid_capstyle": "round",
        "lines.markeredgewidth": 0,
        "legend.frameon": False,
        "legend.fontsize": 11.5,
        "figure.dpi": 72,
        "text.parse_math": False,  # names may contain $ and _
        "text.usetex": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # an empty box, in pixels only
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


def body(figure: Figure) -> str:
    """Return the content of the figure's ``<svg>`` element, with the colours as drawn and without ids."""
    figure.set_dpi(72)
    width, height = size_of(figure)
    renderer = _SvgRenderer(width, height)
    figure.patch.set_visible(False)
    figure.draw(renderer)
    figure.patch.set_visible(True)
    return renderer.body()


def size_of(figure: Figure) -> tuple[int, int]:
    """Return the width and height of a figure, in CSS pixels."""
    width, height = (round(float(side) * 72) for side in figure.get_size_inches())
    return width, height


class _SvgRenderer(RendererBase):
    """A matplotlib renderer that writes compact SVG.

    Lines are relative steps in tenths of a pixel, successive shapes of one style share a group, and all text is above
    all shapes. Hatches, gradients and clip paths other than rectangles are not drawn.
    """

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height
        self._shapes: list[tuple[str, str]] = []
        self._texts: list[tuple[str, str]] = []
        self._series: list[str] = []

    def body(self) -> str:
        """Return the SVG of everything that was drawn."""
        return f'<g transform="scale(.1)">{_grouped(self._shapes)}</g>{_grouped(self._texts)}'

    def get_canvas_width_height(self) -> tuple[float, float]:
        """Return the size of the figure."""
        return self.width, self.height

    def open_group(self, s: str, gid: str | None = None) -> None:  # noqa: ARG002
        """Begin an artist, which may belong to a series."""
        self._series.append(gid or "")

    def close_group(self, s: str) -> None:  # noqa: ARG002
        """End an artist."""
        self._series.pop()

    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:
        """Draw lines or filled shapes; curves as short lines."""
        look = self._class() + _fill(gc, rgbFace) + _stroke(gc, gc.get_rgb(), gc.get_linewidth())
        box, placed, clip = gc.get_clip_rectangle(), transform.transform_path(path), None
        tenths = self._in_tenths()
        if box is not None and rgbFace is not None:
            placed = placed.clip_to_bbox(box)
        elif box is not None:
            inside = tenths.transform_bbox(box)
            clip = (inside.xmin, inside.ymin, inside.xmax, inside.ymax)
        closed = placed.codes is not None and Path.CLOSEPOLY in placed.codes
        lines = placed.cleaned(tenths, remove_nans=True, clip=clip, simplify=not closed, curves=False)
        if steps := _steps(lines):
            self._shapes.append((look, f'<path d="{steps}"/>'))

    def draw_markers(
        self, gc: Any, marker_path: Any, marker_trans: Any, path: Any, trans: Any, rgbFace: Any = None
    ) -> None:
        """Draw round markers as round caps of lines of zero length, the shortest form in SVG."""
        if marker_path.codes is None or Path.CURVE4 not in marker_path.codes:
            super().draw_markers(gc, marker_path, marker_trans, path, trans, rgbFace)
            return
        points = (trans + self._in_tenths()).transform(path.vertices)
        ends = points[np.isfinite(points).all(axis=1)].repeat(2, axis=0)
        gc.set_capstyle("round")
        look = self._class() + ' fill="none"' + _stroke(gc, rgbFace, marker_path.get_extents(marker_trans).width)
        steps = _steps(Path(ends, np.tile([Path.MOVETO, Path.LINETO], len(ends) // 2)))
        self._shapes.append((look, f'<path d="{steps}"/>'))

    def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:  # noqa: ARG002
        """Draw an image without interpolation."""
        content = io.BytesIO()
        Image.fromarray(im).save(content, format="png")
        data = base64.b64encode(content.getvalue()).decode()
        height, width = im.shape[:2]
        corners = transform.transform([(0, 0), (width, height)]) if transform else [(0, 0), (width, height)]
        (left, low), (right, high) = self._in_tenths().transform(np.add(corners, (x, y)))
        place = f'x="{left:.0f}" y="{min(low, high):.0f}" width="{right - left:.0f}" height="{abs(low - high):.0f}"'
        self._shapes.append(
            (
                ' style="image-rendering:pixelated"',
                f'<image {place} preserveAspectRatio="none" xlink:href="data:image/png;base64,{data}"/>',
            )
        )

    def option_scale_image(self) -> bool:
        """Return True: images are written in their original resolution."""
        return True

    def draw_text(
        self,
        gc: Any,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,  # noqa: ARG002
        mtext: Any = None,
    ) -> None:
        """Draw a line of text, aligned by the viewer, whose fonts differ from those that matplotlib measures."""
        anchor = "start"
        if mtext is not None and (angle == 0 or mtext.get_rotation_mode() == "anchor"):
            anchor = _ANCHORS[mtext.get_horizontalalignment()]
            at_x, at_y = mtext.get_transform().transform(mtext.get_unitless_position())
            x, y = (at_x, y) if angle == 0 else (x, self.height - at_y)
        weight = ' font-weight="700"' if prop.get_weight() == "bold" else ""
        place = f'x="{x:.1f}" y="{y:.1f}"'.replace('.0"', '"')
        turned = f' transform="rotate({-angle:g} {x:.1f} {y:.1f})"' if angle else ""
        look = (
            f' fill="{to_hex(gc.get_rgb())}" font-size="{prop.get_size_in_points():g}" text-anchor="{anchor}"{weight}'
        )
        self._texts.append((look, f"<text {place}{turned}>{escape(s)}</text>"))

    def _class(self) -> str:
        series = next(filter(None, reversed(self._series)), "")
        return f' class="{series}"' if series else ""

    def _in_tenths(self) -> Affine2D:
        """Return the transform from matplotlib's pixels, from the bottom, to tenths of a CSS pixel, from the top."""
        return Affine2D().scale(10, -10).translate(0, 10 * self.height)


def _grouped(drawn: Sequence[tuple[str, str]]) -> str:
    """Return SVG of (attributes, element) pairs; successive ones with the same attributes share a group."""
    groups = ((look, "".join(map(itemgetter(1), elements))) for look, elements in groupby(drawn, key=itemgetter(0)))
    return "".join(f"<g{look}>{inside}</g>" for look, inside in groups)


def _fill(gc: Any, color: Any) -> str:
    if color is None or _alpha(gc, color) == 0:
        return ' fill="none"'
    return f' fill="{to_hex(color)}"{_see_through("fill", _alpha(gc, color))}'


def _stroke(gc: Any, color: Any, width: float) -> str:
    if not width or _alpha(gc, color) == 0:
        return ""
    offset, dashes = gc.get_dashes()
    parts = [f' stroke="{to_hex(color)}" stroke-width="{10 * width:g}"', _see_through("stroke", _alpha(gc, color))]
    if gc.get_capstyle() == "round":
        parts.append(' stroke-linecap="round"')
    if dashes is not None:
        parts.append(f' stroke-dasharray="{" ".join(f"{10 * length:g}" for length in dashes)}"')
    if dashes is not None and offset:
        parts.append(f' stroke-dashoffset="{10 * offset:g}"')
    return "".join(parts)


def _alpha(gc: Any, color: Any) -> float:
    return float(gc.get_alpha() if gc.get_forced_alpha() or len(color) < 4 else color[3])


def _see_through(attribute: str, alpha: float) -> str:
    return "" if alpha == 1 else f' {attribute}-opacity="{alpha:g}"'


def _steps(lines: Path) -> str:
    """Return straight lines as path data: steps from the previous point, as whole numbers."""
    parts: list[str] = []
    point = start = (0, 0)
    points = np.rint(np.nan_to_num(lines.vertices)).astype(int).tolist()
    for (x, y), code in zip(points, cast("NDArray[np.uint8]", lines.codes).tolist(), strict=True):
        if code == Path.STOP:
            break
        across, down = x - point[0], y - point[1]
        if code == Path.CLOSEPOLY:
            parts.append("z")
            point = start
            continue
        if code == Path.MOVETO:
            parts.append(f"m{across} {down}" if parts else f"M{x} {y}")
            start = (x, y)
        elif across and down:
            parts.append(f"l{across} {down}")
        elif down:
            parts.append(f"v{down}")
        elif across or parts[-1][0] in "Mm":  # a single point is visible as the round cap of its line
            parts.append(f"h{across}")
        point = (x, y)
    return "".join(parts).replace(" -", "-")


def to_svg(figure: Figure) -> str:
    """Return the figure as a stand-alone SVG document on white, the same bytes for the same data."""
    size = size_of(figure)
    return document([((0, 0), size, body(figure))], size)


def on_page(inside: str, size: tuple[int, int], label: str) -> str:
    """Return a body as an SVG element of an HTML page, whose CSS variables give the colours.

    Args:
        inside: what `body` returned.
        size: width and height, in CSS pixels.
        label: what the figure shows, in words, for screen readers.
    """
    for variable, (light, _) in palette.variables().items():
        inside = inside.replace(f'"{light}"', f'"var({variable})"')  # no text holds a quotation mark: it is escaped
    width, height = size
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(label)}">{inside}</svg>'


def document(parts: Iterable[tuple[tuple[int, int], tuple[int, int], str]], size: tuple[int, int]) -> str:
    """Return a stand-alone SVG document, on white.

    Args:
        parts: each with its position (left, top), its size and its body.
        size: width and height of the document, in pixels.

    """
    width, height = size
    inside = "\n".join(
        f'<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="0 0 {w} {h}">{part}</svg>'
        for (x, y), (w, h), part in parts
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


def save(figure: Figure, *paths: str | pathlib.Path) -> None:
    """Write a figure to each path, in the format of its suffix, .svg or .png.

    A PNG has a white background and two pixels per CSS pixel.

    Raises:
        ConfigError: A path has another suffix; no file is written.
    """
    files = [pathlib.Path(checked("paths", path, place("a file"))) for path in paths]
    for path in files:
        if path.suffix not in (".svg", ".png"):
            raise ConfigError(f"`path` of a figure must end in .svg or .png, but got {str(path)!r}")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        with style():
            if path.suffix == ".svg":
                path.write_text(to_svg(figure), encoding="utf-8")
            else:
                figure.savefig(path, dpi=144, facecolor="white")
