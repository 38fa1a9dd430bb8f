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
        depth: Writers within each other.
        file: The folder, opened and locked; None: it cannot be.
    """

    lock: Any = field(default_factory=RLock)
    depth: int = 0
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
        held.depth += 1
        try:
            if held.depth == 1:
                held.file = _locked(folder)
            yield
        finally:
            held.depth -= 1
            if held.depth == 0 and held.file is not None:
                file, held.file = held.file, None
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)  # also where a forked child has it open
                os.close(file)


def _locked(folder: Path) -> int | None:
    if not CAN_LOCK:
        return None
    file = None
    try:
        file = os.open(folder, os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        if file is not None:
            os.close(file)
        return None
    except BaseException:  # Ctrl-C while it waits
        if file is not None:
            os.close(file)
        raise
    return file


def _forget() -> None:
    """In a forked child: nobody of it is writing, and what its parent holds is not the child's."""
    for held in _folders.values():
        if held.file is not None:
            os.close(held.file)
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
