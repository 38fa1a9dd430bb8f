"""What a fork finds: the locks that are Python's. Those of the compiled core see to themselves."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Protocol
from weakref import ref

from replaylab import _core
from replaylab.errors import ConfigError, SnapshotError

PATIENCE = 1.0
"""Seconds that a fork waits for a lock which another thread has."""


class Forkable(Protocol):
    """What is notified of forks, once it is given to `watch`."""

    def before_fork(self) -> None:
        """Get ready, in the thread that forks."""

    def after_fork(self) -> None:
        """Continue, in the parent."""

    def in_child(self) -> None:
        """Continue without the other threads, in the child."""


_watched: dict[int, ref[Forkable]] = {}


def watch(one: Forkable) -> None:
    """Tell an object of forks as long as it lives."""
    key = id(one)
    _watched[key] = ref(one, lambda _: _watched.pop(key, None))


def _tell(call: Callable[[Forkable], None]) -> None:
    for known in list(_watched.values()):
        if (one := known()) is not None:
            call(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _tell(lambda one: one.before_fork()),
        after_in_parent=lambda: _tell(lambda one: one.after_fork()),
        after_in_child=lambda: _tell(lambda one: one.in_child()),
    )


class DrawLock:
    """The lock around what a buffer keeps and draws in Python; its holder may take it again.

    Callbacks of the user's run under it, and signal handlers. So nobody who holds it waits for a draw made ahead, whose
    thread may be waiting for the lock; nor for another thread's `save`, of which a signal handler may want it.
    """

    def __init__(self, core: _core.Replay) -> None:
        self._core = core
        self._lock = RLock()
        self._holder: int | None = None
        self._got = self._torn = False
        self._adding = False
        watch(self)

    @contextmanager
    def held(self, *, adding: bool = False, whole: bool = False) -> Iterator[None]:
        """Hold the lock; to add steps, at a moment when no other thread saves.

        Raises:
            ConfigError: In a forked child, where a thread that it does not have held the lock.
            SnapshotError: To add, or have the `whole`, in a signal handler that interrupted an `add` half-way.
        """
        whole |= adding
        outermost = self._holder != get_ident()
        if outermost:
            self._core.await_draws()
        while True:
            with self._lock:
                self._check(whole=whole)
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

    def _check(self, *, whole: bool) -> None:
        if whole and self._adding:
            raise SnapshotError(
                "a signal handler has interrupted `add` half-way, where a buffer with a sampler written in Python can "
                "neither be saved nor added to; have the handler note that it came, and do it after `add` has returned"
            )
        if self._torn:
            raise ConfigError(
                "this process was forked while another thread was in the buffer's sampler, whose state may be half "
                "written here; fork while no other thread uses the buffer, or make one in the child"
            )

    def before_fork(self) -> None:
        """Wait for another thread that holds the lock, so that the child finds what it guards whole."""
        self._got = self._lock.acquire(timeout=PATIENCE)

    def after_fork(self) -> None:
        """Let go of it again."""
        if self._got:
            self._lock.release()

    def in_child(self) -> None:
        """Let go of it again, or make it anew."""
        if self._got:
            self._lock.release()
        else:
            self._lock, self._torn = RLock(), True
