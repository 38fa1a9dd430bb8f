"""Algorithms of Stable-Baselines3 as agents: their policy acts, their `train` learns.

Steps are stored and batches are drawn elsewhere. A buffer that holds only one batch passes it to the algorithm's
`train`, and returns its TD errors.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import VectorizedActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from replaylab.errors import ConfigError
from replaylab.learners.api.protocols import State, Step, Update
from replaylab.learners.metrics import MetricsRegistry
from replaylab.learners.sb3.made_model import model_of
from replaylab.learners.sb3.settings import SB3Settings
from replaylab.learners.sb3.watched_model import HandedBuffer, SpacesAlone, hand_buffer, logged
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.replay import Batch, NStep
from replaylab.trees import leaves, take


@dataclass(frozen=True)
class SteppedSB3:
    """An algorithm as a `Learner` whose environments are stepped elsewhere.

    Attributes:
        settings: Settings of the algorithm, whose `train` does the complete update and whose policy has an actor.
        configuration: The configuration of the run.
    """

    settings: SB3Settings
    configuration: TrainingConfig

    online: ClassVar[bool] = False
    needs_next_action: ClassVar[bool] = False

    @property
    def capacity(self) -> int:
        """Capacity of the replay, C steps."""
        return int(self.settings.arguments["buffer_size"])

    @property
    def batch_size(self) -> int:
        """Batch size, B rows."""
        return int(self.settings.arguments["batch_size"])

    @property
    def learning_starts(self) -> int:
        """Steps with random actions before the first update: `learning_starts` of the algorithm plus 1."""
        return int(self.settings.arguments["learning_starts"]) + 1

    @property
    def train_period(self) -> int:
        """Steps between two turns of learning.

        Raises:
            ConfigError: It counts episodes.
        """
        frequency = self.settings.arguments["train_freq"]
        count, unit = frequency if isinstance(frequency, list) else (frequency, "step")
        if unit != "step":
            raise ConfigError(f"`train_freq` must count steps where actors step environments, but got {frequency}")
        return int(count)

    @property
    def gradient_steps(self) -> int:
        """Updates in a turn; −1 of the algorithm's own: one for each step."""
        steps = int(self.settings.arguments["gradient_steps"])
        return self.train_period if steps < 0 else steps

    @property
    def on_cpu(self) -> SteppedSB3:
        """These settings with device "cpu"."""
        settings = replace(self.settings, arguments=self.settings.arguments | {"device": "cpu"})
        return replace(self, settings=settings)

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> SB3Agents:
        """Return an untrained algorithm.

        Raises:
            ConfigError: The algorithm does not support the configuration or the spaces.
        """
        transforms = self.configuration.transforms
        if unsupported := [transform for transform in transforms if not isinstance(transform, NStep)]:
            raise ConfigError(
                "`transforms` must be NStep alone with the algorithms of Stable-Baselines3 and actors, but got "
                f"{type(unsupported[0]).__name__}"
            )
        drawing: dict[str, Any] = {"sampler": self.configuration.sampler}
        for transform in transforms:
            if isinstance(transform, NStep):
                drawing["n_steps"] = transform.steps
        small = replace(self.settings, arguments=self.settings.arguments | {"buffer_size": 1})
        env = SpacesAlone(observation_space, action_space)
        model = model_of(small, self.configuration, seeds[0], env, HandedBuffer, drawing, weighted=True)
        name = self.settings.algorithm
        if type(model)._on_step is not OffPolicyAlgorithm._on_step or not hasattr(model.policy, "actor"):
            raise ConfigError(
                f"with actors `algorithm` must be one whose `train` does the whole update, and whose policy has an "
                f"actor, such as SAC or TD3, but got {name}; for deep Q-learning take DQN()"
            )
        if model.use_sde:
            raise ConfigError(f"`use_sde` of {name} must be False with actors, which do not draw its noise again")
        self._check()
        if model.env is not None and model.env.observation_space != observation_space:
            raise ConfigError(f"{name} would transpose the observations {observation_space}; put channels first")
        return SB3Agents(model, self.settings)

    def _check(self) -> None:
        """Raise for settings that only the algorithm's own loop supports."""
        arguments, name = self.settings.arguments, self.settings.algorithm
        if self.gradient_steps == 0:
            raise ConfigError(f"`gradient_steps` of {name} must not be 0 with actors, which would learn nothing")
        period = arguments.get("target_update_interval", 1)
        if period > 1 and self.gradient_steps > 1:
            raise ConfigError(
                f"`target_update_interval` of {name} must be 1 with actors and several updates in a turn, of which it "
                f"counts each by itself, but got {period}; lower `tau` in its place"
            )
        noise = arguments.get("action_noise") or {}
        if noise.get("type") == "ornstein_uhlenbeck":
            raise ConfigError(
                f"`action_noise` of {name} must not be ornstein_uhlenbeck with actors, which do not restart it with "
                'each episode; take {"type": "normal"}'
            )


class SB3Agents:
    """An algorithm as agents with R = 1; see `Agents` for the methods.

    Args:
        model: It, untrained.
        settings: Its settings.
    """

    def __init__(self, model: OffPolicyAlgorithm, settings: SB3Settings) -> None:
        model.set_logger(Logger(folder=None, output_formats=[]))
        self._model, self._registry = model, MetricsRegistry(settings.metrics)
        self._hand = hand_buffer(model).hand
        self._noise: Any = model.action_noise

    @property
    def updates(self) -> int:
        """Number of updates."""
        return int(self._model._n_updates)

    def act(self, obs: Any, explore: bool) -> npt.NDArray[Any]:
        """Return actions (1, N, ...) for observations (1, N, ...).

        Exploring, N may be any, and actions are random before the first update.
        """
        model, rows = self._model, take(obs, 0)
        if not explore:
            return np.asarray(model.predict(rows, deterministic=True)[0])[None]
        count = len(next(leaves(rows)))
        if self._noise is not None and getattr(model.action_noise, "n_envs", 1) != count:
            model.action_noise = VectorizedActionNoise(self._noise, count)
        model._last_obs = rows
        starts = 0 if self.updates else 1  # of the library's own count of steps, which stays at 0
        action, _ = model._sample_action(starts, model.action_noise, count)
        return np.asarray(action)[None]

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set the training progress, for schedules."""
        self._model._current_progress_remaining = 1.0 - float(np.max(progress))

    def exploration_metrics(self) -> Mapping[str, npt.ArrayLike]:
        """Return an empty mapping: exploration is in the algorithm's own log."""
        return {}

    def observe(self, step: Step) -> None:
        """Do nothing: it learns from batches."""

    def update(self, batch: Batch) -> Update:
        """Have the algorithm do one update from a batch (1, B, ...)."""
        rows = take(batch, 0)
        action = rows["action"]
        if isinstance(self._model.action_space, spaces.Box):
            action = self._model.policy.scale_action(action)
        self._hand.batch, self._hand.errors = Batch(rows | {"action": action.reshape(len(action), -1)}), None
        self._model.train(gradient_steps=1, batch_size=len(action))
        errors = np.full(len(action), np.nan) if self._hand.errors is None else self._hand.errors
        return _SB3Update(errors[None], self)

    def numbers(self) -> dict[str, float]:
        """Return what the algorithm has logged since this was last called, except for its buffer's figures."""
        values = logged(self._model, self._registry)
        return {name: value for name, value in values.items() if name.startswith("train/") and name not in _OURS}

    def weights(self) -> State:
        """Return the actor's parameters, copied, and the count of updates."""
        actor = self._model.policy.actor.state_dict()  # type: ignore[union-attr]  # it has one
        parameters = {f"actor.{name}": tensor.numpy(force=True)[None].copy() for name, tensor in actor.items()}
        return parameters | {"updates": np.array(self.updates)}

    def take_weights(self, weights: State) -> None:
        """Use the actor parameters and the count of updates that `weights` of other agents returned."""
        tensors = {name.removeprefix("actor."): torch.tensor(a[0]) for name, a in weights.items() if name != "updates"}
        self._model.policy.actor.load_state_dict(tensors)  # type: ignore[union-attr]
        self._model._n_updates = int(weights["updates"])

    def state(self) -> State:
        """Return networks, optimisers and the count of updates; the tensors are written by `torch.save`."""
        names, tensors = self._model._get_torch_save_params()
        parts = {name: recursive_getattr(self._model, name).state_dict() for name in names}
        out = io.BytesIO()
        torch.save([parts, {name: recursive_getattr(self._model, name) for name in tensors}], out)
        return {"torch": np.frombuffer(out.getvalue(), np.uint8)[None].copy(), "updates": np.array(self.updates)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        source = io.BytesIO(np.asarray(state["torch"][0]).tobytes())
        parts, tensors = torch.load(source, map_location=self._model.device, weights_only=True)
        for name, part in parts.items():
            recursive_getattr(self._model, name).load_state_dict(part)
        for name, tensor in tensors.items():
            recursive_getattr(self._model, name).data.copy_(tensor)
        self._model._n_updates = int(state["updates"])


_OURS = {"train/updates", "train/td_error_mean"}
"""Metrics that are recorded of every learner."""


@dataclass(frozen=True)
class _SB3Update(Update):
    """An update, with what the algorithm logs of it."""

    agents: SB3Agents

    def metrics(self) -> Mapping[str, npt.ArrayLike]:
        return self.agents.numbers()
