"""Vector environments stepped by EnvPool, which uses C++ threads."""

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from replaylab.envs.vector.batched import Array, each_seed
from replaylab.errors import ConfigError
from replaylab.extras import missing_extra

ENDLESS = 2**31 - 1
"""EnvPool's value for no time limit."""


class PoolVectorEnv(VectorEnv[Any, Array, Array]):
    """An EnvPool as a Gymnasium vector environment in NEXT_STEP mode; copy i depends only on seed i.

    It is the same learning problem as Gymnasium's (spaces, rewards, termination, time limits), but does not give the
    same numbers: an EnvPool draws its initial states from its own generators.

    Args:
        env_id: A name in both EnvPool and Gymnasium.
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
        self._pool, spaces = self._new_pool(list(range(num_envs)))
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every copy.

        Args:
            seed: One for each copy, of which the lowest 31 bits are used; an int s means s, s + 1, ...; None continues
                with the current generators.
            options: Must be None: an EnvPool has no reset options.

        Raises:
            ConfigError: There are options, or only some copies have seeds.
        """
        if options:
            raise ConfigError(f"`options` of an EnvPool's reset must be left out, but got {options}")
        seeds = each_seed(seed, self.num_envs)
        if seed is not None:
            if None in seeds:
                raise ConfigError(f"`seed` must name a seed for each copy of an EnvPool, but got {seeds}")
            self._pool, _ = self._new_pool([int(copy_seed) % 2**31 for copy_seed in seeds if copy_seed is not None])
        return self._pool.reset()[0], {}

    @property
    def max_episode_steps(self) -> int | None:
        """Largest number of steps of an episode; None: no limit."""
        limit = int(self._pool.config["max_episode_steps"])
        return limit if limit < ENDLESS else None

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step every copy; those whose episode ended only start the next one."""
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(actions))
        return obs, reward, terminated, truncated, {}

    def close_extras(self) -> None:
        """End the pool's threads."""
        self._pool.close()

    def _new_pool(self, seeds: list[int]) -> tuple[Any, tuple[Any, Any]]:
        """Return a new pool, and its spaces, without a warning that their float32 bounds come as float64."""
        try:
            import envpool
        except ImportError as error:
            raise missing_extra('backend="envpool"', "envpool", "envpool") from error
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*precision lowered by casting")
                pool = envpool.make(**self._make, seed=seeds)
                return pool, (pool.observation_space, pool.action_space)
        except (AssertionError, TypeError, ValueError, KeyError, gym.error.Error) as error:
            raise ConfigError(f"EnvPool cannot make {self._make['task_id']!r}: {error}") from error
