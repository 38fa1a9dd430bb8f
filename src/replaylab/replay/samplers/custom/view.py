"""What a sampler written in Python sees of a buffer, and the records behind it."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.errors import SnapshotError

Ids = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


RECORD_NBYTES = 5 * 8
"""Bytes recorded about each step."""


class Record:
    """The data behind a `View`, by slot, for one replica."""

    def __init__(self, capacity: int, num_envs: int) -> None:
        self.ids = np.full(capacity, -1, np.int64)
        self.episodes, self.steps, self.counts = (np.zeros(capacity, np.int64) for _ in range(3))
        self.feedback = np.full(capacity, np.nan)
        self._episode = np.arange(num_envs)  # of each environment, now
        self._step = np.zeros(num_envs, np.int64)
        self._episodes = np.array(num_envs)

    def slots(self) -> Ids:
        """Return the slots in use, oldest step first."""
        begun, capacity = int(self.ids.max()) + 1, len(self.ids)  # id i is in slot i mod capacity
        if self.ids[-1] < 0:  # not full since it was created or cleared; both start at slot 0
            return np.arange(begun % capacity)
        return np.concatenate([np.arange(begun % capacity, capacity), np.arange(begun % capacity)])

    def stored(self, ids: Ids, ended: npt.NDArray[np.bool_]) -> None:
        """Record steps (T, E) with these ids (−1: not stored); `ended` marks the last step of an episode."""
        for row, last in zip(ids, ended, strict=True):
            envs = np.flatnonzero(row >= 0)
            slots = row[envs] % len(self.ids)
            self.ids[slots] = row[envs]
            self.episodes[slots], self.steps[slots] = self._episode[envs], self._step[envs]
            self.counts[slots], self.feedback[slots] = 0, np.nan
            self._step[envs] += 1
            self.end_episode(last & (row >= 0))

    def clear(self) -> None:
        """Record that all steps were dropped."""
        self.ids[:] = -1

    def end_episode(self, where: npt.NDArray[np.bool_]) -> None:
        """Begin a new episode in these environments (E,)."""
        over = np.flatnonzero(where)
        self._step[over] = 0
        self._episode[over] = self._episodes + np.arange(len(over))
        self._episodes += len(over)

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the arrays of another record.

        Raises:
            SnapshotError: The arrays are not those of a record of this size.
        """
        for name, array in arrays.items():
            attribute = getattr(self, name)
            if array.dtype != attribute.dtype or array.shape != attribute.shape:
                raise SnapshotError(f"the snapshot's record `{name}` must be {attribute.dtype}{list(attribute.shape)}")
            setattr(self, name, array)
        capacity, begun = len(self.ids), int(self.ids.max()) + 1
        oldest = int(self.ids[self.ids >= 0].min()) if begun else 0  # not 0 after a `clear`
        stored = np.arange(max(oldest, begun - capacity), begun)
        expected = np.full(capacity, -1)
        expected[stored % capacity] = stored
        if not np.array_equal(self.ids, expected):
            raise SnapshotError("the snapshot's record `ids` does not hold the last ids, each in its slot")

    def find(self, ids: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Return the slots of ids, and which of them still hold their step."""
        slots = ids % len(self.ids)
        return slots, (ids >= 0) & (self.ids[slots] == ids)


class View:
    """What a `CustomSampler` sees of one replica: every array has one entry a stored step, oldest first.

    Attributes:
        ids: int64 (N,).
        ages: int64 (N,); the newest step has age 0.
        episodes: int64 (N,); steps of one environment's episode share a number, which grows.
        steps_in_episode: int64 (N,); 0 for an episode's first step.
        replay_counts: int64 (N,); how often each was drawn.
        feedback: float64 (N,); the last |TD error| or priority of each, NaN where none came yet.
        priorities: float64 (N,); `feedback`, or where none came yet the largest there is, 1 if there is none.
        replica: Which replica of the buffer it is, from 0.
        blocks: int64 (N,), or None without `Sequence`: steps of the same number are one sequence, which comes whichever
            of them is drawn.
    """

    def __init__(self, record: Record, replica: int = 0, stride: int | None = None) -> None:
        self._slots = record.slots()
        self._record = record
        self._stride = stride
        self.replica = replica
        self.ids: Ids = record.ids[self._slots]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ages(self) -> Ids:
        """Steps stored since each."""
        return np.asarray(self.ids[-1] - self.ids, np.int64)

    @property
    def episodes(self) -> Ids:
        """The number of each step's episode."""
        return self._record.episodes[self._slots]

    @property
    def steps_in_episode(self) -> Ids:
        """The place of each step in its episode."""
        return self._record.steps[self._slots]

    @cached_property
    def blocks(self) -> Ids | None:
        """The number of each step's sequence, if sequences are drawn."""
        if self._stride is None:
            return None
        places = self.steps_in_episode // self._stride
        return np.unique(self.episodes * (places.max(initial=0) + 1) + places, return_inverse=True)[1]

    @property
    def replay_counts(self) -> Ids:
        """How often each step was drawn."""
        return self._record.counts[self._slots]

    @property
    def feedback(self) -> Floats:
        """The last feedback for each step, NaN for steps without any."""
        return self._record.feedback[self._slots]

    @property
    def priorities(self) -> Floats:
        """The last feedback for each step; the largest one for steps without any."""
        feedback = self.feedback
        values = feedback[~np.isnan(feedback)]
        return np.where(np.isnan(feedback), values.max() if values.size and values.max() > 0 else 1.0, feedback)
