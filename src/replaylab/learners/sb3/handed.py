"""A buffer that passes given batches to an algorithm's own `train`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.integrations.sb3 import ReplayLabBuffer
from replaylab.integrations.sb3.feedback import Draw
from replaylab.replay import Batch, Sampler


class HandedBuffer(ReplayLabBuffer):
    """A buffer that hands out what it is given: ``buffer.hand.batch``, its columns (B, ...).

    Attributes:
        always: Whether to see the TD errors of every batch, or where the sampler or the weights ask for it alone.
    """

    always = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hand = _Hand(self.replay.sampler)
        self.replay = self.hand  # type: ignore[assignment]  # as much of one as `sample` asks for

    def carry(self, on: bool) -> None:
        """Pass on the batch's weights if it has any; over shards those of uniform draws may differ from 1."""
        wanted = self.always or self.hand.sampler.wants_feedback or not (self.hand.batch.weight == 1.0).all()
        self._carrying, self._draw = on and bool(wanted), None

    @property
    def awaited(self) -> Draw | None:
        """The batch whose errors have not been fed back."""
        return self._draw


class SpacesAlone(gym.Env[Any, Any]):
    """An environment that is never stepped."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


class _Hand:
    """In place of a buffer's replay: the batch that it hands out, and the errors that come back."""

    next_id = 0
    batch: Batch
    errors: npt.NDArray[Any] | None = None

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return 1

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:  # noqa: ARG002
        return self.batch

    def update_priorities(self, ids: npt.NDArray[np.int64], td_error: npt.NDArray[Any]) -> int:
        self.errors = td_error
        return len(ids)


def hand_buffer(model: OffPolicyAlgorithm) -> HandedBuffer:
    """Return a model's buffer, which is one that is handed its batches."""
    buffer = model.replay_buffer
    assert isinstance(buffer, HandedBuffer)
    return buffer
