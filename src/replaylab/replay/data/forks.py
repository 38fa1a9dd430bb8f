"""The lock of a buffer, and its state in forked children.

Forks wait for the locks of the compiled core.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any, Literal
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


Use = Literal["state", "add", "save", "draw ahead"]
"""Purpose of holding a `BufferLock`: a use of the state in Python, an `add`, a `save`, or a draw made ahead."""


class BufferLock:
    """The reentrant lock of a buffer around all that is more than one call of the compiled core.

    It is held while `save` copies the state (not while it writes files), while a batch is drawn ahead and recorded, and
    while an engine uses the state that it keeps in Python. What may happen at the same time:

    * Threads call the core: each call is atomic.
    * A thread saves: from `core.freeze` to `Frozen.end` other threads draw and feed back; their adds and saves wait.
      If the saving thread itself adds, in a signal handler or a callback, the add raises.
    * Draws were requested ahead: calls that change what these depend on wait for them, so that the order of the
      calls determines each batch.
    * User callbacks and signal handlers run anywhere, also while the lock is held, and may call the buffer.
    * Any thread forks.

    So a thread that holds the lock must not wait for a requested draw, whose thread may need the lock, nor for another
    thread's save, whose signal handler may need it. `held` therefore waits before it takes the lock, checks again with
    the lock, and releases it to wait again. (Only an add or a save within a callback waits for another thread's save
    with the lock held.) Calls that go directly to the core (`BoundReplay`) wait in the same way, without this lock.
    """

    def __init__(self, core: _core.Replay) -> None:
        self._core = core
        self._lock = RLock()
        self._holder: int | None = None
        self._using = self._adding = self._torn = False
        watch(self)

    def check_intact(self) -> None:
        """Raise `ConfigError` in a child that was forked while another thread used the state in Python."""
        if self._torn:
            raise ConfigError(
                "this process was forked while another thread was drawing from the buffer, whose sampler runs in "
                "Python and may have an incomplete state here; fork while no other thread uses the buffer, or create "
                "another buffer in the child"
            )

    @contextmanager
    def held(self, use: Use = "state") -> Iterator[None]:
        """Hold the lock within the block, after everything that the use has to wait for.

        Raises:
            ConfigError: In a child that was forked while another thread used the state in Python.
            SnapshotError: To add or save, in a signal handler that interrupted an `add` half-way.
        """
        self.check_intact()
        thread, after_saves = get_ident(), use in ("add", "save")
        while True:
            if use != "draw ahead" and self._holder != thread:
                self._core.await_draws()
            with self._lock:
                self._core.enter()  # first: from here on a signal handler must not wait for draws
                before = self._holder, self._using, self._adding
                try:
                    if after_saves and self._adding:
                        raise SnapshotError(
                            "a signal handler has interrupted `add` half-way, where a buffer with a sampler written in "
                            "Python can neither be saved nor added to; have the handler set a flag, and do it after "
                            "`add` has returned"
                        )
                    if not (after_saves and self._core.frozen_elsewhere()):
                        self._holder = thread
                        self._using |= use in ("state", "add")
                        self._adding |= use == "add"
                        yield
                        return
                finally:
                    self._holder, self._using, self._adding = before
                    self._core.leave()
            self._core.await_thaw()

    def in_child(self) -> None:
        """Refuse further calls if another thread of the parent used the state in Python."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._torn |= self._using
            self._lock, self._holder, self._using, self._adding = RLock(), None, False, False
