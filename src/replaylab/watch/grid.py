"""Grid worlds as the maps see them: which state is which cell, and where an action goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST, Rule, check, checked, instance, reals, takes, text, tuple_of, whole
from replaylab.errors import ConfigError, ShapeError

UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)
"""Moves as (rows, columns)."""


MOVE = tuple_of(whole(-LARGEST), "two whole numbers", 2, 2)
LABELS: Rule[Mapping[int, str]] = instance(Mapping, "a mapping of states to letters")


@dataclass(frozen=True)
class Grid:
    """A grid world of S = rows × columns states, numbered row by row.

    Attributes:
        shape: Rows and columns.
        moves: Where action a goes, as (rows, columns), for each of the A actions.
        labels: Letters for single states.
        closed: States in which nothing is chosen: ends, cliffs, walls. They get no arrows and no values.

    Example:
        >>> Grid((2, 2), labels={0: "S", 3: "G"}, closed=frozenset({3})).size
        4
    """

    shape: tuple[int, int]
    moves: tuple[tuple[int, int], ...] = (UP, RIGHT, DOWN, LEFT)
    labels: Mapping[int, str] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        pair = "two whole numbers of at least 1"
        check(self, shape=tuple_of(whole(), pair, 2, 2), moves=tuple_of(MOVE, "pairs of whole numbers", 1))
        state = whole(0, self.size - 1)
        closed, labels = tuple_of(state, "states of the grid"), checked("labels", self.labels, LABELS, "Grid")
        object.__setattr__(self, "closed", frozenset(checked("closed", self.closed, closed, "Grid")))
        object.__setattr__(self, "labels", {checked("labels", at, state, "Grid"): one for at, one in labels.items()})

    @property
    def size(self) -> int:
        """S."""
        return self.shape[0] * self.shape[1]

    @classmethod
    @takes(env_id=text)
    def of(cls, env_id: str, **kwargs: Any) -> Grid:
        """Return the grid of Gymnasium's CliffWalking or FrozenLake, of any map.

        Args:
            env_id: The registered name.
            **kwargs: For the environment's constructor.

        Raises:
            ConfigError: It is another environment; make a `Grid` of its shape and moves.
        """
        try:
            made = gym.make(env_id, **kwargs)
        except (Exception, SystemExit) as error:  # of its constructor, or of the module that it is in
            told = f"{type(error).__name__}: {error}"
            raise ConfigError(f"`env_id` must name a Gymnasium environment, but got {env_id!r}: {told}") from error
        env: Any = made.unwrapped
        made.close()
        if type(env).__name__ == "CliffWalkingEnv":
            cliff = frozenset(int(s) for s in np.flatnonzero(env._cliff))
            goal = int(np.prod(env.shape)) - 1
            return cls(tuple(env.shape), labels={int(env.start_state_index): "S", goal: "G"}, closed=cliff | {goal})
        if type(env).__name__ == "FrozenLakeEnv":
            letters = [cell.decode() for cell in env.desc.ravel()]
            labels = {s: letter for s, letter in enumerate(letters) if letter in "SG"}
            closed = frozenset(s for s, letter in enumerate(letters) if letter in "HG")
            return cls(tuple(env.desc.shape), (LEFT, DOWN, RIGHT, UP), labels, closed)
        raise ConfigError(
            f"the grid of {env_id} is not known; describe it yourself: "
            "Grid(shape=(rows, columns), moves=..., labels=...)"
        )

    def cells(self, name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values (..., S) or (..., rows, columns) as float64 (..., S).

        Raises:
            ShapeError: They are of neither shape.
        """
        array = checked(name, values, reals())
        if array.shape[-2:] == self.shape:
            array = array.reshape(*array.shape[:-2], self.size)
        if array.shape[-1:] != (self.size,):
            raise ShapeError(
                f"`{name}` must have one number for each state, shape (..., {self.size}) or (..., {self.shape[0]}, "
                f"{self.shape[1]}), but got {list(array.shape)}"
            )
        return array


TAXI_STATES_OF_A_PLACE = 20
"""Taxi numbers its states by row, column, passenger (5) and destination (4), the last one fastest."""


def state_cells(env_id: str, **kwargs: Any) -> tuple[Grid, npt.NDArray[np.intp]]:
    """Return an environment's grid, and the cell that each of its states is in, shape (S,).

    In CliffWalking and FrozenLake every state is a cell; of Taxi the cells are where the taxi is.

    Args:
        env_id: The registered name.
        **kwargs: For the environment's constructor.

    Raises:
        ConfigError: The environment has no grid that is known.
    """
    if env_id.partition("-")[0] != "Taxi":
        grid = Grid.of(env_id, **kwargs)
        return grid, np.arange(grid.size)
    grid = Grid((5, 5), (DOWN, UP, RIGHT, LEFT), labels={0: "R", 4: "G", 20: "Y", 23: "B"})
    return grid, np.arange(grid.size * TAXI_STATES_OF_A_PLACE) // TAXI_STATES_OF_A_PLACE
