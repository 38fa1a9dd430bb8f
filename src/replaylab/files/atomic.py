"""Files that are either complete or absent, whatever kills the process.

The content is written under a temporary name in the same folder, flushed to disk, and then put into its place by one
atomic rename. Flushing the folder's entry makes the rename itself durable. `whole_file` does all of this; `sweep`
removes what a killed process left.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from uuid import uuid4

from replaylab.errors import ReplayError, StorageError

UNFINISHED = ".unfinished"
"""The end of the temporary names of `whole_file`."""

OLD = 3_600.0
"""Seconds after which a temporary file counts as left over, even if a process with the writer's id lives."""

_FIXES = {
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
    """Turn a system error of a write into one that names the path, the reason and the fix.

    Raises:
        StorageError: Something inside the block could not be written.
    """
    try:
        yield
    except ReplayError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        fix = _FIXES.get(error.errno or 0, "Give another place.")
        raise StorageError(f"{path} cannot be written: {reason}. {fix}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which is renamed to `path` when the block ends without error.

    After an error or a power cut, `path` holds either the complete new content or the previous content.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.parent / f".{uuid4().hex[:16]}-{os.getpid()}{UNFINISHED}"
    with writing(path):
        make_folder(path.parent)
        try:
            yield temporary
            sync(temporary, os.O_RDWR)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        settle_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    write_bytes(path, text.encode())


def sweep(folder: Path) -> None:
    """Remove the temporary files of killed writers; those of living processes only an hour after their last change."""
    for file in folder.glob(f".*{UNFINISHED}"):
        if not file.is_dir() and not _is_written(file):
            file.unlink(missing_ok=True)


def _is_written(file: Path) -> bool:
    """Whether a process may still be writing a temporary file, whose name ends with the writer's process id."""
    number = file.name.removesuffix(UNFINISHED).rpartition("-")[2]
    with suppress(OSError, ValueError, OverflowError):
        os.kill(int(number), 0)
        return time.time() - file.stat().st_mtime < OLD
    return False


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its parents durably, and return the created ones, innermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        settle_folder(folder.parent)
    return missing


def settle_folder(path: Path) -> None:
    """Flush a folder's list of files to disk."""
    if os.name != "nt":  # Windows cannot flush a folder
        sync(path, os.O_RDONLY)


def sync(path: Path, flags: int) -> None:
    """Flush a file or a folder to disk; `flags` are those for opening it."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
