"""The environment that an algorithm with its own training loop steps: it reports each step to the run."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from replaylab.learners.api.clock import Clock
from replaylab.learners.api.finite import check_obs, check_step
from replaylab.learners.api.hooks import EnvStep
from replaylab.trees import map_leaves


class WatchedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that reports each step, and returns observations that the environment does not overwrite.

    Args:
        env: The environment.
        env_id: Environment id for messages.
        seed: Seed for messages.
        clock: That of the run, for messages.
        before_step: Called before each step; returns whether the step counts.
        stepped: Called with each step that counts, of R = 1.
        episode_left: Called when an episode is reset before it ended.

    Raises:
        NonFiniteError: A reward or an observation is NaN or infinite.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        env_id: str,
        seed: int,
        clock: Clock,
        before_step: Callable[[], bool],
        stepped: Callable[[EnvStep], None],
        episode_left: Callable[[], None],
    ) -> None:
        super().__init__(env)
        self._env_id, self._seeds, self._clock = env_id, [seed], clock
        self._before_step, self._stepped, self._episode_left = before_step, stepped, episode_left
        self._obs, self._open = None, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset."""
        obs, info = self.env.reset(seed=seed, options=options)
        obs = deepcopy(obs)
        check_obs(_rows(obs), self._env_id, self._seeds, f"a reset after step {self._clock.steps:,}")
        if self._open:
            self._episode_left()
        self._obs, self._open = obs, False
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and report the step."""
        counts = self._before_step()
        before = self._obs
        obs, reward, terminated, truncated, info = self.env.step(action)
        obs = deepcopy(obs)  # an algorithm may store it after the next step or reset
        self._obs, self._open = obs, not (terminated or truncated)
        if counts:
            ends = np.array([terminated], np.bool_), np.array([truncated], np.bool_)
            rewards, next_obs, ended = np.array([reward], np.float64), _rows(obs), ends[0] | ends[1]
            step = EnvStep(_rows(before), np.asarray(action)[None], rewards, next_obs, *ends, None, ended)
            check_step(step, self._env_id, self._seeds, self._clock.steps + 1)
            self._stepped(step)
        return obs, reward, terminated, truncated, info


def _rows(obs: Any) -> Any:
    """Return an observation with a leading axis R = 1."""
    return map_leaves(lambda part: np.asarray(part)[None], obs)
