"""The replay of a run on a device: steps come as arrays, and it can be restored in place."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import EnvStep
from replaylab.learners.api.random_streams import Stream, sequence
from replaylab.learners.dqn.captured import Captured
from replaylab.replay import FrameStack, ReplayBuffer, Sampler, Transform
from replaylab.torch import DeviceReplay


class RunReplay(DeviceReplay):
    """A `DeviceReplay` of the steps of one replica's E environments, each observation stored once.

    With ``FrameStack(stacked_input=True)`` it stores the newest frame of the environments' stacks.

    Args:
        env: The environments.
        capacity: C, rounded down to a multiple of E.
        seed: The replica's seed.
        sampler: What is drawn.
        transforms: `NStep` and `FrameStack`.
        device: Where everything is.

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
