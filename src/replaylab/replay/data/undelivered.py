"""Batches that were drawn ahead and not delivered yet: part of a buffer's state, and so of its snapshots.

A draw made ahead has changed the buffer (random stream, epoch, queue) before its batch is delivered. So a snapshot
holds the batches that were drawn and not delivered, and `batches` of a loaded buffer yields those first.
"""

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from replaylab.arguments import LARGEST_AXIS, whole
from replaylab.errors import SnapshotError
from replaylab.replay.data.batch import Batch, Delivery
from replaylab.trees import flatten, map_leaves, take

COUNT = whole(0, LARGEST_AXIS)
"""Rule of the number of batches, or of rows of a batch, in a snapshot."""


@dataclass(eq=False)
class Request:
    """A batch that was requested and not delivered yet.

    Attributes:
        batch: The batch as NumPy arrays; None: not drawn yet.
        future: The future result of `Delivery.send`; None: the batch was read from a snapshot.
    """

    batch: Batch | None = None
    future: Future[Any] | None = None

    def sent(self, delivery: Delivery) -> Any:
        """Return the result of `Delivery.send`, after waiting for the draw."""
        if self.future is not None:
            return self.future.result()
        assert self.batch is not None  # batches from snapshots are complete
        return delivery.send(self.batch)


@dataclass(eq=False)
class BatchQueue:
    """The batches that one iterator will deliver next, in order.

    Attributes:
        batch_size: B, as requested.
        requests: The batches.
        open: Whether an iterator uses the queue; otherwise its batches were read from a snapshot and wait for one.
    """

    batch_size: int
    requests: deque[Request] = field(default_factory=deque)
    open: bool = False

    @classmethod
    def of(cls, ahead: list["BatchQueue"], batch_size: int) -> "BatchQueue":
        """Return the queue of a new iterator: the first one that waits for batches of this size, or an empty one.

        Args:
            ahead: The buffer's queues, to which an empty one is added.
            batch_size: B.
        """
        waiting = [queue for queue in ahead if not queue.open]
        for queue in waiting:
            if queue.batch_size == batch_size:
                queue.open = True
                return queue
        if waiting:
            counted = ", ".join(f"{len(queue.requests)} batches of {queue.batch_size} rows" for queue in waiting)
            sizes = ", ".join(f"batches({queue.batch_size})" for queue in waiting)
            warnings.warn(
                f"the buffer was saved with {counted} drawn ahead and not delivered, which batches({batch_size}) does "
                f"not yield; to continue the saved run, call {sizes}",
                stacklevel=4,
            )
        queue = cls(batch_size, open=True)
        ahead.append(queue)
        return queue

    def close(self, ahead: list["BatchQueue"]) -> None:
        """Drop the requests that were not delivered; batches of a snapshot wait for the next iterator."""
        self.requests = deque(request for request in self.requests if request.future is None)
        self.open = False
        if not self.requests:
            with suppress(ValueError):  # a fork or a restore has removed it
                ahead.remove(self)

    def drawn(self) -> "BatchQueue":
        """Return copies of the batches that were drawn up to now."""
        requests = list(takewhile(lambda request: request.batch is not None, self.requests.copy()))
        copied = [(request, map_leaves(np.array, request.batch)) for request in requests]
        undelivered = self.requests.copy()  # a batch delivered meanwhile may have been changed by its receiver
        return BatchQueue(
            self.batch_size, deque(Request(Batch(columns)) for request, columns in copied if request in undelivered)
        )

    def of_replicas(self, replicas: list[int]) -> "BatchQueue":
        """Return the same batches of some of the replicas."""
        batches = [Batch(take(request.batch, replicas)) for request in self.requests]
        return BatchQueue(self.batch_size, deque(map(Request, batches)))


def drop_saved(ahead: list[BatchQueue]) -> None:
    """Drop the batches that were read from a snapshot."""
    for queue in list(ahead):
        drawn_here = [request for request in queue.requests if request.future is not None]
        queue.requests.clear()
        queue.requests.extend(drawn_here)
        if not queue.open:
            ahead.remove(queue)


def written(queues: Sequence[BatchQueue]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return queues as JSON values and arrays, for a snapshot.

    Raises:
        SnapshotError: A batch of a subclass's `sample` holds objects.
    """
    about, arrays = [], {}
    for q, queue in enumerate(queues):
        names: list[str] = []
        for i, request in enumerate(queue.requests):
            columns = dict(flatten(request.batch.__dict__ if request.batch else {}))
            names = list(columns)
            for c, (name, column) in enumerate(columns.items()):
                if column.dtype.hasobject:
                    raise SnapshotError(
                        f"the column `{name}` of a batch drawn ahead must hold numbers to be saved, but holds objects; "
                        "close the iterator that batches() returned, then save"
                    )
                arrays[f"ahead{q}.{i}.{c}"] = column
        about.append({"batch_size": queue.batch_size, "batches": len(queue.requests), "columns": names})
    return about, arrays


def read(
    about: Sequence[dict[str, Any]], arrays: dict[str, Any], batch: Callable[[dict[str, Any]], Batch]
) -> list[BatchQueue]:
    """Return the queues that `written` converted; `batch` nests flat columns."""
    queues = []
    for q, queue in enumerate(about):
        names = queue["columns"]
        columns = [
            {name: arrays[f"ahead{q}.{i}.{c}"] for c, name in enumerate(names)} for i in range(COUNT(queue["batches"]))
        ]
        requests = deque(Request(batch(flat)) for flat in columns)
        queues.append(BatchQueue(COUNT(queue["batch_size"]), requests))
    return queues
