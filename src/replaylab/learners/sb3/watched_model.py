"""A model of Stable-Baselines3 in training, in the form for evaluations, measures and hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from replaylab.integrations.sb3 import ReplayLabBuffer
from replaylab.integrations.sb3.buffer import Samples
from replaylab.learners.api.protocols import Probe
from replaylab.learners.api.random_streams import global_streams_kept
from replaylab.learners.metrics.registry import MetricsRegistry
from replaylab.learners.sb3.dry_updates import DryUpdates
from replaylab.replay import Batch, ReplayBuffer
from replaylab.trees import take

CALLED_OTHERWISE = {"train/n_updates": "train/updates", "replay/td_error_mean": "train/td_error_mean"}
"""Names of logged values → the names of our metrics."""


class WatchedBuffer(ReplayLabBuffer):
    """A buffer that keeps its newest batch and its feedback for measures, and reports each draw."""

    newest_batch: Batch | None = None
    newest_td_error: npt.NDArray[Any] | None = None
    heard: Callable[[Batch], None] | None = None

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Samples:
        self.newest_batch, self.newest_td_error = batch, None
        if self.heard is not None:
            self.heard(batch)
        return super()._samples(batch, env)

    def _fed(self, ids: npt.NDArray[np.int64], errors: npt.NDArray[Any]) -> None:
        self.newest_td_error = errors
        super()._fed(ids, errors)


class WatchedModel:
    """A model in training, in the form for evaluations, measures and hooks.

    Attributes:
        model: The library's own.
    """

    def __init__(self, model: OffPolicyAlgorithm, registry: MetricsRegistry) -> None:
        self.model, self._registry = model, registry
        self.replay: ReplayBuffer = self.buffer.replay

    @property
    def buffer(self) -> WatchedBuffer:
        """The buffer of the model."""
        buffer = self.model.replay_buffer
        assert isinstance(buffer, WatchedBuffer)
        return buffer

    @property
    def newest_batch(self) -> Batch | None:
        """The last drawn batch."""
        return self.buffer.newest_batch

    @property
    def updates(self) -> int:
        """Number of updates."""
        return int(self.model._n_updates)

    def act(self, obs: Any, explore: bool) -> npt.NDArray[Any]:
        """Return actions (1, N, ...) for observations (1, N, ...)."""
        action, _ = self.model.predict(take(obs, 0), deterministic=not explore)
        return np.asarray(action)[None]

    def numbers(self) -> Mapping[str, npt.ArrayLike]:
        """Return registered values that the algorithm and its buffer logged since the last call."""
        return logged(self.model, self._registry) | {"train/updates": self.updates}


def logged(model: OffPolicyAlgorithm, registry: MetricsRegistry) -> dict[str, float]:
    """Return registered values that a model logged since the last call, under our names."""
    named = {CALLED_OTHERWISE.get(name, name): value for name, value in model.logger.name_to_value.items()}
    model.logger.dump()
    return {name: float(value) for name, value in named.items() if name in registry and _is_number(value)}


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)


class WatchedAndProbedModel(WatchedModel):
    """A model that can evaluate a batch.

    Args:
        model: The library's own.
        registry: Registry of the logged metrics.
        again: Makes the same algorithm, whose batches are handed to it.
    """

    def __init__(
        self, model: OffPolicyAlgorithm, registry: MetricsRegistry, again: Callable[[], OffPolicyAlgorithm]
    ) -> None:
        super().__init__(model, registry)
        self._again = again

    @property
    def newest_td_error(self) -> npt.NDArray[Any] | None:
        """The feedback of the newest batch, (B,)."""
        return self.buffer.newest_td_error

    def probe(self, batch: Batch) -> Probe:
        """Return TD errors and gradients that an update of the critics from a batch (1, B, ...) would have."""
        return self._dry.probe(self.model, batch)

    @cached_property
    def _dry(self) -> DryUpdates:
        with global_streams_kept():
            return DryUpdates(self._again())
