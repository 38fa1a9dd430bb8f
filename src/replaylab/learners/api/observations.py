"""Network inputs: each observation as one row of numbers.

Shapes: R replicas, N observations of each, I inputs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from replaylab.errors import ConfigError

GOAL_PARTS = ("observation", "desired_goal")
"""Parts that a goal-conditioned network receives; the achieved goal is a function of the observation."""


class Inputs:
    """Turns observations of a space into rows of numbers.

    Numbers of a Box or MultiBinary are unchanged, a Discrete or MultiDiscrete number becomes one-hot, and of a
    goal environment's Dict the observation is followed by the desired goal.

    Args:
        space: Space of one observation.

    Attributes:
        size: I.

    Raises:
        ConfigError: The space is of another kind.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self._parts: list[tuple[str, Inputs]] = []
        self._offsets: npt.NDArray[np.int64] | None = None
        if isinstance(space, spaces.Box | spaces.MultiBinary):
            self.size = int(np.prod(space.shape))
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).astype(np.int64)
            self._offsets = np.cumsum(sizes) - sizes - np.ravel(space.start).astype(np.int64)
            self.size = int(sizes.sum())
        elif isinstance(space, spaces.Dict) and set(GOAL_PARTS) <= space.keys():
            self._parts = [(name, Inputs(space[name])) for name in GOAL_PARTS]
            self.size = sum(part.size for _, part in self._parts)
        else:
            raise ConfigError(
                f"observations must be in a Box, Discrete, MultiDiscrete or MultiBinary space, or in a Dict of "
                f"`observation` and `desired_goal`, but they are in {space}; wrap the environment in "
                "gymnasium.wrappers.FlattenObservation"
            )

    def __call__(self, obs: Any) -> npt.NDArray[np.float32]:
        """Return observations (R, N, ...), or a mapping of such, as float32 (R, N, I)."""
        if self._parts:
            return np.concatenate([part(obs[name]) for name, part in self._parts], axis=-1)
        flat = obs.reshape(*obs.shape[:2], -1)
        if self._offsets is None:
            return np.ascontiguousarray(flat, dtype=np.float32)
        rows = np.zeros((*obs.shape[:2], self.size), np.float32)
        np.put_along_axis(rows, flat.astype(np.int64, copy=False) + self._offsets, 1.0, axis=-1)
        return rows


def inputs_of(space: Space[Any]) -> Inputs | None:
    """Return the inputs that a space's observations become; None if they are not numeric."""
    try:
        return Inputs(space)
    except ConfigError:
        return None


def are_pixels(space: Space[Any]) -> bool:
    """Return whether a space's observations are images: three axes of uint8."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def as_they_are(obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a Box's observations in their shape, floating-point ones as float32."""
    return obs.astype(np.float32, copy=False) if obs.dtype.kind == "f" else obs


def pixels_in_rows(obs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return images (R, N, channels, height, width) as uint8 (R, N, I)."""
    return np.ascontiguousarray(obs.reshape(*obs.shape[:2], -1))
