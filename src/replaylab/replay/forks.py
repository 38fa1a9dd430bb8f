"""What a fork finds: the locks that are Python's. Those of the compiled core see to themselves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Protocol
from weakref import ref

from replaylab import _core
from replaylab.errors import ConfigError

PATIENCE = 1.0
"""Seconds that a fork waits for a lock which another thread has."""


class Forkable(Protocol):
    """What is told of forks, once `watch` knows it."""

    def before_fork(self) -> None:
        """Get ready, in the thread that forks."""

    def after_fork(self) -> None:
        """Go on, in the parent."""

    def in_child(self) -> None:
        """Go on without the other threads, in the child."""


_watched: dict[int, ref[Forkable]] = {}


def watch(one: Forkable) -> None:
    """Tell an object of forks as long as it lives."""
    key = id(one)
    _watched[key] = ref(one, lambda _: _watched.pop(key, None))


def _all() -> list[Forkable]:
    return [one for known in list(_watched.values()) if (one := known()) is not None]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: [one.before_fork() for one in _all()] and None,
        after_in_parent=lambda: [one.after_fork() for one in _all()] and None,
        after_in_child=lambda: [one.in_child() for one in _all()] and None,
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
        watch(self)

    @contextmanager
    def held(self, *, adding: bool = False) -> Iterator[None]:
        """Hold the lock; to add steps, at a moment when no other thread saves.

        Raises:
            ConfigError: In a forked child, where a thread that it does not have held the lock.
        """
        outermost = self._holder != get_ident()
        if outermost:
            self._core.await_draws()
        while True:
            with self._lock:
                self._check()
                if not (adding and self._core.frozen_elsewhere()):
                    self._core.enter()
                    self._holder = get_ident()
                    try:
                        yield
                    finally:
                        if outermost:
                            self._holder = None
                        self._core.leave()
                    return
            self._core.await_thaw()

    def _check(self) -> None:
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
