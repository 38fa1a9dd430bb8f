"""The locks of buffers that draw in Python, and their state in forked children.

Forks wait for the locks of the compiled core.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any
from weakref import WeakSet

from replaylab import _core
from replaylab.errors import ConfigError, SnapshotError

_watched: WeakSet[Any] = WeakSet()


def watch(forkable: Any) -> None:
    """Call an object's `in_child` in each forked child, as long as the object lives."""
    _watched.add(forkable)


def _in_child() -> None:
    for forkable in list(_watched):
        forkable.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class DrawLock:
    """The reentrant lock around the state of a buffer that draws in Python.

    User callbacks and signal handlers run while it is held. So its holder never waits for a draw made ahead, whose
    thread may be waiting for the lock, nor for another thread's `save`, whose signal handler may need it.
    """

    def __init__(self, core: _core.Replay) -> None:
        self._core = core
        self._lock = RLock()
        self._holder: int | None = None
        self._torn = self._adding = False
        watch(self)

    @property
    def held_by_caller(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._holder == get_ident()

    def check_intact(self) -> None:
        """Raise `ConfigError` in a child that was forked while another thread held the lock."""
        if self._torn:
            raise ConfigError(
                "this process was forked while another thread was drawing from the buffer, whose sampler runs in "
                "Python and may have an incomplete state here; fork while no other thread uses the buffer, or create "
                "another buffer in the child"
            )

    @contextmanager
    def held(self, *, adding: bool = False, saving: bool = False) -> Iterator[None]:
        """Hold the lock within the block; with `adding`, first wait until no other thread saves.

        Raises:
            ConfigError: In a child that was forked while another thread held the lock.
            SnapshotError: To add or save, in a signal handler that interrupted an `add` half-way.
        """
        self.check_intact()
        outermost = not self.held_by_caller
        if outermost:
            self._core.await_draws()
        while True:
            with self._lock:
                if (adding or saving) and self._adding:
                    raise SnapshotError(
                        "a signal handler has interrupted `add` half-way, where a buffer with a sampler written in "
                        "Python can neither be saved nor added to; have the handler set a flag, and do it after "
                        "`add` has returned"
                    )
                if not (adding and self._core.frozen_elsewhere()):
                    self._core.enter()
                    before = self._adding
                    self._holder, self._adding = get_ident(), before or adding
                    try:
                        yield
                    finally:
                        self._adding = before
                        if outermost:
                            self._holder = None
                        self._core.leave()
                    return
            self._core.await_thaw()

    def in_child(self) -> None:
        """Refuse further calls if another thread of the parent held the lock."""
        self._torn = not self._lock.acquire(blocking=False)
        if not self._torn:
            self._lock.release()
