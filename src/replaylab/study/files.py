"""Files that are either whole or not there, whatever kills the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unfinished"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; when the block ends well, it becomes ``path``.

    The bytes are flushed to disk before the rename, and the folder's entry after it, so that after a power
    cut, too, ``path`` holds all of the new content or what was there before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}{_UNFINISHED}"
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, wholly or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind; the caller holds the folder's lock."""
    for leftover in folder.rglob(f".*{_UNFINISHED}"):
        leftover.unlink(missing_ok=True)


def clear(folder: Path) -> None:
    """Remove the text files of a folder, if there is one."""
    for file in folder.glob("*.txt"):
        file.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle of a folder to flush
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
