"""Real observations as numbered bins, for tabular learners."""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from replaylab.arguments import LARGEST, SHARE, check, checked, instance, number, reals, takes, tuple_of, whole
from replaylab.envs.batched import SINGLE, VECTOR
from replaylab.errors import ConfigError, ShapeError

Array = npt.NDArray[Any]


OBSERVATIONS = reals("N")


@dataclass(frozen=True)
class Binning:
    """Cuts each dimension into bins of equal width between low and high; values outside are in the outermost bins.

    The number of an observation counts its bins like the digits of a clock, the last dimension fastest:
    ``((b₀·bins[1] + b₁)·bins[2] + b₂)...``, below the product of all bins.

    Attributes:
        low: Lower edge of each dimension's first bin.
        high: Upper edge of each dimension's last bin.
        bins: Bins of each dimension; 1 leaves it out.

    Example:
        >>> binning = Binning(low=(0.0, -1.0), high=(1.0, 1.0), bins=(4, 2))
        >>> binning(np.array([[0.0, -0.5], [0.3, 0.5], [9.0, 9.0]]))
        array([0, 3, 7])
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    bins: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = tuple_of(number("a number", lambda _: True), "a number for each dimension")
        check(self, low=numbers, high=numbers, bins=tuple_of(whole(), "whole numbers of at least 1"))
        if not 0 < len(self.low) == len(self.high) == len(self.bins):
            raise ConfigError(
                "`low`, `high` and `bins` must have a number for each dimension, but got "
                f"{len(self.low)}, {len(self.high)} and {len(self.bins)}"
            )
        for low, high in zip(self.low, self.high, strict=True):
            if not (np.isfinite([low, high]).all() and low < high):
                raise ConfigError(
                    f"`low` must be finite and below `high`, but got ({low=}, {high=}); where the space has no bounds, "
                    "give them, or take them from data: `Binning.from_data`"
                )
            if not np.isfinite(high - low):
                raise ConfigError(f"`high` must be a finite way above `low`, but got ({low=}, {high=})")
        if self.num_states > LARGEST:
            raise ConfigError(f"`bins` must make fewer than 2^63 states, but make {self.num_states:,}; take fewer")

    @classmethod
    @takes(obs=OBSERVATIONS, coverage=SHARE)
    def from_data(cls, obs: Array, bins: int | tuple[int, ...], *, coverage: float = 1.0) -> "Binning":
        """Take the range of each dimension from observations.

        Args:
            obs: Observations (N, ...).
            bins: Bins of each dimension, or one number for all.
            coverage: Share of the observations between `low` and `high` of a dimension; as many lie below as above.

        Raises:
            ConfigError: A dimension does not vary, or `coverage` is not in (0, 1].
        """
        flat = np.asarray(obs, dtype=np.float64).reshape(len(obs), -1)
        low, high = np.quantile(flat, [(1.0 - coverage) / 2, (1.0 + coverage) / 2], axis=0)
        return cls(tuple(low.tolist()), tuple(high.tolist()), each_dimension(bins, flat.shape[1]))

    @classmethod
    def from_space(cls, space: spaces.Space[Any], bins: int | tuple[int, ...]) -> "Binning":
        """Take the range of each dimension from a Box.

        Raises:
            ConfigError: It is no Box, or has no bounds.
        """
        box = _checked_box(space)
        low, high = (bound.astype(np.float64).ravel() for bound in (box.low, box.high))
        return cls(tuple(low.tolist()), tuple(high.tolist()), each_dimension(bins, len(low)))

    @property
    def num_states(self) -> int:
        """S, the product of all bins."""
        return math.prod(self.bins)

    def __call__(self, obs: Array) -> npt.NDArray[np.int64]:
        """Return the numbers int64 (N,) of observations (N, ...).

        Raises:
            ShapeError: They have another number of dimensions.
            ConfigError: A number is NaN, which is in no bin.
        """
        rows = checked("obs", obs, OBSERVATIONS)
        flat = rows.reshape(len(rows), -1)
        if flat.shape[1] != len(self.bins):
            raise ShapeError(f"observations must have {len(self.bins)} numbers each, but have {flat.shape[1]}")
        if np.isnan(flat).any():
            raise ConfigError(
                f"observations must be numbers to have a bin, but one is {flat[np.isnan(flat).any(1)][0]}"
            )
        low, high, bins = np.array(self.low), np.array(self.high), np.array(self.bins)
        place = np.clip((flat - low) / (high - low) * bins, 0, bins - 1).astype(np.int64)
        number: npt.NDArray[np.int64] = np.ravel_multi_index(tuple(place.T), self.bins).astype(np.int64)
        return number


class Discretize(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment whose Box observations are numbered bins.

    Args:
        env: The environment.
        binning: The bins.

    Raises:
        ConfigError: The observations are no Box, or have another number of dimensions.

    Example:
        >>> binning = Binning((-2.4, -3.0, -0.21, -3.0), (2.4, 3.0, 0.21, 3.0), (3, 3, 6, 6))
        >>> env = Discretize(gym.make("CartPole-v1"), binning)
        >>> env.observation_space, env.reset(seed=0)[0]
        (Discrete(324), 158)
    """

    @takes(env=SINGLE, binning=instance(Binning, "a Binning"))
    def __init__(self, env: gym.Env[Any, Any], binning: Binning) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, binning=binning)
        super().__init__(env)
        self.binning = binning
        self.observation_space = _numbers(env.observation_space, binning)

    def observation(self, observation: Array) -> int:
        """Return the observation's number."""
        return int(self.binning(np.asarray(observation)[None])[0])


class DiscretizeVector(VectorWrapper):
    """A vector environment whose Box observations are numbered bins, in every autoreset mode.

    Args:
        env: The vector environment.
        binning: The bins.

    Raises:
        ConfigError: The observations are no Box, or have another number of dimensions.
    """

    @takes(env=VECTOR, binning=instance(Binning, "a Binning"))
    def __init__(self, env: VectorEnv[Any, Any, Any], binning: Binning) -> None:
        super().__init__(env)
        self.binning = binning
        self.single_observation_space = _numbers(env.single_observation_space, binning)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes as the environment does."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self.binning(obs), infos

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step as the environment does; the observations in ``infos["final_obs"]`` are numbers, too."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            ended = infos["_final_obs"]
            final_obs = np.full(len(ended), None, dtype=object)
            final_obs[ended] = self.binning(np.stack(list(infos["final_obs"][ended])))
            infos = {**infos, "final_obs": final_obs}
        return self.binning(obs), reward, terminated, truncated, infos


def _numbers(space: spaces.Space[Any], binning: Binning) -> spaces.Discrete:
    box = _checked_box(space)
    if np.prod(box.shape) != len(binning.bins):
        raise ConfigError(f"`binning` must have {int(np.prod(box.shape))} dimensions, but has {len(binning.bins)}")
    return spaces.Discrete(binning.num_states)


def _checked_box(space: spaces.Space[Any]) -> spaces.Box:
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"only observations in a Box can be binned, but these are in {space}")
    return space


def each_dimension(bins: Any, dimensions: int) -> tuple[int, ...]:
    """Return the bins of each dimension, given as one number for all or one for each.

    Raises:
        ConfigError: They are neither, or below 1.
    """
    per_dimension = (bins,) * dimensions if isinstance(bins, int | np.integer) else bins
    rule = f"a whole number of at least 1, or {dimensions} of them"
    return checked("bins", per_dimension, tuple_of(whole(), rule, dimensions, dimensions))
