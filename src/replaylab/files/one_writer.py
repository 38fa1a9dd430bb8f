"""A lock that admits one writer to a folder, among threads and, where folders can be locked, among processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import RLock, get_ident

from replaylab.errors import StorageError

if CAN_LOCK := find_spec("fcntl") is not None:  # not on Windows
    import fcntl


class _Held:
    """A folder's state in this process: the lock between threads, the writing thread, the locked descriptor."""

    def __init__(self) -> None:
        self.lock, self.thread, self.file = RLock(), 0, -1


_folders: dict[Path, _Held] = {}


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder within the block; other writers wait.

    A process that ends releases its lock. On Windows, and on network file systems without locks, only threads of one
    process exclude each other.

    Raises:
        StorageError: The calling thread already holds the lock, because a signal handler has interrupted its write.
    """
    held = _folders.setdefault(folder.resolve(), _Held())
    if held.thread == get_ident():
        raise StorageError(f"a signal handler has interrupted a write to {folder}; write after that has returned")
    with held.lock:  # reentrant: a signal handler here completes its write before this one begins
        try:
            held.thread = get_ident()
            with suppress(OSError):
                if CAN_LOCK and held.file < 0:  # open already if Ctrl-C has interrupted `_close`
                    held.file = os.open(folder, os.O_RDONLY)
                if CAN_LOCK:
                    fcntl.flock(held.file, fcntl.LOCK_EX)
            yield
        finally:
            try:
                if held.file >= 0:
                    with suppress(OSError):
                        fcntl.flock(held.file, fcntl.LOCK_UN)  # closing is not enough if a forked child has it open
                    _close(held)
            finally:
                held.thread = 0


def _close(held: _Held) -> None:
    file, held.file = held.file, -1
    if file >= 0:
        os.close(file)


def _forget() -> None:
    """Drop the parent's locks in a forked child, which has no writer yet."""
    for held in _folders.values():
        _close(held)
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
