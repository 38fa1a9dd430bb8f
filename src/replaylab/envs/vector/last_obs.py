"""Last observations of episodes that a reset in the same step cannot overwrite."""

from copy import deepcopy
from typing import Any

import gymnasium as gym


class LastObsCopied(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that returns a copy of each episode's last observation.

    A vector environment in SAME_STEP mode keeps that observation while it resets the environment, which may write the
    next episode's first observation into the same array. Attributes that a wrapper lacks are the environment's.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and copy the observation if the episode ended."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return deepcopy(obs) if terminated or truncated else obs, reward, terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)
