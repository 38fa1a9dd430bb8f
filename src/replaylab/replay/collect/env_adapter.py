"""Adapter of environments, Gymnasium's and EnvPool's: their number, and the reading of what they return."""

from collections.abc import Mapping
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import terminated_and_truncated
from replaylab.errors import ConfigError
from replaylab.replay.data.fields import Tree
from replaylab.replay.spaces import autoreset_of_env
from replaylab.trees import flatten, map_leaves, unflatten

Bools = npt.NDArray[np.bool_]
FIRST, LAST = 0, 2
"""dm_env's step types of a time step that a reset made, and of one that ended an episode."""


class Returned(NamedTuple):
    """Results of environments, with one row for each, whatever their interface.

    Attributes:
        rows: Numbers of the environments, int32 (M,); None: all N in order.
        obs: Nested arrays (M, ...).
        reward: (M, ...); None after a reset.
        terminated: bool (M,); None after a reset.
        truncated: bool (M,); None after a reset.
        final_obs: ``info["final_obs"]``, or None.
    """

    rows: npt.NDArray[np.int32] | None
    obs: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    final_obs: Any = None


class EnvAdapter:
    """Properties of environments that a recorder needs.

    Attributes:
        pool: Whether they are an EnvPool, with `send` and `recv`.
        is_async: Whether `recv` returns some of them only.
        batched: Whether they are several, with a leading axis.
        num_envs: N; 1 for a single environment.
        mode: Their autoreset mode; None for a single environment.
    """

    def __init__(self, env: Any) -> None:
        self.pool = hasattr(env, "send") and hasattr(env, "recv")
        self.batched = self.pool or hasattr(env, "num_envs")
        self.is_async = bool(self.pool and getattr(env, "is_async", False))
        self._limit: float = np.inf
        if not self.pool and self.batched and not hasattr(env, "single_observation_space"):
            raise ConfigError(
                f"environments with `num_envs` must be a Gymnasium vector environment or an EnvPool, but got {env}, "
                "which has no `single_observation_space`; store its steps with ReplayBuffer.add"
            )
        if not self.pool:
            self.num_envs, self.mode = getattr(env, "num_envs", 1), autoreset_of_env(env)
            return
        config = env.config
        if config.get("max_num_players", 1) > 1:
            raise ConfigError(
                "an EnvPool must have one player an environment to be recorded, but has "
                f"max_num_players={config['max_num_players']}; store its steps with ReplayBuffer.add"
            )
        self.num_envs, self.mode = int(config["num_envs"]), "next_step"
        self._limit = config.get("max_episode_steps") or np.inf
        self._steps = np.zeros(self.num_envs, np.int64)  # of each environment's episode

    def read(self, result: Any, obs_tree: Tree) -> Returned:
        """Read what `reset`, `step` or `recv` returned; `obs_tree` is nested as observations are."""
        if hasattr(result, "step_type"):
            return self._read_dm(result, obs_tree)
        obs, *outcome, info = result
        rows = np.asarray(info["env_id"]) if self.pool else None
        if not self.batched:
            obs, outcome = map_leaves(_as_row, obs), [_as_row(value) for value in outcome]
        if not outcome:
            return Returned(rows, obs)
        reward, terminated, truncated = map(np.asarray, outcome)
        return Returned(rows, obs, reward, terminated, truncated, info.get("final_obs"))

    def _read_dm(self, result: Any, obs_tree: Tree) -> Returned:
        """Read a time step of EnvPool's dm API.

        Its discount is 0 at a time limit too, so episodes are counted against the limit: EnvPool's own rule,
        by which its gymnasium API reports them truncated.
        """
        state, step_type = result.observation, np.asarray(result.step_type)
        rows = np.asarray(state.env_id)
        self._steps[rows] = np.where(step_type == FIRST, 0, self._steps[rows] + 1)
        ended = step_type == LAST
        ends = terminated_and_truncated(ended, ended & (self._steps[rows] >= self._limit))
        parts = (attrgetter(path)(state) for path, _ in flatten(obs_tree))  # of a named tuple
        obs = unflatten(obs_tree, parts) if isinstance(obs_tree, Mapping) else state.obs
        return Returned(rows, obs, np.asarray(result.reward), *ends)


def spaces_of(env: Any) -> Any:
    """Return the environments, or where they are an EnvPool what `ReplayBuffer.for_env` must know of them."""
    adapter = EnvAdapter(env)
    if not adapter.pool:
        return env
    return SimpleNamespace(
        num_envs=adapter.num_envs,
        observation_space=env.spec.gymnasium_observation_space,
        single_observation_space=env.spec.gymnasium_observation_space,
        action_space=env.spec.gymnasium_action_space,
        metadata={"autoreset_mode": adapter.mode},
    )


def _as_row(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value)[None]
