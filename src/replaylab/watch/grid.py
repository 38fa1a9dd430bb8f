"""Layouts of grid worlds for maps: the cell of each state, and the direction of each action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST, Rule, check, checked, instance, reals, takes, text, tuple_of, whole
from replaylab.envs.transition_table import unknown_env
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
        moves: The move of each of the A actions, as (rows, columns).
        labels: Letters by state.
        closed: States without a choice of action: terminal states, cliffs, walls. They get no arrows and no values.

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
        letters = {checked("labels", cell, state, "Grid"): letter for cell, letter in labels.items()}
        object.__setattr__(self, "labels", letters)

    @property
    def size(self) -> int:
        """Number of states, S."""
        return self.shape[0] * self.shape[1]

    @classmethod
    @takes(env_id=text)
    def of(cls, env_id: str, **kwargs: Any) -> Grid:
        """Return the grid of Gymnasium's CliffWalking or FrozenLake, of any map.

        Args:
            env_id: The registered name.
            **kwargs: For the environment's constructor.

        Raises:
            ConfigError: The environment is another one; make a `Grid` of its shape and moves.
        """
        try:
            world = gym.make(env_id, **kwargs)
        except (Exception, SystemExit) as error:  # raised by its constructor, or by importing its module
            reason = f"{type(error).__name__}: {error}"
            raise unknown_env("env_id", env_id, reason) from error
        env: Any = world.unwrapped
        world.close()
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
            ShapeError: The values have another shape.
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
    """Return an environment's grid, and the cell of each of its states, shape (S,).

    In CliffWalking and FrozenLake every state is a cell; in Taxi the cell is the taxi's position.

    Args:
        env_id: The registered name.
        **kwargs: For the environment's constructor.

    Raises:
        ConfigError: The grid of the environment is not known.
    """
    if env_id.partition("-")[0] != "Taxi":
        grid = Grid.of(env_id, **kwargs)
        return grid, np.arange(grid.size)
    grid = Grid((5, 5), (DOWN, UP, RIGHT, LEFT), labels={0: "R", 4: "G", 20: "Y", 23: "B"})
    return grid, np.arange(grid.size * TAXI_STATES_OF_A_PLACE) // TAXI_STATES_OF_A_PLACE
