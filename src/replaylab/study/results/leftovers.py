"""Temporary files of killed writers, damaged files and old failures: cleaning a study's folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from replaylab.files import atomic
from replaylab.files.atomic import writing

_FOLDERS = ("", "runs", "timing", "failures", "figures", "tables", "tapes")
"""Folders below a study's folder that it writes to."""


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file, or what is in its place, into a folder where nothing is replaced, and return its new name.

    Raises:
        StorageError: it cannot be moved.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        names = (f"{path.stem}{f'.{i}' if i else ''}{path.suffix}" for i in range(10**6))
        free = next(folder / name for name in names if not (folder / name).exists())
        return path.rename(free)


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind; the caller holds the folder's lock. Reports hold none."""
    with writing(folder):
        for place in _FOLDERS:
            atomic.sweep(folder / place)


def remove_unused(lock: Path, folders: Sequence[Path]) -> None:
    """Remove the lock's file, and folders from the first to the last as long as they are empty."""
    with suppress(OSError):  # someone has put something there
        lock.unlink(missing_ok=True)
        for folder in folders:
            folder.rmdir()


def clear_failures(folder: Path) -> None:
    """Remove what failed chunks have left to read, files named by their ids; the caller holds the lock."""
    with writing(folder):
        for file in (folder / "failures").glob(f"*.{'[0-9a-f]' * 16}.txt"):
            file.unlink(missing_ok=True)
