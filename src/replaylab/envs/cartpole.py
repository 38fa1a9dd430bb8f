"""CartPole, vectorised, with one random generator for each copy."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import utils
from gymnasium.vector import AutoresetMode

from replaylab._core import step_cart_poles
from replaylab.arguments import checked, flag
from replaylab.envs.batched import BatchedEnv, Bools, Floats

POSITION_LIMIT = 2.4  # m
ANGLE_LIMIT = 12 * 2 * math.pi / 360


class CartPoleVectorEnv(BatchedEnv):
    """Gymnasium's CartPole, equal to it bit for bit, all copies in one call.

    Gymnasium's own vector class draws all start states from one generator, so an episode's start depends on when
    the neighbours' episodes ended, and it knows NEXT_STEP only. Observations are float32 (E, 4): position,
    velocity, angle, angular velocity; actions 0: push left, 1: push right. Source: Barto, Sutton & Anderson 1983.

    Args:
        num_envs: E, the number of copies.
        max_episode_steps: Time limit of episodes; None: no limit.
        autoreset_mode: See `BatchedEnv`.
        sutton_barto_reward: −1 for falling and 0 else, instead of 1 for each step.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 500,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        sutton_barto_reward: bool = False,
    ) -> None:
        high = np.array([POSITION_LIMIT * 2, np.inf, ANGLE_LIMIT * 2, np.inf], np.float32)
        obs_space = spaces.Box(-high, high, dtype=np.float32)
        super().__init__(num_envs, obs_space, spaces.Discrete(2), ((4,), np.float64), max_episode_steps, autoreset_mode)
        self._sutton_barto_reward = checked("sutton_barto_reward", sutton_barto_reward, flag)

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:
        low, high = utils.maybe_parse_reset_bounds(options, -0.05, 0.05) if options else (-0.05, 0.05)
        return generator.uniform(low, high, size=4)

    def _advance(self, action: Any) -> tuple[Floats, Bools]:
        variables = self._variables
        cos, sin = np.cos(variables[2]), np.sin(variables[2])  # NumPy's, as Gymnasium's are
        terminated = step_cart_poles(variables, action, cos, sin, POSITION_LIMIT, ANGLE_LIMIT)
        if self._sutton_barto_reward:
            return -terminated.astype(np.float32), terminated
        return np.ones(self.num_envs, np.float32), terminated
