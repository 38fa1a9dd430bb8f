"""Figures as files."""

from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from replaylab.arguments import checked, place
from replaylab.errors import ConfigError
from replaylab.plotting.drawing import Drawing
from replaylab.plotting.svg import style, to_svg

_COLOURS = 256
"""Of a drawing as PNG: what is drawn are frames of few colours, and text."""


def save(figure: Figure | Drawing, *paths: str | Path) -> None:
    """Write a figure, or a drawing of several panels, to each path, by its suffix as ``.svg`` or ``.png``.

    A PNG is on white, with two pixels a unit.

    Raises:
        ConfigError: A path has another suffix; nothing is written.
    """
    files = [Path(checked("paths", path, place("a file"))) for path in paths]
    for path in files:
        if path.suffix not in (".svg", ".png"):
            raise ConfigError(f"`path` of a figure must end in .svg or .png, but got {str(path)!r}")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        with style():
            if path.suffix == ".svg":
                text = figure.sheet.svg() if isinstance(figure, Drawing) else to_svg(figure)
                path.write_text(text, encoding="utf-8")
            elif isinstance(figure, Drawing):
                Image.fromarray(figure.sheet.pixels()).quantize(_COLOURS).save(path, optimize=True)
            else:
                figure.savefig(path, dpi=144, facecolor="white")
