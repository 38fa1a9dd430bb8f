"""Batches drawn ahead in a background thread, and reproducible all the same.

They are so because *when* a batch is drawn is fixed by the caller's calls, not by the thread's speed: while
batches are being drawn ahead, every call that changes what a draw depends on, or is changed by one, first waits until
the draws asked for before it are made. The core ensures that (`cpp/support/turns.hpp`), for every method.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import RLock, get_ident
from typing import Any, Protocol

from replaylab.errors import ConfigError
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.forks import watch

Progress = float | Callable[[int], float] | None
"""Training progress: a number, or a function of a batch's number that gives one."""


class Drawable(Protocol):
    """A buffer, as far as batches are drawn ahead from it."""

    _core: Any

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch; see `ReplayBuffer.sample`."""


def batches(
    buffer: "Drawable",
    batch_size: int,
    prefetch: int,
    total: int | None,
    progress: Progress,
    deliver: Callable[[Batch], Batch],
) -> Generator[Batch, None, None]:
    """Yield batches; see `ReplayBuffer.batches`."""
    numbers = count() if total is None else range(total)
    if prefetch == 0:
        for k in numbers:
            yield deliver(buffer.sample(batch_size, progress=progress_at(progress, k)))
        return
    drawer = Drawer.of(buffer)
    drawn: deque[Future[Batch]] = deque()
    asked = 0
    try:
        for k in numbers:
            while asked <= k + prefetch and (total is None or asked < total):
                drawn.append(drawer.ask(batch_size, progress_at(progress, asked), deliver))
                asked += 1
            drawer.check()
            yield drawn.popleft().result()
    finally:
        drawer.leave()


def progress_at(progress: Progress, k: int) -> float | None:
    """Return the training progress of batch k."""
    return progress(k) if callable(progress) else progress


class Drawer:
    """A buffer's background thread, shared by all iterators over it; it lives while there is one.

    The core knows which draws were asked for and are not made yet, and lets every other thread's calls wait for those.
    """

    _guard = RLock()  # a garbage collection inside it may close an iterator

    def __init__(self, buffer: "Drawable") -> None:
        self._buffer = buffer
        self._core = buffer._core
        self._sample = buffer.sample
        self._iterators = 0
        self._thread = ThreadPoolExecutor(1, "replaylab-prefetch", self._begin)
        self._ident: int | None = None
        self._lost = False
        watch(self)

    @classmethod
    def of(cls, buffer: "Drawable") -> "Drawer":
        """Return the buffer's drawer, for one iterator more."""
        with cls._guard:
            drawer: Drawer = buffer.__dict__.get("_drawer") or cls(buffer)
            buffer.__dict__["_drawer"] = drawer
            drawer._iterators += 1
            return drawer

    def ask(self, batch_size: int, progress: float | None, deliver: Callable[[Batch], Batch]) -> Future[Batch]:
        """Ask for a batch, to be drawn after all those asked for before, and then delivered."""
        self.check()
        with self._guard:
            asked = self._core.ask()

            def draw() -> Batch:
                try:
                    batch = self._sample(batch_size, progress=progress)
                finally:
                    asked.made()
                return deliver(batch)

            return self._thread.submit(draw)

    def leave(self) -> None:
        """Let go of one iterator; after the last, of the thread."""
        if self._lost:
            return
        with self._guard:
            self._iterators -= 1
            if self._iterators:
                return
            self._buffer.__dict__.pop("_drawer", None)
            with suppress(RuntimeError):  # at the interpreter's end
                self._thread.submit(self._core.leave)
        self._thread.shutdown(wait=get_ident() != self._ident)

    def check(self) -> None:
        """Raise `ConfigError` in a forked child, which does not have the thread."""
        if self._lost:
            raise ConfigError(
                "these batches were drawn ahead in the process that this one was forked from; call batches() again here"
            )

    def before_fork(self) -> None:
        """Do nothing: the core waits for the calls it is in."""

    def after_fork(self) -> None:
        """Do nothing."""

    def in_child(self) -> None:
        """Forget the thread, which the child does not have, and what it was asked for."""
        type(self)._guard = RLock()
        self._lost = get_ident() != self._ident
        if self._lost:
            self._buffer.__dict__.pop("_drawer", None)

    def _begin(self) -> None:
        self._ident = get_ident()
        self._core.enter()
