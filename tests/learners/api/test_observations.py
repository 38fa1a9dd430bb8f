import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab.errors import ConfigError
from replaylab.learners.api.observations import Inputs


def random_obs(space, shape, seed=0):
    """Observations of the space with leading axes of this shape, and the same as a flat list."""
    space.seed(seed)
    samples = [space.sample() for _ in range(int(np.prod(shape)))]
    if isinstance(space, spaces.Dict):
        columns = {name: np.stack([sample[name] for sample in samples]) for name in space}
        return {name: column.reshape(*shape, *column.shape[1:]) for name, column in columns.items()}, samples
    column = np.stack(samples)
    return column.reshape(*shape, *column.shape[1:]), samples


SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float64),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Discrete(5),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([3, 2, 4]),
    spaces.MultiDiscrete([3, 2], start=[7, -1]),
    spaces.MultiBinary(4),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_rows_are_gymnasiums_flattened_observations(space):
    inputs = Inputs(space)
    obs, samples = random_obs(space, (3, 7))
    rows = inputs(obs)
    assert rows.dtype == np.float32
    expected = np.stack([spaces.utils.flatten(space, sample) for sample in samples]).reshape(3, 7, -1)
    assert inputs.size == expected.shape[-1]
    np.testing.assert_array_equal(rows, expected.astype(np.float32))


def test_a_goal_is_observed_and_what_was_achieved_is_not():
    parts = {"observation": spaces.Box(-1, 1, (2,)), "achieved_goal": spaces.Discrete(9), "desired_goal": SPACES[2]}
    inputs = Inputs(spaces.Dict(parts))
    obs, _ = random_obs(spaces.Dict(parts), (2, 4))
    rows = inputs(obs)
    assert rows.shape == (2, 4, inputs.size) == (2, 4, 7)
    np.testing.assert_array_equal(rows[..., :2], obs["observation"])
    np.testing.assert_array_equal(rows[..., 2:].argmax(-1), obs["desired_goal"])


@pytest.mark.parametrize(
    "space", [spaces.Dict({"observation": SPACES[0]}), spaces.Tuple((SPACES[0],)), spaces.Text(3)], ids=str
)
def test_another_space_is_reported_with_what_to_do(space):
    with pytest.raises(
        ConfigError, match=re.escape(f"they are in {space}; wrap the environment in gymnasium.wrappers")
    ):
        Inputs(space)
    assert gym.wrappers.FlattenObservation


@pytest.mark.parametrize(
    ("space", "seen", "row"),
    [
        (spaces.Discrete(4, start=1, dtype=np.uint64), 3, [0, 0, 1, 0]),
        (spaces.MultiDiscrete([3, 2], dtype=np.uint64), [1, 1], [0, 1, 0, 0, 1]),
    ],
)
def test_cases_of_the_widest_type(space, seen, row):
    assert Inputs(space)(np.array([[seen]], np.uint64)).tolist() == [[row]]
