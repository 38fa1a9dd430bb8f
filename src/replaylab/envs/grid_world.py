"""A grid with walls, as in studies of experience replay: reach the goal in few steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from replaylab.arguments import InvalidArgument, checked, tuple_of
from replaylab.envs.batched import SingleEnv
from replaylab.envs.transition_table import TableVectorEnv, TransitionTable
from replaylab.errors import ConfigError

FREE, WALL, START, GOAL = ".#SG"
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Rows and columns of the actions 0 to 3: up, right, down, left."""

GRID = (
    "..........",
    ".S..#.....",
    "....#.....",
    "....#.....",
    "....#.....",
    "....#..#..",
    ".......#..",
    ".......#..",
    ".......#G.",
    "..........",
)
"""10 × 10 cells with two walls; the shortest way has 16 steps."""


class GridWorldVectorEnv(TableVectorEnv):
    """Walk over a grid from the start to the goal; every step costs 1, and walls and edges block moves.

    Observations are cells, row · columns + column, int64 (E,); a wall's are never seen. Actions are up, right, down and
    left. Reaching the goal terminates. A study file gives the grid as a list of strings.

    Source: Zhang & Sutton 2017, of whose grid only a picture is published; the default one is of this library.

    Args:
        num_envs: E, the number of copies.
        grid: Rows of equal length, of ``.`` free, ``#`` wall, ``S`` start (one), ``G`` goal (one or more).
        max_episode_steps: Time limit of episodes; None: no limit. The registered environment has 5,000.
        autoreset_mode: See `BatchedEnv`.

    Raises:
        ConfigError: The grid is none.

    Example:
        >>> env = GridWorldVectorEnv(2, grid=["S.#", "..G"])
        >>> obs, _ = env.reset(seed=0)
        >>> env.step(np.array([1, 2]))[0], env.step(np.array([1, 1]))[0]
        (array([1, 3]), array([1, 4]))
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        grid: Sequence[str] = GRID,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        table = transition_table(grid)
        super().__init__(table, num_envs, max_episode_steps=max_episode_steps, autoreset_mode=autoreset_mode)


class GridWorldEnv(SingleEnv):
    """A single `GridWorldVectorEnv`, with the same arguments but `num_envs`.

    Attributes:
        P: The transitions in the form of Gymnasium's toy-text environments: ``P[state][action]`` is a list of
            (probability, next state, reward, terminated).
        initial_state_distrib: Probability of each state to be the first, float64 (S,).
    """

    def __init__(self, grid: Sequence[str] = GRID, **kwargs: Any) -> None:
        vector = GridWorldVectorEnv(1, grid=grid, autoreset_mode=AutoresetMode.DISABLED, **kwargs)
        super().__init__(vector)
        table = vector.table
        outcomes = np.stack([table.next_state, table.reward, table.terminated], -1)[:, :, 0]
        self.P = {
            state: {action: [(1.0, int(to), reward, bool(end))] for action, (to, reward, end) in enumerate(row)}
            for state, row in enumerate(outcomes.tolist())
        }
        self.initial_state_distrib = table.start


def transition_table(grid: Sequence[str]) -> TransitionTable:
    """Return the table of a grid: S cells, 4 actions, one outcome each.

    Raises:
        ConfigError: The grid is none.
    """
    cells = np.array([list(row) for row in _checked(grid)])
    height, width = cells.shape
    row, column = np.divmod(np.arange(cells.size)[:, None], width)
    to_row = np.clip(row + [move[0] for move in MOVES], 0, height - 1)
    to_column = np.clip(column + [move[1] for move in MOVES], 0, width - 1)
    blocked = cells[to_row, to_column] == WALL
    next_state = np.where(blocked, row * width + column, to_row * width + to_column)[:, :, None]
    start = (cells.ravel() == START).astype(np.float64)
    ones = np.ones(next_state.shape)
    return TransitionTable(ones, next_state, -ones, (cells == GOAL).ravel()[next_state], start)


def _checked(grid: Sequence[str]) -> tuple[str, ...]:
    rows = checked("grid", grid, tuple_of(_row, "rows of `.`, `#`, `S` and `G`", 1), "GridWorld")
    if len({len(row) for row in rows}) > 1:
        raise ConfigError(f"`grid` of GridWorld must have rows of one length, but got {sorted(map(len, rows))}")
    starts, goals = ("".join(rows).count(cell) for cell in (START, GOAL))
    if starts != 1 or not goals:
        raise ConfigError(f"`grid` of GridWorld must have one S and a G, but got {starts} and {goals}")
    return rows


def _row(value: Any) -> str:
    if not isinstance(value, str) or not value or set(value) - {FREE, WALL, START, GOAL}:
        raise InvalidArgument("")
    return value
