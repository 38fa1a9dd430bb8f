"""Reward and termination functions of goal environments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import SyncVectorEnv

from replaylab.errors import ConfigError

GoalFunction = Callable[..., npt.NDArray[np.generic]]
"""Called with achieved goals, desired goals and an info, (..., G) each; returns (...,)."""


def goal_functions(env: Any) -> tuple[GoalFunction, GoalFunction]:
    """Return the functions (compute_reward, compute_terminated) of a goal environment, single or vector.

    Raises:
        ConfigError: It has none.

    Example:
        >>> import numpy as np
        >>> from replaylab.envs import MountainCarGoalVectorEnv
        >>> reward, terminated = goal_functions(MountainCarGoalVectorEnv(3))
        >>> terminated(np.array([[0.4], [0.6]]), np.array([[0.5], [0.5]]), {}).tolist()
        [False, True]
    """
    return _function(env, "compute_reward"), _function(env, "compute_terminated")


def _function(env: Any, name: str) -> Any:
    unwrapped = getattr(env, "unwrapped", env)
    single = unwrapped.envs[0].unwrapped if isinstance(unwrapped, SyncVectorEnv) else unwrapped
    function = getattr(single, name, None)
    if function is None:
        spec = getattr(env, "spec", None)
        raise ConfigError(
            f"a goal environment must have the functions `compute_reward` and `compute_terminated` (achieved_goal, "
            f"desired_goal, info), but {spec.id if spec else env} has no `{name}`; use one such as replaylab/BitFlip-v0"
        )
    return function
