"""Acrobot, vectorised, with one random generator for each copy."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.classic_control import utils
from gymnasium.vector import AutoresetMode

from replaylab.envs.batched import BatchedEnv, Bools, Floats

STEP = 0.2  # s
MAX_SPEED = np.array([[4 * np.pi], [9 * np.pi]])  # rad/s, of the two joints
GOAL = 1.0  # m, height of the tip above the fixed joint
TURN = 2 * np.pi

FOLLOWED = (STEP / 2, STEP / 2, STEP)  # how far a stage's slopes are followed to the next one
QUARTER_TURN = np.array([[np.pi / 2], [0.0]])
GRAVITY = np.array([[0.5 * 9.8], [1.5 * 9.8]])
INERTIA = np.array([[1.25], [0.5]]), np.array([[0.25], [2.0]])

Doubles = npt.NDArray[np.float64]


class AcrobotVectorEnv(BatchedEnv):
    """Gymnasium's Acrobot (the book's equations), all copies in one call.

    Two links of 1 m and 1 kg hang from a joint; a torque on the joint between them swings the tip up to more than
    1 m above the fixed one. Observations are float32 (E, 6): cos θ1, sin θ1, cos θ2, sin θ2, and the two angular
    velocities (rad/s); actions are torques of −1, 0, 1 Nm; every step costs 1, except for the one that reaches the
    goal. Source: Sutton 1996; Sutton & Barto 1998, section 11.3.

    The swinging is chaotic: a last bit that differs is a different episode some hundred steps later. So every number
    is rounded as Gymnasium rounds it, and states, rewards and ends are equal bit for bit; observations are equal except
    for the first of an episode, where Gymnasium takes sines in float32.

    Args:
        num_envs: E, the number of copies.
        max_episode_steps: Time limit of episodes; None: no limit.
        autoreset_mode: See `BatchedEnv`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 500,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        high = np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi], np.float32)
        obs_space = spaces.Box(-high, high, dtype=np.float32)
        super().__init__(num_envs, obs_space, spaces.Discrete(3), ((4,), np.float64), max_episode_steps, autoreset_mode)
        self._motion = Motion(num_envs)

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:
        return generator.uniform(*utils.maybe_parse_reset_bounds(options, -0.1, 0.1), size=4).astype(np.float32)

    def _advance(self, action: Any) -> tuple[Floats, Bools]:
        variables = self._variables
        self._motion.follow(variables, action - 1.0)
        angles, speeds = variables[:2], variables[2:]
        angles -= TURN * np.rint(angles / TURN)
        np.minimum(np.maximum(speeds, -MAX_SPEED, out=speeds), MAX_SPEED, out=speeds)
        terminated = self._height() > GOAL
        return terminated - np.float32(1), terminated

    def _height(self) -> Doubles:
        """Return how far the tips are above the fixed joint, in m, float64 (E,)."""
        first, second = self._variables[:2]
        return -np.cos(first) - np.cos(first + second)  # type: ignore[no-any-return]

    def _observe(self) -> Any:
        obs = np.empty((6, self.num_envs))
        np.cos(self._variables[:2], out=obs[0:4:2])
        np.sin(self._variables[:2], out=obs[1:4:2])
        obs[4:] = self._variables[2:]
        return obs.T.astype(np.float32, order="C")


class Motion:
    """One Runge-Kutta step of fourth order of E acrobots, with torque a on the second joint.

    The accelerations are the book's, with d1 = 3.5 + cos θ2 and d2 = 1.25 + .5 cos θ2:

        phi2   = 4.9 cos(θ1 + θ2 − π/2)
        phi1   = 14.7 cos(θ1 − π/2) + phi2 − .5 ω2² sin θ2 − ω2 ω1 sin θ2
        dω2/dt = (a + phi1 d2/d1 − .5 ω1² sin θ2 − phi2) / (1.25 − d2²/d1)
        dω1/dt = −(d2 dω2/dt + phi1) / d1

    At a few hundred acrobots the NumPy calls cost more than the arithmetic, so rows that take the same operation lie
    side by side. Operations come in Gymnasium's order, except for factors that are powers of two, which round nothing.
    """

    def __init__(self, num_envs: int) -> None:
        # of each stage θ1, θ2, ω1, ω2, and the accelerations: rows 2 to 5 are the slopes of rows 0 to 3
        self._stages = np.empty((4, 6, num_envs))
        self._angles = np.empty((3, num_envs))  # θ1 + θ2 − π/2, θ1 − π/2, θ2
        self._powers = np.empty((6, num_envs))  # ω1, ω2, d2, d2², ω2², ω1²
        self._slopes = np.empty((4, num_envs))

    def follow(self, variables: Doubles, torque: Doubles) -> None:
        """Move (θ1, θ2, ω1, ω2), float64 (4, E), one time step on, in place."""
        stages, slopes = self._stages, self._slopes
        stages[0, :4] = variables
        for k, stage in enumerate(stages):
            self._accelerate(stage, torque)
            if k < 3:
                np.multiply(stage[2:], FOLLOWED[k], out=slopes)
                np.add(variables, slopes, out=stages[k + 1, :4])
        stages[1:3, 2:] *= 2
        np.add(stages[0, 2:], stages[1, 2:], out=slopes)
        slopes += stages[2, 2:]
        slopes += stages[3, 2:]
        slopes *= STEP / 6
        variables += slopes

    def _accelerate(self, stage: Doubles, torque: Doubles) -> None:
        """Write the angular accelerations of a stage into its last two rows."""
        angles, powers = self._angles, self._powers
        np.subtract(stage[:2], QUARTER_TURN, out=angles[1:])
        np.add(stage[0], stage[1], out=angles[0])
        angles[0] -= np.pi / 2
        sin = np.sin(stage[1])
        cos = np.cos(angles, out=angles)
        inertia = cos[2] + INERTIA[0]
        inertia += INERTIA[1]
        d1, d2 = inertia[0], powers[2]
        d1 += 1
        d1 += 1
        np.multiply(inertia[1], 0.5, out=d2)
        cos[:2] *= GRAVITY
        phi2 = cos[0]
        powers[:2] = stage[2:4]
        np.float_power(powers[:3], 2, out=powers[:2:-1])  # rounds as Gymnasium's x ** 2; np.square does not
        turning = powers[4:]
        turning *= sin
        turning *= 0.5
        phi1 = stage[3] * stage[2]
        phi1 *= sin
        phi1 += turning[0]
        np.subtract(cos[1], phi1, out=phi1)
        phi1 += phi2
        ratios = powers[2:4] / d1
        force = np.multiply(ratios[0], phi1, out=ratios[0])
        force += torque
        force -= turning[1]
        force -= phi2
        np.divide(force, np.subtract(1.25, ratios[1], out=ratios[1]), out=stage[5])
        reaction = np.multiply(d2, stage[5], out=stage[4])
        reaction += phi1
        reaction /= d1
        np.negative(reaction, out=reaction)
