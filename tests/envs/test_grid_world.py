"""The grid world: every step against a plain walker, and its values against shortest ways."""

from collections import deque

import gymnasium as gym
import numpy as np
import pytest

from replaylab.envs import TransitionTable, make_vector_env
from replaylab.envs.grid_world import GRID
from replaylab.learners.tabular.dynamic_programming import (
    epsilon_greedy,
    expected_return,
    optimal_values,
    policy_values,
)

ENV = "replaylab/GridWorld-v0"
GRIDS = [
    GRID,
    ("S...", "####", "...G")[::2],  # an open field
    ("S.#G", "..#.", "...."),  # around a wall
    ("G.S", "..#", "..G"),  # two goals
    ("SG",),
]


def walked(grid, cell, action):
    """Return the cell after one step: a bump is none."""
    row, column = cell
    row, column = {0: (row - 1, column), 1: (row, column + 1), 2: (row + 1, column), 3: (row, column - 1)}[action]
    inside = 0 <= row < len(grid) and 0 <= column < len(grid[0])
    return (row, column) if inside and grid[row][column] != "#" else cell


def cell_of(grid, letter):
    return next((r, row.index(letter)) for r, row in enumerate(grid) if letter in row)


def shortest(grid):
    """Return the steps of a shortest way from every cell that has one to a goal, by breadth-first search."""
    free = [(r, c) for r, row in enumerate(grid) for c, letter in enumerate(row) if letter != "#"]
    steps = {cell: 0 for cell in free if grid[cell[0]][cell[1]] == "G"}
    queue = deque(steps)
    while queue:
        cell = queue.popleft()
        for before in free:
            if before not in steps and any(walked(grid, before, action) == cell for action in range(4)):
                steps[before] = steps[cell] + 1
                queue.append(before)
    return steps


@pytest.mark.parametrize("grid", GRIDS)
def test_every_step_is_that_of_a_plain_walker(grid):
    env = make_vector_env(ENV, 3, grid=grid)
    width, start = len(grid[0]), cell_of(grid, "S")
    cells, steps, ends = [start] * 3, [0] * 3, 0
    obs, _ = env.reset(seed=0)
    for action in np.random.default_rng(1).integers(4, size=(2_000, 3)):
        assert obs.tolist() == [row * width + column for row, column in cells]
        obs, reward, terminated, truncated, _ = env.step(action)
        assert reward.tolist() == [-1.0] * 3
        for i in range(3):
            row, column = walked(grid, cells[i], action[i])
            goal, steps[i] = grid[row][column] == "G", steps[i] + 1
            assert (terminated[i], truncated[i]) == (goal, False)
            cells[i], steps[i] = (start, 0) if goal else ((row, column), steps[i])
            ends += goal
    assert ends > 0


@pytest.mark.parametrize("grid", GRIDS)
def test_the_optimal_values_are_the_shortest_ways(grid):
    table = TransitionTable.of(ENV, grid=grid)
    best, width = optimal_values(table), len(grid[0])
    for (row, column), steps in shortest(grid).items():
        if steps > 0:  # a goal is never acted in
            assert best[row * width + column].max() == -steps
    assert expected_return(table, epsilon_greedy(best)) == pytest.approx(-shortest(grid)[cell_of(grid, "S")])


def test_a_corridor_at_random_takes_as_long_as_is_known():
    """One of four actions leads on and one back: T₀ = T₁ + 4, and 2·T_k = T_{k−1} + T_{k+1} + 4 between."""
    table = TransitionTable.of(ENV, grid=["S...G"])
    values = policy_values(table, np.full((5, 4), 0.25)).mean(1)
    times = -values[:4]
    assert times[0] == pytest.approx(times[1] + 4)
    assert times[3] * 2 == pytest.approx(times[2] + 4)
    assert times[0] == pytest.approx(2 * 4 * 5)  # 2 n (n + 1) for a goal n = 4 steps away


def test_the_default_grid_takes_16_steps_and_is_cut_after_5000():
    table = TransitionTable.of(ENV)
    assert optimal_values(table)[11].max() == -16
    assert gym.spec(ENV).max_episode_steps == 5_000
    assert make_vector_env(ENV, 1).max_episode_steps == 5_000
    env = make_vector_env(ENV, 1, max_episode_steps=3, autoreset_mode="Disabled")
    env.reset(seed=0)
    truncated = [bool(env.step([0])[3][0]) for _ in range(3)]
    assert truncated == [False, False, True]


def test_the_single_forms_table_is_that_of_the_vector_form():
    single, vector = gym.make(ENV).unwrapped, make_vector_env(ENV, 1)
    left, right = TransitionTable.of(single), vector.unwrapped.table
    for name in ("probability", "next_state", "reward", "terminated", "start"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
