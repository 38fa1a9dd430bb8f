"""The algorithm that a buffer serves: how the buffer finds it, and figures of the replay in its logger.

Stable-Baselines3 does not pass the algorithm to its buffers, so they look for it in the call stack.
"""

import sys
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.replay import Batch, ReplayBuffer

MAKES = ("_setup_model", "load_replay_buffer")
"""Methods in which the library creates a buffer, and loads one."""


def algorithm_calling(*methods: str) -> OffPolicyAlgorithm | None:
    """Return the algorithm that is executing one of these methods; None if there is none.

    The library passes neither γ, n, progress nor environment to a buffer. The buffer takes them from the algorithm that
    calls it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods and isinstance(caller := frame.f_locals.get("self"), OffPolicyAlgorithm):
            return caller
        frame = frame.f_back
    return None


EVERY = 16
"""Number of batches of which one counts in the means, besides the first after each of the logger's dumps: the means
cost more than a draw."""


class Figures:
    """Figures of draws and feedback, logged under ``replay/`` by the algorithm's logger, if there is an algorithm."""

    def __init__(self) -> None:
        self._batches = self._replayed = self._stale = 0
        self._due = False

    def drawn(self, algorithm: Any, replay: ReplayBuffer, batch: Batch) -> None:
        """Record a batch."""
        self._batches += 1
        self._replayed += len(batch.id)
        logger = getattr(algorithm, "_logger", None)
        if logger is None:
            return
        logger.record("replay/size", len(replay))
        logger.record("replay/transitions_replayed", self._replayed)
        self._due = self._batches % EVERY == 0 or "replay/age_mean" not in logger.name_to_value
        if self._due:
            logger.record_mean("replay/age_mean", float(int(replay.next_id) - 1 - batch.id.mean()))
            if getattr(algorithm, "takes_weights", False):
                logger.record_mean("replay/weight_mean", float(batch.weight.mean()))

    def fed(self, algorithm: Any, errors: npt.NDArray[np.floating[Any]], stale: int) -> None:
        """Record the errors fed back for the batch, and the number of its rows that were no longer stored."""
        self._stale += stale
        if self._due:  # always for the first batch after a dump
            algorithm.logger.record("replay/stale_updates", self._stale)
            algorithm.logger.record_mean("replay/td_error_mean", float(errors.mean()))
