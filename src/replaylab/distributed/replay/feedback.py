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

LARGEST = np.iinfo(np.int64).max

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
            IdError: An id was never given out, as far as can be known: of shards that are lost any may have been.
            StorageError: The replay was closed.
        """
        self._fleet.check_going()
        epoch, shard, step = places_of(ids)
        self.check(ids)
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

    def check(self, ids: Ids) -> None:
        """Raise `IdError` if one was never given out."""
        wrong = self._unknown(ids)
        if wrong.any():
            self._fleet.refresh()  # they may be newer than what was told, from a writer elsewhere
            wrong = self._unknown(ids)
        if wrong.any():
            raise IdError(f"id {ids[wrong][0]} was never given out by this replay; pass the ids of a batch")

    def _unknown(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return which ids no shard has given out, as far as told."""
        epoch, shard, step = places_of(ids)
        places = self._fleet.places
        own = np.where(shard < len(places), shard, 0)
        epochs = np.array([place.epoch for place in places])[own]
        next_ids = np.array([place.tally.next_id if place.tally else LARGEST for place in places])[own]
        never: npt.NDArray[np.bool_] = (epoch > epochs) | ((epoch == epochs) & (step >= next_ids))
        return never | (shard >= len(places)) | (ids < -1)


def values_of(given: Any) -> npt.NDArray[np.float64]:
    """Return values of NumPy, PyTorch or JAX as float64 (n,)."""
    given = given.detach().cpu() if hasattr(given, "detach") else given
    return np.asarray(given, np.float64).reshape(-1)


def are_ids(steps: npt.NDArray[Any]) -> bool:
    """Whether an array holds what ids may be: whole numbers of int64."""
    return not steps.size or (steps.dtype.kind in "iu" and int(steps.max()) <= LARGEST)
