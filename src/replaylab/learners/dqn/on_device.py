"""Deep Q-learning on a device: the replay of a run, and updates from it as CUDA graphs, without the host."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import EnvStep
from replaylab.learners.api.observations import are_pixels
from replaylab.learners.api.protocols import ValueUpdate
from replaylab.learners.api.random_streams import Stream, sequence
from replaylab.learners.dqn.modules import ModuleAgents, Rows
from replaylab.learners.dqn.settings import DQNSettings
from replaylab.replay import Batch, FrameStack, ReplayBuffer, Sampler, Transform
from replaylab.torch import Captured, DeviceReplay


class DeviceUpdates:
    """Updates one agent from a replay on its device; on a GPU each update with its draw is one CUDA graph.

    A custom module, which may have random numbers, is not captured.

    Args:
        settings: The learner.
        agents: Agents of one replica; they are updated.
        replay: Replay on the agents' device.
        space: Observation space, a Box.
        feeds_back: Whether TD errors are fed back to the replay.
    """

    def __init__(
        self,
        settings: DQNSettings,
        agents: ModuleAgents,
        replay: DeviceReplay,
        space: Space[Any],
        feeds_back: bool,
    ) -> None:
        self._settings, self._agents, self._replay, self._feeds_back = settings, agents, replay, feeds_back
        self._in_shape = settings.module is not None or settings.filters > 0 or are_pixels(space)
        captures = agents.device if settings.module is None else torch.device("cpu")
        self._update = Captured(self._draw_and_learn, captures)
        self._newest: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self) -> None:
        """Do one update; `DeviceReplay.set_progress` was called before."""
        self._agents.updates += 1
        self._newest = self._update()
        self._agents.learners[0].move_target(self._agents.updates)

    def newest(self) -> tuple[ValueUpdate, Batch] | None:
        """Return the newest update, and of its batch (1, B) ids and weights; waits for the device."""
        if self._newest is None:
            return None
        ids, weight, result = (part.numpy(force=True) for part in self._newest)
        td_error, slope, q = result[:, None]
        columns = {"id": ids[None], "weight": weight[None]}
        return ValueUpdate(td_error, slope, q, columns["weight"]), Batch(columns)

    def rows(self, batch: Batch) -> Rows:
        """Return a drawn batch as rows to learn from."""
        discount = batch.discount if "discount" in batch else self._settings.gamma * (~batch.terminated).float()
        obs, next_obs = self._inputs(batch.obs), self._inputs(batch.next_obs)
        action = batch.action - self._agents.first_action
        return Rows(obs, action, batch.reward, next_obs, discount, batch.weight)

    def _draw_and_learn(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and weights (B,), and what `ModuleLearner.learn` returns."""
        batch = self._replay.sample(self._settings.batch_size)
        result = self._agents.learners[0].learn(self._agents.updates, self.rows(batch))
        if self._feeds_back:
            self._replay.update_priorities(batch.id, result[0])
        return batch.id, batch.weight, result

    def _inputs(self, obs: Tensor) -> Tensor:
        """Return observations of a Box as the network takes them."""
        x = obs if self._in_shape else obs.flatten(1).float()
        return x.float() if x.is_floating_point() else x


class RunReplay(DeviceReplay):
    """A `DeviceReplay` of the steps of one replica's E environments, each observation stored once.

    With ``FrameStack(stacked_input=True)`` it stores the newest frame of the environments' stacks.

    Args:
        env: The environments.
        capacity: C, rounded down to a multiple of E.
        seed: The replica's seed.
        sampler: Sampler of the batches.
        transforms: `NStep` and `FrameStack`.
        device: Device of the tensors.

    Raises:
        ConfigError, FieldError: It cannot store such steps, or draw or transform in this way.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        capacity: int,
        seed: int,
        sampler: Sampler,
        transforms: Sequence[Transform],
        device: torch.device,
    ) -> None:
        envs, stacks = env.num_envs, [transform for transform in transforms if isinstance(transform, FrameStack)]
        like = ReplayBuffer.for_env(env, envs, transforms=stacks, next_obs="derived")  # for its fields
        super().__init__(
            max(capacity // envs, 1) * envs,
            like.fields,
            num_envs=envs,
            sampler=sampler,
            transforms=[replace(t, stacked_input=False) if isinstance(t, FrameStack) else t for t in transforms],
            next_obs="derived",
            device=device,
            seed=sequence(seed, Stream.SAMPLING),
        )
        self._stack = next((stack for stack in stacks if stack.stacked_input), None)
        self._columns = {
            name: torch.from_numpy(np.zeros((envs, *field.shape), field.dtype)).to(device)
            for name, field in like.fields.items()
        }
        self._add = Captured(lambda: self.add(**self._columns), device)

    @property
    def replicas(self) -> int:
        """R, which is 1."""
        return 1

    @property
    def autoreset(self) -> None:
        """None: every step given is a true transition."""

    def check_first(self, obs: npt.NDArray[Any]) -> None:
        """Raise `ConfigError` unless the first observations (E, ...) of episodes are what frames stored once become."""
        if self._stack is None:
            return
        older, newest = obs[:, :-1], obs[:, -1:]
        padding = newest if self._stack.padding == "repeat" else np.zeros_like(newest)
        if np.any(older != padding):
            other = "zero" if self._stack.padding == "repeat" else "repeat"
            raise ConfigError(
                f"`padding` of FrameStack must be what the environment puts before an episode's first frame, but "
                f'"{self._stack.padding}" is not; give padding="{other}", or leave FrameStack out'
            )

    def store(self, step: EnvStep) -> None:
        """Store one step of every environment."""
        columns = step.columns()
        for name, column in self._columns.items():
            value = columns[name] if self._stack is None or not name.endswith("obs") else columns[name][:, -1]
            column.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        self._add()

    def restore(self, path: str | os.PathLike[str], *, continue_episodes: bool | None = None) -> None:  # noqa: ARG002
        """Restore what `save` wrote, before anything is stored; environments continue their episodes.

        Raises:
            SnapshotError, StorageError: As for `load`.
        """
        saved = DeviceReplay.load(path, device=self.device)
        self.parts, self._any_stored = saved.parts, saved._any_stored
