"""Batches drawn ahead in a background thread, reproducibly.

They are reproducible because the caller's calls, not the thread's speed, determine when a batch is drawn: while
batches are drawn ahead, every call that changes the inputs of a draw, or that a draw affects, first waits for the
draws requested before it. The core ensures this (`cpp/support/replay_lock.hpp`), for every method.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import RLock, get_ident
from typing import Any, Protocol

from replaylab.arguments import LARGEST_AXIS, checked, flag, returned
from replaylab.errors import ConfigError
from replaylab.replay.buffer_parts import Buffer
from replaylab.replay.data.arrays import a_progress, positive
from replaylab.replay.data.batch import Batch, Delivery, delivery
from replaylab.replay.data.forks import watch
from replaylab.replay.data.undelivered import BatchQueue, Request


class DrawnBuffer(Buffer, Protocol):
    """A buffer that batches are drawn from."""

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch; see `ReplayBuffer.sample`."""


Progress = float | Callable[[int], float] | None
"""Training progress: a number, or a function of a batch's number that gives one."""


def batches(
    buffer: DrawnBuffer,
    batch_size: int,
    prefetch: int,
    total: int | None,
    progress: Progress,
    pin_memory: bool,
    device: Any,
) -> Generator[Batch, None, None]:
    """Return an iterator over batches; see `ReplayBuffer.batches`."""
    batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
    prefetch = positive("prefetch", prefetch, most=LARGEST_AXIS, least=0)
    total = None if total is None else positive("total", total)
    deliver = delivery(checked("pin_memory", pin_memory, flag), device)
    return _batches(buffer, batch_size, prefetch, total, progress, deliver)


def _batches(
    buffer: DrawnBuffer, batch_size: int, prefetch: int, total: int | None, progress: Progress, deliver: Delivery
) -> Generator[Batch, None, None]:
    drawer = Drawer.of(buffer) if prefetch else None
    queue = BatchQueue.of(buffer._parts.ahead, batch_size)
    requests, requested = queue.requests, len(queue.requests)
    try:
        for k in count() if total is None else range(total):
            while drawer and requested <= k + prefetch and (total is None or requested < total):
                drawer.ask(requests, batch_size, progress_at(progress, requested), deliver.send)
                requested += 1
            if drawer:
                drawer.check()
            # Without a variable: it would keep this batch in memory until the next one is asked for.
            if requests:
                yield deliver.receive(_taken(buffer, requests, deliver))
            else:
                yield deliver.receive(deliver.send(buffer.sample(batch_size, progress=progress_at(progress, k)())))
    finally:
        queue.close(buffer._parts.ahead)
        if drawer:
            drawer.leave()


def _taken(buffer: DrawnBuffer, requests: deque[Request], deliver: Delivery) -> Any:
    if requests[0].future is None:  # read from a snapshot: in a forked child the parent delivers the same batch
        buffer._parts.core.check_streams()
    sent = requests[0].sent(deliver)
    requests.popleft()
    return sent


def progress_at(progress: Progress, k: int) -> Callable[[], float | None]:
    """Compute the training progress of batch k; return a function that checks and returns it when the batch is drawn.

    So a function whose result leaves [0, 1] after the last batch does no harm if that batch is never taken.
    """
    value = progress(k) if callable(progress) else progress
    return lambda: returned("`progress`", value, a_progress) if callable(progress) else value


class Drawer:
    """A buffer's background thread, shared by all iterators over it; it ends with the last of them.

    The core knows which requested draws are pending, and makes calls of other threads wait for them.
    """

    # A garbage collection may close an iterator anywhere, also inside this lock and inside `submit`, whose lock all
    # executors share: so `leave` submits nothing, and nothing is submitted with this lock held.
    _guard = RLock()

    def __init__(self, buffer: DrawnBuffer) -> None:
        self._parts = buffer._parts
        self._core = buffer._parts.core
        self._sample = buffer.sample
        self._iterators = 0
        self._thread = ThreadPoolExecutor(1, "replaylab-prefetch", self._begin)
        self._ident: int | None = None
        self._lost = False
        watch(self)

    @classmethod
    def of(cls, buffer: DrawnBuffer) -> "Drawer":
        """Return the buffer's drawer for a new iterator; create it for the first."""
        with cls._guard:
            drawer: Drawer = buffer._parts.drawer or cls(buffer)
            buffer._parts.drawer = drawer
            drawer._iterators += 1
            return drawer

    def ask(
        self,
        requests: deque[Request],
        batch_size: int,
        progress: Callable[[], float | None],
        send: Callable[[Batch], Any],
    ) -> None:
        """Request a batch, which is drawn and sent after all batches requested before."""
        self.check()
        request, pending_draw = Request(), self._core.ask()

        def draw() -> Any:
            try:
                with self._parts.engine.lock.held("draw ahead"):
                    request.batch = batch = self._sample(batch_size, progress=progress())
            finally:
                pending_draw.made()
            return send(batch)

        requests.append(request)
        request.future = self._thread.submit(draw)

    def leave(self) -> None:
        """Remove an iterator; after the last one, end the thread."""
        if self._lost:
            return
        with self._guard:
            self._iterators -= 1
            if self._iterators:
                return
            self._parts.drawer = None
        self._thread.shutdown(wait=get_ident() != self._ident)

    def check(self) -> None:
        """Raise `ConfigError` in a forked child, which does not have the thread."""
        if self._lost:
            raise ConfigError(
                "these batches were drawn ahead in the process that this one was forked from; call batches() again here"
            )

    def in_child(self) -> None:
        """Drop the thread, which a forked child does not have, and its requests."""
        type(self)._guard = RLock()
        self._lost = get_ident() != self._ident
        if self._lost:
            ahead, self._parts.drawer = self._parts.ahead, None
            ahead[:] = [queue for queue in ahead if not any(request.future for request in queue.requests)]

    def _begin(self) -> None:
        self._ident = get_ident()
