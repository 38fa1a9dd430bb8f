"""Random actions of any supported action space."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from replaylab.errors import ConfigError


def random_actions(space: Space[Any], draws: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Draw actions uniformly from the space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, or a Box with bounds.
        draws: Generator of the random numbers.
        shape: Shape of the array of actions.

    Returns:
        `shape` followed by the space's own shape, in its dtype.

    Raises:
        ConfigError: The space is of another kind, or a Box without bounds.
    """
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + draws.integers(space.n, size=shape)).astype(space.dtype, copy=False)
    full_shape = (*shape, *(space.shape or ()))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start + draws.integers(space.nvec, size=full_shape)).astype(space.dtype, copy=False)
    if isinstance(space, spaces.MultiBinary):
        return draws.integers(2, size=full_shape).astype(space.dtype)
    if isinstance(space, spaces.Box) and space.is_bounded() and np.dtype(space.dtype).kind == "f":
        return draws.uniform(space.low, space.high, size=full_shape).astype(space.dtype)
    raise ConfigError(
        "random actions need a space that is Discrete, MultiDiscrete, MultiBinary, or a bounded floating-point Box, "
        f"but got {space}"
    )
