"""Bit flip: the environment in which learning fails without hindsight."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode

from replaylab.arguments import checked, optional, whole
from replaylab.envs.vector.batched import BatchedEnv, Bools, Floats
from replaylab.envs.vector.single_env import SingleEnv


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
