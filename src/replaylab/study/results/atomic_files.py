"""Files that are either whole or not there, whatever kills the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from replaylab.writing import writing

_UNFINISHED = ".unfinished"
_FOLDERS = ("", "runs", "timing", "failures", "figures", "tables")
"""Where a study writes, below its folder."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; when the block ends well, it becomes ``path``.

    The bytes are flushed to disk before the rename, and the folder's entry after it, so that after a power
    cut, too, ``path`` holds all of the new content or what was there before.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.parent / f".{uuid4().hex}{_UNFINISHED}"  # shorter than any name that has to fit
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(path)
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, wholly or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


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
    """Remove what killed writers left behind; the caller holds the folder's lock."""
    for place in _FOLDERS:
        _remove(folder / place, f".*{_UNFINISHED}")


def clear(folder: Path) -> None:
    """Remove the text files of a folder, if there is one."""
    _remove(folder, "*.txt")


def _remove(folder: Path, pattern: str) -> None:
    with writing(folder):
        for file in folder.glob(pattern):
            if not file.is_dir():
                file.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle of a folder to flush
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
