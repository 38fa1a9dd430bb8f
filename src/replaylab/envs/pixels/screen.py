"""What observations look like, where they are pictures.

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
        channels: What each channel of a bool observation is, as MinAtar's environments say it; empty: nothing is known.
        actions: Name of each Discrete action; empty: they have none.
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
        one: Any = copies[0].unwrapped if copies else inner
        names = one.get_action_meanings() if hasattr(one, "get_action_meanings") else ()
        return cls(tuple(getattr(one, "channels", ())), tuple(names))

    def frames(self, obs: Any) -> npt.NDArray[np.uint8] | None:
        """Return observations (N, ...) as frames, uint8 (N, H, W) grey or (N, H, W, 3); None if they are no pictures.

        Pictures are uint8 (H, W), with colours (H, W, 3), or stacks of either, (S, H, W) and (S, H, W, 3), of which the
        newest frame is shown, the last; and boards, bool (K, H, W), whose K channels have names.

        Example:
            >>> Screen().frames(np.zeros((5, 4, 84, 84), np.uint8)).shape
            (5, 84, 84)
            >>> Screen().frames(np.zeros((5, 4))) is None
            True
        """
        if not isinstance(obs, np.ndarray):  # a mapping of several, say
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
        """Return whether a space's observations are pictures."""
        return isinstance(space, spaces.Box) and self.frames(np.zeros((1, *space.shape), space.dtype)) is not None

    def action(self, number: Any) -> str:
        """Return what an action is called, or its number."""
        one = np.asarray(number)
        if one.ndim == 0 and one.dtype.kind in "iu" and 0 <= int(one) < len(self.actions):
            return self.actions[int(one)].lower()
        return np.array2string(one, precision=2, separator=",")
