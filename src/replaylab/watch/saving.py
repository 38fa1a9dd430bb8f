"""Saving of figures as SVG and PNG files."""

from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from replaylab.arguments import checked, place
from replaylab.errors import ConfigError
from replaylab.plotting.drawing import Drawing
from replaylab.plotting.svg import style, to_svg

_COLOURS = 256
"""Colours of a drawing's PNG palette, which suffice for text and frames of few colours."""


def save(figure: Figure | Drawing, *paths: str | Path) -> None:
    """Write a figure, or a drawing of several panels, to each path, in the format of its suffix, .svg or .png.

    A PNG has a white background and two pixels per CSS pixel.

    Raises:
        ConfigError: A path has another suffix; no file is written.
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
