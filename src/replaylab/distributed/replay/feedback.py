"""The learner's feedback, on its way to the shards whose ids it is for."""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.fleet import Fleet, Place
from replaylab.distributed.replay.shards.ids import places_of
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.errors import IdError
from replaylab.replay import Fifo, ReplayBuffer

Ids = npt.NDArray[np.int64]

WINDOW = 8
"""Rounds of feedback whose answers are not waited for."""


class Feedback:
    """Sends feedback by id. Not to be called by several threads at once.

    Args:
        fleet: The shards.
        template: A buffer declared as theirs are.
        strict: Whether every answer is waited for.
    """

    def __init__(self, fleet: Fleet, template: ReplayBuffer, strict: bool) -> None:
        self._fleet, self._strict = fleet, strict
        self._fifo = isinstance(template.retention, Fifo)
        self._asks = template.sampler.wants_feedback or strict
        self._rounds: deque[list[tuple[Place, ShardClient, Pending, int]]] = deque()
        self.stale = 0  # ids whose step was dropped, or whose shard is lost

    def send(self, ids: Ids, values: npt.NDArray[np.float64], td_errors: bool) -> int:
        """Send values for ids (n,), and return how many are still stored, as far as told; if strict, now.

        Raises:
            IdError: An id is of no shard there ever was.
        """
        epoch, shard, step = places_of(ids)
        self._check(ids, epoch, shard)
        sent, found, asked = 0, 0, []
        for place in self._fleet.live():
            mine = (shard == place.number) & (epoch == place.epoch)
            count = int(mine.sum())
            if not count:
                continue
            found += self._stored(place, step[mine])
            if not self._asks:
                sent += count
                continue
            client = place.client
            pending = self._fleet.ask(place, "update", place.epoch, step[mine], values[mine], td_errors)
            if pending is not None:
                sent += count
                asked.append((place, client, pending, count))
        self.stale += int((ids >= 0).sum()) - sent
        self._rounds.append(asked)
        if self._strict:
            return self._collect()
        while len(self._rounds) > WINDOW:
            self._collect()
        return found

    def flush(self) -> None:
        """Wait for all answers."""
        while self._rounds:
            self._collect()

    def _collect(self) -> int:
        """Wait for the answers of the oldest round, and return how many steps were found."""
        found = 0
        for place, client, pending, count in self._rounds.popleft():
            answer = self._fleet.answer(place, client, pending)
            here = 0 if answer is None else answer[0]
            self.stale += count - here
            found += here
        return found

    def _stored(self, place: Place, steps: Ids) -> int:
        """Return how many of a shard's steps are still stored, as far as it has told."""
        if not self._fifo or place.tally is None:
            return len(steps)
        return int((steps >= place.tally.next_id - place.tally.size).sum())

    def _check(self, ids: Ids, epoch: Ids, shard: Ids) -> None:
        epochs = np.array([place.epoch for place in self._fleet.places])
        known = shard < len(epochs)
        wrong = ~known | (epoch > epochs[np.where(known, shard, 0)])
        wrong |= ids < -1
        if wrong.any():
            raise IdError(f"id {ids[wrong][0]} was never given out by this replay; pass the ids of a batch")


def values_of(given: Any) -> npt.NDArray[np.float64]:
    """Return values of NumPy, PyTorch or JAX as float64 (n,)."""
    given = given.detach().cpu() if hasattr(given, "detach") else given
    return np.asarray(given, np.float64).reshape(-1)
