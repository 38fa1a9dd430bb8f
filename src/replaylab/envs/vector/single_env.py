"""One copy of a vectorised environment, as a single Gymnasium environment."""

from typing import Any

import gymnasium as gym

from replaylab.envs.vector.batched import BatchedEnv
from replaylab.trees import take


class SingleEnv(gym.Env[Any, Any]):
    """A single environment that is the only copy of a vectorised one, so that there is one implementation.

    Args:
        vector: The vectorised environment, with one copy, in DISABLED mode.
    """

    def __init__(self, vector: BatchedEnv) -> None:
        self._vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return its first observation, and no info."""
        super().reset(seed=seed)
        self._vector.use_generators([self.np_random])
        obs, infos = self._vector.reset(options=options)
        return take(obs, 0), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; return observation, reward, terminated, truncated, info."""
        obs, reward, terminated, truncated, infos = self._vector.step([action])
        return take(obs, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), infos
