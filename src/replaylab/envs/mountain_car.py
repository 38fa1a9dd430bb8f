"""MountainCar, vectorised, with one random generator for each copy."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import utils
from gymnasium.vector import AutoresetMode

from replaylab.arguments import FINITE, checked
from replaylab.envs.batched import BatchedEnv, Bools, Floats

LEFT, RIGHT = -1.2, 0.6  # the ends of the road
GOAL = 0.5
MAX_SPEED = 0.07  # a step
FORCE, GRAVITY = 0.001, 0.0025


class MountainCarVectorEnv(BatchedEnv):
    """Gymnasium's MountainCar, all copies in one call.

    A car too weak for the hill swings itself up: v ← v + .001 (a − 1) − .0025 cos 3x, x ← x + v, and it stops at
    the left end. Observations are float32 (E, 2): position x and velocity v; actions 0: push left, 1: nothing,
    2: push right; every step costs 1. Source: Moore 1990.

    Args:
        num_envs: E, the number of copies.
        max_episode_steps: Time limit of episodes; None: no limit.
        autoreset_mode: See `BatchedEnv`.
        goal_velocity: The least velocity with which the goal at .5 counts as reached.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 200,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        goal_velocity: float = 0.0,
    ) -> None:
        bounds = np.array([LEFT, -MAX_SPEED], np.float32), np.array([RIGHT, MAX_SPEED], np.float32)
        obs_space = spaces.Box(*bounds, dtype=np.float32)
        super().__init__(num_envs, obs_space, spaces.Discrete(3), ((2,), np.float64), max_episode_steps, autoreset_mode)
        self.goal_velocity = checked("goal_velocity", goal_velocity, FINITE)

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:
        return generator.uniform(*utils.maybe_parse_reset_bounds(options, -0.6, -0.4)), 0.0

    def _advance(self, action: Any) -> tuple[Floats, Bools]:
        position, velocity = self._variables
        velocity += (action - 1) * FORCE + np.cos(3 * position) * -GRAVITY
        np.minimum(np.maximum(velocity, -MAX_SPEED, out=velocity), MAX_SPEED, out=velocity)
        position += velocity
        np.minimum(np.maximum(position, LEFT, out=position), RIGHT, out=position)
        velocity[(position == LEFT) & (velocity < 0)] = 0
        terminated = (position >= GOAL) & (velocity >= self.goal_velocity)
        return np.full(self.num_envs, -1, np.float32), terminated
