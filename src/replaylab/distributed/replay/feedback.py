"""The learner's feedback, on its way to the shards whose ids it is for."""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.ids import id_parts
from replaylab.distributed.replay.shards.shard_pool import ShardPool, ShardSlot
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.errors import IdError
from replaylab.replay import Fifo, ReplayBuffer

Ids = npt.NDArray[np.int64]

LARGEST = np.iinfo(np.int64).max

WINDOW = 8
"""Rounds of feedback whose answers are not waited for."""


class Feedback:
    """Sends feedback by id. Not to be called by several threads at once.

    Args:
        pool: The shards.
        template: A buffer declared as theirs are.
        strict: Whether every answer is waited for.
    """

    def __init__(self, pool: ShardPool, template: ReplayBuffer, strict: bool) -> None:
        self._pool, self._strict = pool, strict
        self._fifo = isinstance(template.retention, Fifo)
        self._asks = template.sampler.wants_feedback or strict
        self._rounds: deque[list[tuple[ShardSlot, ShardClient, Pending, int]]] = deque()
        self.stale = 0  # ids whose step was dropped, or whose shard is lost

    def send(self, ids: Ids, values: npt.NDArray[np.float64], td_errors: bool) -> int:
        """Send values for ids (n,), and return how many are still stored, as far as told; if strict, now.

        Raises:
            IdError: An id was never given out, as far as can be known: of shards that are lost any may have been.
            StorageError: The replay was closed.
        """
        self._pool.check_going()
        epoch, shard, step = id_parts(ids)
        self.check(ids)
        sent, num_stored, requests = 0, 0, []
        for slot in self._pool.live():
            mask = (shard == slot.number) & (epoch == slot.epoch)
            count = int(mask.sum())
            if not count:
                continue
            num_stored += self._stored(slot, step[mask])
            if not self._asks:
                sent += count
                continue
            client = slot.client
            pending = self._pool.ask(slot, "update", slot.epoch, step[mask], values[mask], td_errors)
            if pending is not None:
                sent += count
                requests.append((slot, client, pending, count))
        self.stale += int((ids >= 0).sum()) - sent
        self._rounds.append(requests)
        if self._strict:
            return self._collect()
        while len(self._rounds) > WINDOW:
            self._collect()
        return num_stored

    def flush(self) -> None:
        """Wait for all answers."""
        while self._rounds:
            self._collect()

    def _collect(self) -> int:
        """Wait for the answers of the oldest round, and return how many steps were found."""
        num_stored = 0
        for slot, client, pending, count in self._rounds.popleft():
            answer = self._pool.last_answer(slot, client, pending)  # a lost shard may have applied it before
            answered = 0 if answer is None else answer[0]
            self.stale += count - answered
            num_stored += answered
        return num_stored

    def _stored(self, slot: ShardSlot, steps: Ids) -> int:
        """Return how many of a shard's steps are still stored, by its newest tally."""
        if not self._fifo or slot.tally is None:
            return len(steps)
        return int((steps >= slot.tally.next_id - slot.tally.size).sum())

    def check(self, ids: Ids) -> None:
        """Raise `IdError` if an id was never assigned."""
        wrong = self._unknown(ids)
        if wrong.any():
            self._pool.refresh()  # they may be newer than what was reported, from a writer elsewhere
            wrong = self._unknown(ids)
        if wrong.any():
            raise IdError(f"id {ids[wrong][0]} was never given out by this replay; pass the ids of a batch")

    def _unknown(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return which ids no shard has assigned, by the newest tallies."""
        epoch, shard, step = id_parts(ids)
        slots = self._pool.slots
        indices = np.where(shard < len(slots), shard, 0)
        epochs = np.array([slot.epoch for slot in slots])[indices]
        next_ids = np.array([slot.tally.next_id if slot.tally else LARGEST for slot in slots])[indices]
        never: npt.NDArray[np.bool_] = (epoch > epochs) | ((epoch == epochs) & (step >= next_ids))
        return never | (shard >= len(slots)) | (ids < -1)


def values_of(values: Any) -> npt.NDArray[np.float64]:
    """Return values of NumPy, PyTorch or JAX as float64 (n,)."""
    values = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(values, np.float64).reshape(-1)


def are_ids(steps: npt.NDArray[Any]) -> bool:
    """Whether an array holds what ids may be: whole numbers of int64."""
    return not steps.size or (steps.dtype.kind in "iu" and int(steps.max()) <= LARGEST)
