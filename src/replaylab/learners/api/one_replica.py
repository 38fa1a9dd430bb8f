"""Adapter of replays and batches without a replica axis to R = 1."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.replay import Batch, InspectableReplay, Replay
from replaylab.trees import take


class OneReplica:
    """Adds a replica axis of length 1 to a replay without one.

    Args:
        replay: A replay without a replica axis.
    """

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    @property
    def size(self) -> npt.NDArray[np.int64]:
        """Number of stored steps, (1,)."""
        return np.array([len(self.replay)])

    def sample(self, batch_size: int, *, progress: float) -> Batch:
        """Draw a batch, (1, B, ...)."""
        return with_replica(self.replay.sample(batch_size, progress=progress))

    def update_priorities(self, ids: npt.NDArray[Any], td_error: npt.NDArray[Any]) -> int:
        """Update priorities, (1, B)."""
        return self.replay.update_priorities(ids[0], td_error[0])

    def as_batch(self, ids: npt.NDArray[np.int64]) -> Batch:
        """Return steps in the form of a drawn batch, (1, B, ...)."""
        return with_replica(cast("InspectableReplay", self.replay).as_batch(ids[0]))

    def stats(self) -> Any:
        """Return the replay's figures."""
        return self.replay.stats()

    def replay_counts(self) -> list[npt.NDArray[np.int64]]:
        """Return how often each stored step was drawn."""
        return cast("InspectableReplay", self.replay).replay_counts()


def with_replica(batch: Batch) -> Batch:
    """Return a batch (B, ...) as one of one replica, (1, B, ...)."""
    return Batch(take(batch, None))
