"""The algorithm that a buffer serves: how the buffer finds it, and figures of the replay in its logger.

Stable-Baselines3 does not tell its buffers which algorithm they are of, so they look for it.
"""

import sys
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.replay import Batch, ReplayBuffer

MAKES = ("_setup_model", "load_replay_buffer")
"""Where the library makes a buffer, and where it reads one in."""


def algorithm_calling(*methods: str) -> OffPolicyAlgorithm | None:
    """Return the algorithm that is in one of these methods at this moment; None: none is.

    The library hands a buffer neither its γ and n nor its progress and its environment. So they are found where the
    call comes from.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods and isinstance(caller := frame.f_locals.get("self"), OffPolicyAlgorithm):
            return caller
        frame = frame.f_back
    return None


EVERY = 16
"""Of so many batches one counts in the means, and the first after each of the logger's dumps: means cost more than a
draw does."""


class Figures:
    """Counts what is drawn and fed back, for the algorithm's logger, under ``replay/``, if there is an algorithm."""

    def __init__(self) -> None:
        self._batches = self._replayed = self._stale = 0
        self._due = False

    def drawn(self, algorithm: Any, replay: ReplayBuffer, batch: Batch) -> None:
        """Note a batch."""
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
        """Note what came back for the batch, and how many of its rows were stored no more."""
        self._stale += stale
        if self._due:  # the first after a dump is
            algorithm.logger.record("replay/stale_updates", self._stale)
            algorithm.logger.record_mean("replay/td_error_mean", float(errors.mean()))
