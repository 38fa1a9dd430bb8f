"""A model of Stable-Baselines3 in training, in the form for evaluations, measures and hooks, and its dry updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.vec_env import VecNormalize

from replaylab.integrations.sb3 import ReplayLabBuffer
from replaylab.integrations.sb3.buffer import Samples
from replaylab.integrations.watched_rewards import Draw
from replaylab.learners.api.protocols import Probe
from replaylab.learners.api.random_streams import Stream, global_streams_kept, numbers
from replaylab.learners.metrics import MetricsRegistry
from replaylab.replay import Batch, ReplayBuffer, Sampler
from replaylab.trees import take


class HandedBuffer(ReplayLabBuffer):
    """A buffer that returns the batch that it was passed: ``buffer.hand.batch``, its columns (B, ...).

    Attributes:
        always: Whether to record the TD errors of every batch, or only if the sampler or the weights need them.
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
    """Replacement of a buffer's replay: the batch to return, and the errors that are fed back."""

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
    """Return a model's buffer, which returns the batches that it is passed."""
    buffer = model.replay_buffer
    assert isinstance(buffer, HandedBuffer)
    return buffer


_KNOWN = {"stable_baselines3", "sb3_contrib", "replaylab", "abc", "builtins"}
"""Packages whose classes have no further state that an update depends on."""


class DryUpdates:
    """Evaluates batches by the networks of a model of any algorithm, without changing the model.

    A second model takes the first one's parameters and trains on the batch. Before it would change its critics, it is
    stopped: the TD errors and the gradient are known by then.

    Args:
        again: The second model, `WithPriorities`, made as the first one; its buffer is a `HandedBuffer`.
    """

    def __init__(self, again: OffPolicyAlgorithm) -> None:
        again.set_logger(Logger(folder=None, output_formats=[]))
        if getattr(again, "max_grad_norm", None) is not None:
            again.max_grad_norm = float("inf")  # type: ignore[attr-defined]  # gradients as they are
        self._again, self._buffer = again, hand_buffer(again)
        self._buffer.always = True
        critic = getattr(again, "critic", None)  # deep Q-learning has none
        self._optimizer: torch.optim.Optimizer = (again.policy if critic is None else critic).optimizer
        self._optimizer.register_step_pre_hook(self._stop)
        self._probes = 0

    @staticmethod
    def known_of(model: OffPolicyAlgorithm) -> bool:
        """Return whether all state that a model's update depends on is known: its class is the library's own."""
        return all(base.__module__.partition(".")[0] in _KNOWN for base in type(model).__mro__)

    def probe(self, model: OffPolicyAlgorithm, batch: Batch) -> Probe:
        """Return TD errors and critic gradients that an update from a batch (1, B, ...) would have.

        What an update draws, such as next actions, is drawn again for each. |δ| of a row is the mean over critics, as
        it is fed back; its sign is that of their mean.
        """
        self._buffer.hand.batch = Batch(take(batch, 0))
        self._probes += 1
        with global_streams_kept():
            torch.manual_seed(numbers(model.seed or 0, Stream.MEASURES, 1, 0, self._probes)[0])
            self._follow(model)
            try:
                self._again.train(gradient_steps=1, batch_size=batch.id.shape[1])
            except _StopHereError as stopped:
                return Probe(stopped.td_error[None], stopped.gradient[None])
        raise AssertionError(f"{type(model).__name__} trained without a step of its critics")  # none does

    def _follow(self, model: OffPolicyAlgorithm) -> None:
        """Copy a model's parameters."""
        names, tensors = model._get_torch_save_params()
        for name in names:
            if not name.endswith("optimizer"):
                recursive_getattr(self._again, name).load_state_dict(recursive_getattr(model, name).state_dict())
        for name in tensors:
            recursive_getattr(self._again, name).data.copy_(recursive_getattr(model, name).data)

    def _stop(self, *_: Any) -> None:
        """Stop the update, where the critics' optimiser is about to make its step."""
        draw = self._buffer.awaited
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        parts = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters]
        gradient = torch.cat([part.reshape(-1) for part in parts]).numpy(force=True)
        errors = None if draw is None else draw.signed_errors()
        assert errors is not None, "the library's losses are differences"
        raise _StopHereError(errors, gradient)


class _StopHereError(Exception):
    """Raised to stop an update, with its δ (B,) and gradient (P,)."""

    def __init__(self, td_error: npt.NDArray[Any], gradient: npt.NDArray[np.float32]) -> None:
        super().__init__()
        self.td_error, self.gradient = td_error, gradient


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
        again: Creates the same algorithm with a buffer that returns the batches it is passed.
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
