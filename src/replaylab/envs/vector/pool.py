"""EnvPool as another way to step many copies: C++ threads instead of NumPy."""

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from replaylab.envs.vector.batched import Array, each_seed
from replaylab.errors import ConfigError, MissingExtraError

ENDLESS = 2**31 - 1
"""What EnvPool calls a limit that is none."""


class PoolVectorEnv(VectorEnv[Any, Array, Array]):
    """An EnvPool as a Gymnasium vector environment in NEXT_STEP mode, copy i on seed i alone.

    It is the same learning problem as Gymnasium's (spaces, rewards, ends, time limits), but not the same numbers: an
    EnvPool draws its starts from generators of its own.

    Args:
        env_id: A name that both EnvPool and Gymnasium know.
        num_envs: E, the number of copies.
        **kwargs: For `envpool.make`, such as max_episode_steps or num_threads.

    Raises:
        MissingExtraError: EnvPool is not installed.
        ConfigError: EnvPool has no such environment, or not with these options.
    """

    def __init__(self, env_id: str, num_envs: int, **kwargs: Any) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._make = {"task_id": env_id, "env_type": "gymnasium", "num_envs": num_envs, **kwargs}
        self._pool, spaces = self._made(list(range(num_envs)))
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every copy.

        Args:
            seed: One for each copy, whose lowest 31 bits count; an int s means s, s + 1, ...; None continues with the
                generators as they are.
            options: None; an EnvPool has none.

        Raises:
            ConfigError: There are options, or seeds for some copies only.
        """
        if options:
            raise ConfigError(f"`options` of an EnvPool's reset must be left out, but got {options}")
        seeds = each_seed(seed, self.num_envs)
        if seed is not None:
            if None in seeds:
                raise ConfigError(f"`seed` must name a seed for each copy of an EnvPool, but got {seeds}")
            self._pool, _ = self._made([int(one) % 2**31 for one in seeds if one is not None])
        return self._pool.reset()[0], {}

    @property
    def max_episode_steps(self) -> int | None:
        """Where episodes are cut; None: nowhere."""
        limit = int(self._pool.config["max_episode_steps"])
        return limit if limit < ENDLESS else None

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step every copy; those whose episode ended only start the next one."""
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(actions))
        return obs, reward, terminated, truncated, {}

    def close_extras(self) -> None:
        """End the pool's threads."""
        self._pool.close()

    def _made(self, seeds: list[int]) -> tuple[Any, tuple[Any, Any]]:
        """Return a new pool, and its spaces, without a warning that their float32 bounds come as float64."""
        try:
            import envpool
        except ImportError as error:
            command = 'pip install "replaylab[envpool]"'
            raise MissingExtraError(f'the backend "envpool" is not installed; run: {command}') from error
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*precision lowered by casting")
                pool = envpool.make(**self._make, seed=seeds)
                return pool, (pool.observation_space, pool.action_space)
        except (AssertionError, TypeError, ValueError, KeyError, gym.error.Error) as error:
            raise ConfigError(f"EnvPool cannot make {self._make['task_id']!r}: {error}") from error
