"""Saving of figures as SVG and PNG files."""

from pathlib import Path

from matplotlib.figure import Figure

from replaylab.arguments import checked, place
from replaylab.errors import ConfigError
from replaylab.plotting.svg import style, to_svg


def save(figure: Figure, *paths: str | Path) -> None:
    """Write a figure to each path, in the format of its suffix, .svg or .png.

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
                path.write_text(to_svg(figure), encoding="utf-8")
            else:
                figure.savefig(path, dpi=144, facecolor="white")
