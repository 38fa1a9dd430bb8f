"""Environments with goals, for hindsight: bit flip, and MountainCar and Acrobot with their goals in the observation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.envs.classic_control.acrobot import AcrobotEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from replaylab.arguments import checked, number, optional, whole
from replaylab.envs import acrobot, mountain_car
from replaylab.envs.acrobot import AcrobotVectorEnv
from replaylab.envs.batched import BatchedEnv, Bools, Floats, SingleEnv
from replaylab.envs.mountain_car import MountainCarVectorEnv
from replaylab.errors import ConfigError


def compute_terminated(achieved_goal: npt.NDArray[Any], desired_goal: npt.NDArray[Any], info: Any) -> Bools:  # noqa: ARG001
    """Return whether all bits are as desired, bool (rows,); goals are (rows, n)."""
    return np.equal(achieved_goal, desired_goal).all(-1)  # type: ignore[no-any-return]


def compute_reward(achieved_goal: npt.NDArray[Any], desired_goal: npt.NDArray[Any], info: Any) -> Floats:
    """Return 0 where all bits are as desired, else −1, float32 (rows,); goals are (rows, n)."""
    return compute_terminated(achieved_goal, desired_goal, info) - np.float32(1)


class BitFlipVectorEnv(BatchedEnv):
    """Flip one bit a step until all equal the goal's; bits and goal are drawn uniformly at an episode's start.

    Observations have Gymnasium-Robotics' goal form: ``observation`` and ``achieved_goal`` are the bits, and
    ``desired_goal`` those desired, int8 (E, n) of 0 and 1. Action i flips bit i. A step earns −1, or 0 if it reaches
    the goal, which ends the episode; it is cut after n steps. A uniformly random policy sees the goal about once in
    2ⁿ/n episodes. Source: Andrychowicz et al. 2017, section 3.1.

    Args:
        num_envs: E, the number of copies.
        n: The number of bits.
        max_episode_steps: Time limit of episodes, at most n; None: n.
        autoreset_mode: See `BatchedEnv`.

    Raises:
        ConfigError: n is below 1.

    Example:
        >>> env = BitFlipVectorEnv(2, n=4)
        >>> obs, _ = env.reset(seed=0)
        >>> obs["desired_goal"].shape
        (2, 4)
    """

    compute_reward = staticmethod(compute_reward)
    compute_terminated = staticmethod(compute_terminated)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        n: int = 10,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        n = checked("n", n, whole(most=2**31 - 1), "BitFlip")
        bits: dict[str, Space[Any]] = {
            key: spaces.MultiBinary(n) for key in ("observation", "achieved_goal", "desired_goal")
        }
        actions, variables = spaces.Discrete(n), ((2, n), np.int8)  # the bits, and those desired
        limit = checked("max_episode_steps", max_episode_steps, optional(whole()))
        cut = n if limit is None else min(n, limit)  # one that `gymnasium.make` adds stands around this one, too
        super().__init__(num_envs, spaces.Dict(bits), actions, variables, cut, autoreset_mode)
        self.n = n
        self._copies = np.arange(self.num_envs)

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:  # noqa: ARG002
        return generator.integers(2, size=(2, self.n), dtype=np.int8)

    def _advance(self, action: Any) -> tuple[Floats, Bools]:
        bits, desired = self._variables
        bits[action, self._copies] ^= 1
        reached = np.logical_and.reduce(bits == desired, 0)
        return reached - np.float32(1), reached

    def _observe(self) -> dict[str, npt.NDArray[np.int8]]:
        bits, desired = self._variables.transpose(0, 2, 1)
        return {"observation": bits.copy("C"), "achieved_goal": bits.copy("C"), "desired_goal": desired.copy("C")}


class BitFlipEnv(SingleEnv):
    """A single `BitFlipVectorEnv`, with the same arguments but `num_envs`."""

    compute_reward = staticmethod(compute_reward)
    compute_terminated = staticmethod(compute_terminated)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(BitFlipVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, **kwargs))


@dataclass(frozen=True)
class Climb:
    """A task whose goal is reached when every quantity is at least its desired value.

    Shapes: D numbers of an observation, G of a goal.

    Attributes:
        goal: The goal of the original task, (G,).
        low: The least that can be achieved, (G,).
        high: The most, (G,).
        final_reward: Reward of the step that reaches the goal; every other step earns −1.
        measure: Takes observations (..., D), returns what they achieve, (..., G).
    """

    goal: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    final_reward: float
    measure: Callable[[Floats], Floats]

    def space(self, observation: spaces.Space[Any]) -> spaces.Dict:
        """Return the space of observations in goal form."""
        goal = spaces.Box(np.array(self.low, np.float32), np.array(self.high, np.float32), dtype=np.float32)
        return spaces.Dict({"observation": observation, "achieved_goal": goal, "desired_goal": goal})

    def with_goals(self, obs: Floats) -> dict[str, Floats]:
        """Return observations (..., D) in goal form, with goals float32 (..., G)."""
        achieved = self.measure(obs).astype(np.float32)
        return {"observation": obs, "achieved_goal": achieved, "desired_goal": np.full_like(achieved, self.goal)}

    def compute_terminated(self, achieved_goal: Floats, desired_goal: Floats, info: Any) -> Bools:  # noqa: ARG002
        """Return whether at least the desired is achieved, bool (rows,); goals are (rows, G)."""
        return np.asarray(np.greater_equal(achieved_goal, desired_goal).all(-1))

    def compute_reward(self, achieved_goal: Floats, desired_goal: Floats, info: Any) -> Floats:
        """Return `final_reward` where the goal is reached, else −1, float32 (rows,); goals are (rows, G)."""
        reached = self.compute_terminated(achieved_goal, desired_goal, info)
        return np.where(reached, np.float32(self.final_reward), np.float32(-1))


def position(obs: Floats) -> Floats:
    """Return the car's position."""
    return obs[..., :1]


def position_and_velocity(obs: Floats) -> Floats:
    """Return the car's position and velocity."""
    return obs[..., :2]


def tip_height(obs: Floats) -> Floats:
    """Return how far the tip is above the fixed joint, −cos θ1 − cos(θ1 + θ2), in m."""
    cos_1, sin_1, cos_2, sin_2 = (obs[..., i] for i in range(4))
    return np.clip(-cos_1 - (cos_1 * cos_2 - sin_1 * sin_2), -2, 2)[..., None]


CAR = Climb((mountain_car.GOAL,), (mountain_car.LEFT,), (mountain_car.RIGHT,), -1.0, position)
TIP = Climb((acrobot.GOAL,), (-2.0,), (2.0,), 0.0, tip_height)
VELOCITY = number(
    f"from {-mountain_car.MAX_SPEED} to {mountain_car.MAX_SPEED}, which the car can have",
    lambda speed: abs(speed) <= mountain_car.MAX_SPEED,
)


def car_task(goal_velocity: float) -> Climb:
    """Return the task of a car that must have at least this velocity at the goal; 0 asks only for the position.

    Raises:
        ConfigError: The car is never so fast.
    """
    speed = checked("goal_velocity", goal_velocity, VELOCITY, "MountainCarGoal")
    if speed == 0:  # a car that comes to the goal moves right
        return CAR
    low, high = (mountain_car.LEFT, -mountain_car.MAX_SPEED), (mountain_car.RIGHT, mountain_car.MAX_SPEED)
    return Climb((mountain_car.GOAL, speed), low, high, -1.0, position_and_velocity)


class _GoalVectorEnv(BatchedEnv):
    def __init__(self, task: Climb, num_envs: int, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.task = task
        self.single_observation_space = self.task.space(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.compute_reward, self.compute_terminated = self.task.compute_reward, self.task.compute_terminated

    def _observe(self) -> dict[str, Floats]:
        return self.task.with_goals(super()._observe())


class MountainCarGoalVectorEnv(_GoalVectorEnv, MountainCarVectorEnv):
    """`MountainCarVectorEnv` in goal form: the goal is a position of at least .5.

    Starts, motion, rewards and ends are MountainCar's. ``observation`` is float32 (E, 2); ``achieved_goal``, the
    position, and ``desired_goal`` are float32 (E, 1). Every step costs 1, the last one too, so that it is
    ``compute_terminated`` that hindsight learns from. Source of the form: Andrychowicz et al. 2017.

    Args:
        num_envs: E, the number of copies.
        goal_velocity: The least velocity with which the goal counts as reached. Other than 0, goals are positions and
            velocities, (E, 2), reached by at least as much of both.
        **kwargs: As those of `MountainCarVectorEnv`.

    Raises:
        ConfigError: The car is never so fast.
    """

    def __init__(self, num_envs: int = 1, *, goal_velocity: float = 0.0, **kwargs: Any) -> None:
        super().__init__(car_task(goal_velocity), num_envs, goal_velocity=goal_velocity, **kwargs)


class AcrobotGoalVectorEnv(_GoalVectorEnv, AcrobotVectorEnv):
    """`AcrobotVectorEnv` in goal form: the goal is a tip at least 1 m above the joint.

    Starts, motion, rewards and ends are Acrobot's. ``observation`` is float32 (E, 6); ``achieved_goal``, the tip's
    height in m, and ``desired_goal`` are float32 (E, 1). Source of the form: Andrychowicz et al. 2017.
    """

    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(TIP, num_envs, **kwargs)


class _GoalEnv(gym.Env[Any, Any]):
    def __init__(self, task: Climb, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # the next class's
        self.task = task
        self.observation_space = self.task.space(self.observation_space)
        self.compute_reward, self.compute_terminated = self.task.compute_reward, self.task.compute_terminated

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed, options=options)
        return self.task.with_goals(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, *outcome = super().step(action)
        return self.task.with_goals(obs), *outcome  # type: ignore[return-value]


class MountainCarGoalEnv(_GoalEnv, MountainCarEnv):
    """Gymnasium's MountainCar in the form of `MountainCarGoalVectorEnv`."""

    def __init__(self, render_mode: str | None = None, goal_velocity: float = 0.0) -> None:
        super().__init__(car_task(goal_velocity), render_mode=render_mode, goal_velocity=goal_velocity)


class AcrobotGoalEnv(_GoalEnv, AcrobotEnv):
    """Gymnasium's Acrobot in the form of `AcrobotGoalVectorEnv`."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(TIP, render_mode=render_mode)


GoalFunction = Callable[..., npt.NDArray[np.generic]]
"""Called with achieved goals, desired goals and an info, (..., G) each; returns (...,)."""


def goal_functions(env: Any) -> tuple[GoalFunction, GoalFunction]:
    """Return the functions (compute_reward, compute_terminated) of a goal environment, single or vector.

    Raises:
        ConfigError: The environment has no such functions.

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
