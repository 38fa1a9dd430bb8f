"""Observations as images, and names of actions.

Shapes: N observations, S stacked frames, K channels, H and W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

from replaylab.arguments import check, instance, takes, text, tuple_of
from replaylab.envs.pixels.pictures import coloured

_NAMES = tuple_of(text, "a tuple of names")

_COLOURS = (1, 3)
"""Sizes of a last axis that holds colours."""


@dataclass(frozen=True)
class Screen:
    """How an environment's observations are drawn, and what its actions are called.

    Attributes:
        channels: Name of each channel of a bool observation, as in MinAtar; empty: unknown.
        actions: Name of each Discrete action; empty: no names.
    """

    channels: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, channels=_NAMES, actions=_NAMES)

    @classmethod
    @takes(env=instance(VectorEnv, "a vector environment"))
    def of(cls, env: VectorEnv[Any, Any, Any]) -> Screen:
        """Return the screen of a vector environment."""
        inner = getattr(env, "unwrapped", env)
        copies = getattr(inner, "envs", None)
        env_copy: Any = copies[0].unwrapped if copies else inner
        names = env_copy.get_action_meanings() if hasattr(env_copy, "get_action_meanings") else ()
        return cls(tuple(getattr(env_copy, "channels", ())), tuple(names))

    def frames(self, obs: Any) -> npt.NDArray[np.uint8] | None:
        """Return observations (N, ...) as frames, uint8 (N, H, W) grey or (N, H, W, 3); None if they are not images.

        Images are uint8 (H, W) or (H, W, 3); stacks of either, (S, H, W) and (S, H, W, 3), whose last and newest frame
        is shown; and boards, bool (K, H, W), whose K channels have names.

        Example:
            >>> Screen().frames(np.zeros((5, 4, 84, 84), np.uint8)).shape
            (5, 84, 84)
            >>> Screen().frames(np.zeros((5, 4))) is None
            True
        """
        if not isinstance(obs, np.ndarray):  # for example a mapping of arrays
            return None
        pixels: npt.NDArray[Any] = obs
        if pixels.dtype == np.bool_ and pixels.ndim == 4 and pixels.shape[1] == len(self.channels):
            return coloured(pixels, self.channels)
        if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4, 5):
            return None
        in_colour = pixels.ndim == 5 or (pixels.ndim == 4 and pixels.shape[-1] in _COLOURS)
        if pixels.ndim - in_colour == 4:
            pixels = pixels[:, -1]
        if in_colour and pixels.shape[-1] != 3:
            return pixels[..., 0] if pixels.shape[-1] == 1 else None
        return pixels

    def draws(self, space: Space[Any]) -> bool:
        """Return whether a space's observations are images."""
        return isinstance(space, spaces.Box) and self.frames(np.zeros((1, *space.shape), space.dtype)) is not None

    def action(self, number: Any) -> str:
        """Return the name of an action, or its numbers as text if it has no name."""
        array = np.asarray(number)
        if array.ndim == 0 and array.dtype.kind in "iu" and 0 <= int(array) < len(self.actions):
            return self.actions[int(array)].lower()
        return np.array2string(array, precision=2, separator=",")
