"""Where environments cut their episodes."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit


def step_limit(env: VectorEnv[Any, Any, Any]) -> int | None:
    """Return after how many steps a vector environment cuts an episode at the latest; None: nowhere that it tells.

    Example:
        >>> from replaylab.envs import make_vector_env
        >>> step_limit(make_vector_env("CartPole-v1", 2)), step_limit(make_vector_env("Pendulum-v1", 2))
        (500, 200)
    """
    inner: Any = env.unwrapped
    limits = _limits(inner.envs[0]) if isinstance(inner, SyncVectorEnv) else _own(inner)
    return max(limits, default=None)


def _limits(env: gym.Env[Any, Any]) -> Iterator[int]:
    """Yield the limits of an environment and its wrappers; what an inner one counts may be frames."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            yield env._max_episode_steps
        yield from _own(env)
        env = env.env
    yield from _own(env)


def _own(env: Any) -> Iterator[int]:
    if isinstance(limit := getattr(env, "max_episode_steps", None), int):
        yield limit
