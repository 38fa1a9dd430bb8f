"""Time limits of environments."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit


def step_limit(env: VectorEnv[Any, Any, Any]) -> int | None:
    """Return the largest number of steps of an episode of a vector environment; None if it declares no limit.

    Example:
        >>> from replaylab.envs import make_vector_env
        >>> step_limit(make_vector_env("CartPole-v1", 2)), step_limit(make_vector_env("Pendulum-v1", 2))
        (500, 200)
    """
    inner: Any = env.unwrapped
    limits = _limits(inner.envs[0]) if isinstance(inner, SyncVectorEnv) else _limit_of(inner)
    return max(limits, default=None)


def _limits(env: gym.Env[Any, Any]) -> Iterator[int]:
    """Yield the limits of an environment and its wrappers; an inner one may be in frames."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            yield env._max_episode_steps
        yield from _limit_of(env)
        env = env.env
    yield from _limit_of(env)


def _limit_of(env: Any) -> Iterator[int]:
    if isinstance(limit := getattr(env, "max_episode_steps", None), int):
        yield limit
