"""Files that are either whole or not there, whatever kills the process.

The content is written under a temporary name in the same folder, flushed to disk, and then put into its place by one
atomic rename (`replacing`). Flushing the folder's entry (`settle_folder`) makes the rename itself durable. `whole_file`
does all of this.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from replaylab.errors import ReplayError, StorageError

UNFINISHED = ".unfinished"
"""How the temporary names of `whole_file` end."""

_MENDS = {
    errno.ENOSPC: "Free some space there, and give the same command again.",
    errno.EDQUOT: "Free some space there, and give the same command again.",
    errno.EFBIG: "Raise the limit on file sizes, and give the same command again.",
    errno.EACCES: "Give another place, or the right to write there.",
    errno.EPERM: "Give another place, or the right to write there.",
    errno.EROFS: "Give another place, or the right to write there.",
    errno.EEXIST: "A file is where a folder is needed: give another place, or move it away.",
    errno.ENOTDIR: "A file is where a folder is needed: give another place, or move it away.",
    errno.EISDIR: "A folder is where a file is needed: give another place, or move it away.",
}


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[None]:
    """Turn a system error of a write into one that names the path, the reason and the mend.

    Raises:
        StorageError: something inside the block could not be written.
    """
    try:
        yield
    except ReplayError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        mend = _MENDS.get(error.errno or 0, "Give another place.")
        raise StorageError(f"{path} cannot be written: {reason}. {mend}") from error


@contextmanager
def replacing(path: Path, temporary: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; when the block ends without error, that file replaces `path`.

    Its bytes are on disk before the rename, which comes last: after an error `path` is as it was before.
    """
    temporary.unlink(missing_ok=True)  # of a write that was cut short; a link would lead elsewhere
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; when the block ends without error, it becomes ``path``.

    After a power cut, too, ``path`` holds all of the new content or what was there before.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.parent / f".{uuid4().hex[:16]}-{os.getpid()}{UNFINISHED}"  # shorter than any name that has to fit
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, temporary):
            yield temporary
        settle_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def make_folder(path: Path) -> list[Path]:
    """Make a folder and its parents, durably, and return those that were not there, the innermost first."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        settle_folder(one.parent)
    return missing


def discard(files: list[Path], folders: list[Path]) -> None:
    """Remove what a write that failed has left: its files, and the folders it made."""
    for file in files:
        with suppress(OSError):
            file.unlink()
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def settle(file: IO[Any]) -> None:
    """Flush an open file to disk."""
    file.flush()
    os.fsync(file.fileno())


def settle_folder(path: Path) -> None:
    """Flush a folder's list of files to disk."""
    if os.name != "nt":  # Windows has no handle of a folder to flush
        _sync(path, os.O_RDONLY)


def _flush(path: Path) -> None:
    _sync(path, os.O_RDWR)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
