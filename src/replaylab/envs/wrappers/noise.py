"""Rewards with noise, so that TD errors mislead."""

from collections.abc import Sequence
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from replaylab.arguments import NOT_NEGATIVE, checked, optional, takes, whole
from replaylab.envs.atari import is_atari
from replaylab.envs.batched import (
    SINGLE,
    VECTOR,
    Array,
    Bools,
    autoreset_of,
    each_seed,
    packed,
    reset_mask,
    unpack,
)
from replaylab.envs.vectorize import NO_LIMIT, make_single_env, make_vector_env, spec_of

BLOCK = 256
"""Numbers that a copy's stream gives at a time."""

NOISE_KEY = 0x4E4F495345  # keeps the noise apart from the starts of episodes, which come from the same seed


class NoiseStreams:
    """A stream of normal numbers for each of E copies; that of copy i depends only on its seed.

    Raises:
        ConfigError: The scale is negative, or not finite.
    """

    def __init__(self, num_envs: int, scale: float) -> None:
        self.scale = checked("scale", scale, NOT_NEGATIVE, "NoisyRewards")
        self._copies = np.arange(num_envs)
        self._generators = [np.random.Generator(np.random.PCG64()) for _ in range(num_envs)]
        self._block = np.zeros((num_envs, BLOCK))
        self._used = np.full(num_envs, BLOCK)

    def reseed(self, seeds: Sequence[int | None], mask: Bools) -> None:
        """Restart the streams of the masked copies that have a seed."""
        for i in mask.nonzero()[0].tolist():
            if (seed := seeds[i]) is not None:
                sequence = np.random.SeedSequence(seed, spawn_key=(NOISE_KEY,))
                self._generators[i] = np.random.Generator(np.random.PCG64(sequence))
                self._used[i] = BLOCK

    def draw(self, where: Bools) -> npt.NDArray[np.float64]:
        """Return the next number of the copies named by `where`, and 0 for the others, float64 (E,)."""
        for i in (self._used == BLOCK).nonzero()[0].tolist():
            self._generators[i].standard_normal(out=self._block[i])
            self._used[i] = 0
        noise: npt.NDArray[np.float64] = self._block[self._copies, self._used] * self.scale * where
        self._used += where
        return noise

    def state(self) -> dict[str, Array]:
        """Return the state of the streams."""
        return {
            "noise": self._block.copy(),
            "noise_used": self._used.copy(),
            "noise_generators": packed(self._generators),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from what `state` returned."""
        self._block[:], self._used[:] = state["noise"], state["noise_used"]
        self._generators = unpack(state["noise_generators"])


class NoisyRewards(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose rewards have normal noise of mean 0 added.

    Values and the best policy are unchanged. But |δ| now depends on the noise of a step, too, and a sampler
    that follows it replays noise. Source: Schaul et al. 2016, section 3.3, names noisy rewards as the weakness of
    greedy prioritization.

    The noise depends only on the seed of `reset`, through its own stream.

    Args:
        env: The environment.
        scale: Standard deviation of the noise.
    """

    keeps_table: ClassVar[bool] = True
    """Mean rewards stay what a `TransitionTable` has."""

    @takes(env=SINGLE)
    def __init__(self, env: gym.Env[Any, Any], scale: float = 1.0) -> None:
        super().__init__(env)
        self._noise = NoiseStreams(1, scale)
        self._always = np.ones(1, np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; a seed also restarts the noise."""
        self._noise.reseed([seed], self._always)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, with noise in the reward."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward) + float(self._noise.draw(self._always)[0]), terminated, truncated, info

    def own_state(self) -> dict[str, Array]:
        """Return the state of the noise."""
        return self._noise.state()

    def restore_own(self, state: dict[str, Array]) -> None:
        """Take over what `own_state` returned."""
        self._noise.restore(state)


class VectorNoisyRewards(VectorWrapper[Any, Any, Any, Any, Any]):
    """The vector form of `NoisyRewards`: copy i gets the noise of a single environment of the same seed.

    A NEXT_STEP environment's step that only starts an episode earns exactly 0.

    Args:
        env: The vector environment.
        scale: Standard deviation of the noise.
    """

    @takes(env=VECTOR)
    def __init__(self, env: VectorEnv[Any, Any, Any], scale: float = 1.0) -> None:
        super().__init__(env)
        self._noise = NoiseStreams(env.num_envs, scale)
        self._mode = autoreset_of(env)
        self._starting = np.zeros(env.num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; seeds also restart the noise."""
        mask = reset_mask(options, self.num_envs)
        self._noise.reseed(each_seed(seed, self.num_envs), mask)
        self._starting = self._starting & ~mask
        return self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # vector environments take a list

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step, with noise in the rewards."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        noisy = reward + self._noise.draw(~self._starting)
        reward = noisy.astype(reward.dtype) if reward.dtype.kind == "f" else noisy  # integers would cut it off
        if self._mode is AutoresetMode.NEXT_STEP:
            self._starting = terminated | truncated
        return obs, reward, terminated, truncated, infos

    def own_state(self) -> dict[str, Array]:
        """Return the state of the noise."""
        return {**self._noise.state(), "noise_starting": self._starting.copy()}

    def restore_own(self, state: dict[str, Array]) -> None:
        """Take over what `own_state` returned."""
        self._noise.restore(state)
        self._starting = state["noise_starting"].copy()

    def state(self) -> dict[str, Array]:
        """Return the environment's state, which must have one, and that of the noise."""
        return {**self.env.state(), **self.own_state()}  # type: ignore[attr-defined]

    def restore(self, state: dict[str, Array]) -> Any:
        """Continue from what `state` returned; return the last observations."""
        self.restore_own(state)
        return self.env.restore(state)  # type: ignore[attr-defined]


def noisy(env: str = "CartPole-v1", scale: float = 1.0, **kwargs: Any) -> NoisyRewards:
    """Return ``replaylab/NoisyRewards-v0``: a registered environment with noise in its rewards."""
    return NoisyRewards(make_single_env(env, **kwargs), scale)


def vector_noisy(num_envs: int, env: str = "CartPole-v1", scale: float = 1.0, **kwargs: Any) -> VectorNoisyRewards:
    """Return E copies of ``replaylab/NoisyRewards-v0``.

    As with Gymnasium's `make`, the smaller of the limits of the noisy environment and of `env` applies.
    """
    limit = checked("max_episode_steps", kwargs.get("max_episode_steps"), optional(whole(NO_LIMIT)))
    if limit is not None and kwargs.get("backend") is None and not is_atari(env.rpartition(":")[2]):
        registered = spec_of(env).max_episode_steps
        kwargs["max_episode_steps"] = limit if registered is None else min(limit, registered)
    return VectorNoisyRewards(make_vector_env(env, num_envs, **kwargs), scale)
