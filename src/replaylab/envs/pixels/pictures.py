"""Pictures of MinAtar's boards.

Shapes: N boards, K channels, S sides of a board, H and W pixels.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CELL = 16  # pixels of a side
WATER = "#10141a"
"""Of cells where nothing is."""

COLOURS = {
    # What lies below, first: a cell has the colour of the last channel of these that is set in it.
    "trail": "#3c4653",
    "speed1": "#8a3b1c",
    "speed2": "#74381f",
    "speed3": "#5f3523",
    "speed4": "#4b3126",
    "speed5": "#392c28",
    "oxygen_gauge": "#58b1ea",
    "diver_gauge": "#e597c8",
    "brick": "#b5589a",
    "car": "#ff8f4a",
    "alien": "#35c99c",
    "alien_left": "#35c99c",
    "alien_right": "#9ad4f7",
    "gold": "#f0b840",
    "diver": "#e597c8",
    "enemy": "#d55e00",
    "enemy_fish": "#d55e00",
    "enemy_sub": "#35c99c",
    "enemy_bullet": "#ff5a5a",
    "friendly_bullet": "#f7f3c8",
    "ball": "#f7f3c8",
    "paddle": "#58b1ea",
    "sub_back": "#0072b2",
    "sub_front": "#58b1ea",
    "cannon": "#58b1ea",
    "chicken": "#f7f3c8",
    "player": "#58b1ea",
}
"""Colour of each channel, the hues those of the library's figures."""


def pictures(boards: npt.NDArray[np.bool_], channels: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return boards as pictures, uint8 (N, H, W, 3).

    Args:
        boards: bool (N, K, S, S).
        channels: Their K names.

    Example:
        >>> board = np.zeros((1, 2, 10, 10), bool)
        >>> board[0, 1, 3, 4] = True
        >>> pictures(board, ["trail", "gold"])[0, 3 * CELL, 4 * CELL].tolist()
        [240, 184, 64]
    """
    drawn = np.empty((len(boards), *boards.shape[2:], 3), np.uint8)
    drawn[:] = _rgb(WATER)
    for name in (name for name in COLOURS if name in channels):
        drawn[boards[:, channels.index(name)]] = _rgb(COLOURS[name])
    return drawn.repeat(CELL, 1).repeat(CELL, 2)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))
