"""What killed writers left in a study's folder, and damaged files, moved out of the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from replaylab.files.atomic import UNFINISHED, writing

_FOLDERS = ("", "runs", "timing", "failures", "figures", "tables", "tapes")
"""Where a study writes, below its folder."""

_OLD = 3_600.0
"""Seconds after which nobody writes to a file any more."""


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file, or what is in its place, into a folder where nothing is replaced, and return its new name.

    Raises:
        StorageError: it cannot be moved.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        names = (f"{path.stem}{f'.{i}' if i else ''}{path.suffix}" for i in range(10**6))
        kept = next(folder / name for name in names if not (folder / name).exists())
        return path.rename(kept)


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind; the caller holds the folder's lock.

    Reports hold none: what a living process writes, and has not left for an hour, stays.
    """
    for place in _FOLDERS:
        _remove(folder / place, f".*{UNFINISHED}", but=_is_written)


def clear_failures(folder: Path) -> None:
    """Remove what failed populations have left to read, files named by their ids; the caller holds the lock."""
    _remove(folder / "failures", f"*.{'[0-9a-f]' * 16}.txt")


def _is_written(file: Path) -> bool:
    """Whether somebody may be writing a file: its name ends in the writer's number."""
    number = file.name.removesuffix(UNFINISHED).rpartition("-")[2]
    with suppress(OSError, ValueError, OverflowError):
        os.kill(int(number), 0)
        return time.time() - file.stat().st_mtime < _OLD
    return False


def _remove(folder: Path, pattern: str, but: Callable[[Path], bool] = lambda _: False) -> None:
    with writing(folder):
        for file in folder.glob(pattern):
            if not file.is_dir() and not but(file):
                file.unlink(missing_ok=True)
