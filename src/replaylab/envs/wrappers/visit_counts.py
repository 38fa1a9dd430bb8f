"""How often each state was visited, counted while a vector environment is stepped."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from replaylab.arguments import optional, reals, takes
from replaylab.envs.vector.batched import VECTOR, Array, autoreset_of, reset_mask
from replaylab.envs.wrappers.discretize import each_dimension
from replaylab.errors import ConfigError, ShapeError

Counts = npt.NDArray[np.int64]


class VisitCounts(VectorWrapper[Any, Any, Any, Any, Any]):
    """Counts, for each copy, in which states it acted.

    A visit is a step taken in a state, so that the counts add up to the steps; a step that only starts an episode
    (NEXT_STEP mode) takes none, and states in which episodes end are not acted in.

    Args:
        env: A vector environment with Discrete observations, or with a Box of one axis.
        bins: For a Box, how many bins each dimension has (or all have).
        low: Where the first bins begin, (D,); None: the space's low.
        high: Where the last bins end, (D,); None: the space's high. What lies outside counts in the outermost bins.

    Attributes:
        visits: int64 (E, S), or E and the bins of each dimension.

    Raises:
        ConfigError: The observations cannot be counted, or the bins are not as told.

    Example:
        >>> from replaylab.envs import make_vector_env
        >>> env = VisitCounts(make_vector_env("CliffWalking-v1", 2))
        >>> _ = env.reset(seed=0)
        >>> _ = env.step(np.array([0, 0]))
        >>> env.visits[:, 36].tolist()
        [1, 1]
    """

    @takes(env=VECTOR, low=optional(reals()), high=optional(reals()))
    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bins: int | Sequence[int] | None = None,
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(env)
        space = env.single_observation_space
        if isinstance(space, spaces.Discrete) and bins is None and low is None and high is None:
            self._shape: tuple[int, ...] = (int(space.n),)
            self._low, self._scale = np.array([space.start]), np.ones(1)
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and bins is not None:
            self._shape = each_dimension("bins", bins, space.shape[0])
            self._low, self._scale = _binned(space, self._shape, low, high)
        else:
            raise ConfigError(
                "VisitCounts needs Discrete observations, or a Box of one axis and `bins` (`low` and `high` are for a "
                f"Box), but got {space}, {bins=}, {low=}, {high=}"
            )
        self.visits: Counts = np.zeros((env.num_envs, *self._shape), np.int64)
        self._strides = np.array([int(np.prod(self._shape[d + 1 :])) for d in range(len(self._shape))])
        self._copies, self._mode = np.arange(env.num_envs), autoreset_of(env)
        self._cell = np.zeros(env.num_envs, np.intp)
        self._acts = np.ones(env.num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; the counts stay."""
        self._acts = self._acts | reset_mask(options, self.num_envs)
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # vector environments take a list
        self._cell = self._cells(obs)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step, and count the states stepped from."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        self.visits.reshape(self.num_envs, -1)[self._copies, self._cell] += self._acts
        self._cell = self._cells(obs)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._acts = ~(terminated | truncated)
        return obs, reward, terminated, truncated, infos

    def own_state(self) -> dict[str, Array]:
        """Return the counts, and what the next step is counted by."""
        return {"visits": self.visits.copy(), "visits_cell": self._cell.copy(), "visits_acts": self._acts.copy()}

    def restore_own(self, state: dict[str, Array]) -> None:
        """Take over what `own_state` returned."""
        self.visits[:] = state["visits"]
        self._cell, self._acts = state["visits_cell"].copy(), state["visits_acts"].copy()

    def state(self) -> dict[str, Array]:
        """Return the environment's state, which must have one, and the counts."""
        return {**self.env.state(), **self.own_state()}  # type: ignore[attr-defined]

    def restore(self, state: dict[str, Array]) -> Any:
        """Continue from what `state` returned; return the last observations."""
        self.restore_own(state)
        return self.env.restore(state)  # type: ignore[attr-defined]

    def _cells(self, obs: Array) -> npt.NDArray[np.intp]:
        places = (obs.reshape(self.num_envs, -1) - self._low) * self._scale
        if np.isnan(places).any():
            raise ConfigError(
                f"observations must be numbers to be counted, but one is {obs[np.isnan(places).any(1)][0]}"
            )
        inside = np.minimum(np.maximum(places, 0), np.array(self._shape) - 1).astype(np.intp)
        return inside @ self._strides  # type: ignore[no-any-return]


def _binned(
    space: spaces.Box, bins: tuple[int, ...], low: npt.ArrayLike | None, high: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Return where the bins begin, and how many lie in a unit, float64 (D,) each."""
    begin = np.asarray(space.low if low is None else low, np.float64)
    end = np.asarray(space.high if high is None else high, np.float64)
    if not {begin.shape, end.shape} <= {(), (1,), space.shape}:
        raise ShapeError(f"`low` and `high` must be one number or {space.shape[0]}, but got {low!r} and {high!r}")
    begin, end = np.broadcast_to(begin, space.shape), np.broadcast_to(end, space.shape)
    if not (np.isfinite(end - begin).all() and (begin < end).all()):
        raise ConfigError(
            "VisitCounts needs finite low < high in each dimension, but got "
            f"{bins=}, low={begin.tolist()}, high={end.tolist()}"
        )
    return begin, np.array(bins) / (end - begin)
