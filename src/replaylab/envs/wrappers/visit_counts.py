"""Number of visits of each state, counted while a vector environment is stepped."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from replaylab.arguments import optional, reals, takes
from replaylab.envs.batched import VECTOR, Array, reset_mask
from replaylab.envs.wrappers.discretize import Binning, each_dimension
from replaylab.errors import ConfigError, ShapeError

Counts = npt.NDArray[np.int64]


class VisitCounts(VectorWrapper[Any, Any, Any, Any, Any]):
    """Counts, for each copy, how often it was in each state.

    Every observation is a visit: the first of an episode, and that after each step, including the last. So the counts
    add up to the number of steps plus the number of episodes begun.

    Args:
        env: A vector environment with Discrete observations, or with a Box of one axis.
        bins: For a Box, number of bins of each dimension, or of all.
        low: Lower edge of the first bins, (D,); None: the space's low.
        high: Upper edge of the last bins, (D,); None: the space's high. Values outside count in the outermost bins.

    Attributes:
        visits: int64 (E, S), or E and the bins of each dimension.

    Raises:
        ConfigError: The observations cannot be counted, or `bins`, `low` or `high` do not fit them.

    Example:
        >>> from replaylab.envs import make_vector_env
        >>> env = VisitCounts(make_vector_env("CliffWalking-v1", 2))
        >>> _ = env.reset(seed=0)
        >>> _ = env.step(np.array([0, 0]))
        >>> env.visits[:, [36, 24]].tolist()
        [[1, 1], [1, 1]]
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
        self._number: Callable[[Array], npt.NDArray[np.int64]]
        if isinstance(space, spaces.Discrete) and bins is None and low is None and high is None:
            self._shape: tuple[int, ...] = (int(space.n),)
            self._number = lambda obs: obs - space.start
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and bins is not None:
            self._shape = each_dimension(bins, space.shape[0])
            ends = [np.asarray(space.low if low is None else low), np.asarray(space.high if high is None else high)]
            if not {end.shape for end in ends} <= {(), (1,), space.shape}:
                raise ShapeError(
                    f"`low` and `high` must be one number or {space.shape[0]}, but got {low!r} and {high!r}"
                )
            begin, end = (np.broadcast_to(end.astype(np.float64), space.shape).tolist() for end in ends)
            self._number = Binning(begin, end, self._shape)
        else:
            raise ConfigError(
                "VisitCounts needs Discrete observations, or a Box of one axis and `bins` (`low` and `high` are for a "
                f"Box), but got {space}, {bins=}, {low=}, {high=}"
            )
        self.visits: Counts = np.zeros((env.num_envs, *self._shape), np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes, and count where they begin."""
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # vector environments take a list
        begun = reset_mask(options, self.num_envs)
        self._count(obs[begun], begun)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step, and count the new states; at an episode's end also the first state of the next one."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        self._count(obs, np.ones(self.num_envs, np.bool_))
        if "final_obs" in infos:
            ended = terminated | truncated
            self._count(np.stack(infos["final_obs"][ended]), ended)
        return obs, reward, terminated, truncated, infos

    def own_state(self) -> dict[str, Array]:
        """Return the counts."""
        return {"visits": self.visits.copy()}

    def restore_own(self, state: dict[str, Array]) -> None:
        """Take over what `own_state` returned."""
        self.visits[:] = state["visits"]

    def state(self) -> dict[str, Array]:
        """Return the environment's state, which must have one, and the counts."""
        return {**self.env.state(), **self.own_state()}  # type: ignore[attr-defined]

    def restore(self, state: dict[str, Array]) -> Any:
        """Continue from what `state` returned; return the last observations."""
        self.restore_own(state)
        return self.env.restore(state)  # type: ignore[attr-defined]

    def _count(self, obs: Array, where: Array) -> None:
        """Count the observations (n, ...) of n copies, those where bool (E,) is true."""
        if len(obs):
            self.visits.reshape(self.num_envs, -1)[where.nonzero()[0], self._number(obs)] += 1
