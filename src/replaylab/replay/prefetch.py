"""Batches drawn ahead in a background thread, and reproducible all the same.

What makes them so is that *when* a batch is drawn is fixed by the caller's calls, not by the thread's speed: while
batches are being drawn ahead, every call that changes what a draw depends on, or is changed by one, first waits until
the draws asked for before it are made.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from itertools import count
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from replaylab.replay.batch import Batch

if TYPE_CHECKING:
    from replaylab.replay.buffer import ReplayBuffer

GATED = ("add", "clear", "end_episode", "extend", "probabilities", "sample", "save", "stats", "update_priorities")
"""Methods of a buffer that wait for the draws asked for before them."""

Progress = float | Callable[[int], float] | None
"""Training progress: a number, or a function of a batch's number that gives one."""


def batches(
    buffer: "ReplayBuffer", batch_size: int, prefetch: int, total: int | None, progress: Progress, pin_memory: bool
) -> Generator[Batch, None, None]:
    """Yield batches; see `ReplayBuffer.batches`."""
    numbers = count() if total is None else range(total)
    if prefetch == 0:
        for k in numbers:
            yield _pinned(buffer.sample(batch_size, progress=progress_at(progress, k)), pin_memory)
        return
    drawer = Drawer.of(buffer)
    drawn: deque[Future[Batch]] = deque()
    asked = 0
    try:
        for k in numbers:
            while asked <= k + prefetch and (total is None or asked < total):
                drawn.append(drawer.ask(batch_size, progress_at(progress, asked), pin_memory))
                asked += 1
            yield drawn.popleft().result()
    finally:
        drawer.leave()


def progress_at(progress: Progress, k: int) -> float | None:
    """Return the training progress of batch k."""
    return progress(k) if callable(progress) else progress


class Drawer:
    """A buffer's background thread, shared by all iterators over it, and the gate before its methods.

    It lives while there is an iterator. The gated methods are set on the buffer itself, so that a buffer nobody
    draws ahead from pays nothing.
    """

    _guard = RLock()  # a garbage collection inside it may close an iterator

    def __init__(self, buffer: "ReplayBuffer") -> None:
        self._buffer = buffer
        self._iterators = 0
        self._thread = ThreadPoolExecutor(1, "replaylab-prefetch", self._begin)
        self._ident: int | None = None
        self._newest: Future[Batch] | None = None
        self._sample = buffer.sample
        self._own = {name: buffer.__dict__[name] for name in GATED if name in buffer.__dict__}
        self._gates = {name: self._gated(getattr(buffer, name)) for name in GATED if hasattr(buffer, name)}
        buffer.__dict__.update(self._gates)

    @classmethod
    def of(cls, buffer: "ReplayBuffer") -> "Drawer":
        """Return the buffer's drawer, for one iterator more."""
        with cls._guard:
            drawer: Drawer = buffer.__dict__.get("_drawer") or cls(buffer)
            buffer.__dict__["_drawer"] = drawer
            drawer._iterators += 1
            return drawer

    def ask(self, batch_size: int, progress: float | None, pin_memory: bool) -> Future[Batch]:
        """Have a batch drawn, after all asked for before."""

        def draw() -> Batch:
            return _pinned(self._sample(batch_size, progress=progress), pin_memory)

        with self._guard:
            self._newest = self._thread.submit(draw)
            return self._newest

    def leave(self) -> None:
        """Let go of one iterator; after the last, the buffer is as it was before the first."""
        with self._guard:
            self._iterators -= 1
            if self._iterators:
                return
            for name in ("_drawer", *self._gates):
                self._buffer.__dict__.pop(name, None)
            self._buffer.__dict__.update(self._own)
        self._thread.shutdown(wait=not self._inside())

    def _gated(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            newest = self._newest
            if newest is not None and not newest.done() and not self._inside():
                newest.exception()  # waits, and leaves raising to the iterator
            return method(*args, **kwargs)

        return call

    def _begin(self) -> None:
        self._ident = get_ident()

    def _inside(self) -> bool:
        """Whether this is the background thread itself, where a sampler of the user's own may call the buffer."""
        return get_ident() == self._ident


def _pinned(batch: Batch, pin_memory: bool) -> Batch:
    return batch.pin_memory() if pin_memory else batch
