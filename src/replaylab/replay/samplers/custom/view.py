"""What a sampler written in Python sees of a buffer."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from replaylab.replay.samplers.custom.records import Record

Ids = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


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
