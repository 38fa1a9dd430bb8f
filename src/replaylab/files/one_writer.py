"""One writer at a time in a folder, of all threads of a process and, where folders can be locked, of all processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any

CAN_LOCK = find_spec("fcntl") is not None
"""Whether processes can lock a folder here; not on Windows."""

if CAN_LOCK:
    import fcntl


@dataclass
class _Held:
    """What threads of this process hold of a folder.

    Attributes:
        lock: Between threads; a signal handler's writer goes in between that of its own thread.
        file: The folder, opened to be locked; None: it is not, or cannot be. Who locks it twice holds it once.
    """

    lock: Any = field(default_factory=RLock)
    file: int | None = None


_folders: dict[Path, _Held] = {}


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Wait until nobody else writes to a folder that is there, and keep others waiting within the block.

    A process that ends, however it does, keeps nobody waiting. Network file systems without locks, and Windows, keep
    threads apart, and no processes.
    """
    held = _folders.setdefault(folder.resolve(), _Held())
    with held.lock:
        own = held.file is None  # else this is within another writer of the same thread, which lets go
        try:
            _lock(held, folder)
            yield
        finally:
            if own:
                _unlock(held)


def _lock(held: _Held, folder: Path) -> None:
    """Lock the folder; a signal handler that comes while this waits does it for the writer that it interrupts."""
    if not CAN_LOCK:
        return
    with suppress(OSError):
        if held.file is None:
            held.file = os.open(folder, os.O_RDONLY)
        fcntl.flock(held.file, fcntl.LOCK_EX)


def _unlock(held: _Held) -> None:
    """Let go of the folder, first of the lock: a signal handler in between takes it again, and finds it free."""
    if held.file is None:
        return
    with suppress(OSError):
        fcntl.flock(held.file, fcntl.LOCK_UN)  # also where a forked child has it open
    file, held.file = held.file, None
    os.close(file)


def _forget() -> None:
    """In a forked child: nobody of it is writing, and what its parent holds is not the child's."""
    for held in _folders.values():
        file, held.file = held.file, None
        if file is not None:
            os.close(file)
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
