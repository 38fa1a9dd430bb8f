import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from replaylab.envs import Binning, Discretize, DiscretizeVector, make_vector_env
from replaylab.errors import ConfigError, ShapeError

CARTPOLE = Binning((-2.4, -3.0, -0.21, -3.0), (2.4, 3.0, 0.21, 3.0), (3, 1, 6, 5))


def by_hand(binning, obs):
    """One observation, one dimension after the other."""
    number = 0
    for value, low, high, bins in zip(obs, binning.low, binning.high, binning.bins, strict=True):
        edges = [low + (high - low) * edge / bins for edge in range(1, bins)]
        number = number * bins + sum(bool(value >= edge) for edge in edges)
    return number


def test_equals_counting_edges_by_hand():
    obs = np.random.default_rng(0).normal(scale=2.0, size=(2_000, 4))
    numbers = CARTPOLE(obs)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [by_hand(CARTPOLE, row) for row in obs]
    assert set(numbers) <= set(range(CARTPOLE.num_states))


def test_every_number_is_the_middle_of_its_bin():
    middles = [
        low + (np.arange(b) + 0.5) * (high - low) / b for low, high, b in zip(*vars(CARTPOLE).values(), strict=True)
    ]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*middles, indexing="ij")], axis=1)
    assert CARTPOLE(grid).tolist() == list(range(3 * 1 * 6 * 5))


def test_what_lies_beyond_is_in_the_last_bin():
    binning = Binning((0.0,), (1.0,), (4,))
    assert binning(np.array([[-np.inf], [-1e30], [0.0], [0.25], [1.0], [1e30], [np.inf]])).tolist() == [
        0,
        0,
        0,
        1,
        3,
        3,
        3,
    ]


def test_the_range_comes_from_data():
    obs = np.stack([np.arange(101.0), -np.arange(101.0)], axis=1)
    assert Binning.from_data(obs, 5) == Binning((0.0, -100.0), (100.0, 0.0), (5, 5))
    part = Binning.from_data(obs, (5, 3), coverage=0.9)
    np.testing.assert_allclose([part.low, part.high], [[5.0, -95.0], [95.0, -5.0]])
    assert part.bins == (5, 3)


def test_the_range_comes_from_the_space():
    assert Binning.from_space(gym.spaces.Box(-1.0, 3.0, (2,)), 4) == Binning((-1.0, -1.0), (3.0, 3.0), (4, 4))
    with pytest.raises(ConfigError, match=r"`low` must be finite and below `high`.*Binning.from_data"):
        Binning.from_space(gym.make("CartPole-v1").observation_space, 4)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_gymnasiums_checker_passes():
    check_env(Discretize(CartPoleEnv(), CARTPOLE), skip_render_check=True)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_vector_wrapper_equals_the_binned_environment(mode):
    seeds, limit = [3, 1, 4], 12
    plain = make_vector_env("CartPole-v1", 3, autoreset_mode=mode, max_episode_steps=limit)
    env = DiscretizeVector(make_vector_env("CartPole-v1", 3, autoreset_mode=mode, max_episode_steps=limit), CARTPOLE)
    assert env.observation_space == gym.spaces.MultiDiscrete([90, 90, 90])
    assert env.metadata["autoreset_mode"] is mode
    np.testing.assert_array_equal(env.reset(seed=seeds)[0], CARTPOLE(plain.reset(seed=seeds)[0]))
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        action = rng.integers(2, size=3)
        left, right = env.step(action), plain.step(action)
        np.testing.assert_array_equal(left[0], CARTPOLE(right[0]))
        for a, b in zip(left[1:4], right[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        ended = right[2] | right[3]
        ends += ended.sum()
        if mode is AutoresetMode.SAME_STEP and ended.any():
            for i in range(3):
                last = right[4]["final_obs"][i]
                assert left[4]["final_obs"][i] == (None if last is None else by_hand(CARTPOLE, last))
        if mode is AutoresetMode.DISABLED and ended.any():
            for each in (env, plain):
                each.reset(options={"reset_mask": ended})
    assert ends > 5


def test_the_single_and_the_vector_wrapper_agree():
    single, vector = Discretize(gym.make("CartPole-v1"), CARTPOLE), make_vector_env("CartPole-v1", 1)
    vector = DiscretizeVector(vector, CARTPOLE)
    assert single.reset(seed=5)[0] == vector.reset(seed=[5])[0][0]
    for _ in range(8):
        assert single.step(0)[0] == vector.step(np.array([0]))[0][0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (((0.0,), (1.0, 2.0), (3,)), "must have a number for each dimension, but got 1, 2 and 1"),
        (((), (), ()), "must have a number for each dimension, but got 0, 0 and 0"),
        (((1.0,), (1.0,), (3,)), r"`low` must be finite and below `high`, but got \(low=1.0, high=1.0\)"),
        (((0.0,), (np.inf,), (3,)), r"`low` must be finite and below `high`, but got \(low=0.0, high=inf\)"),
        (((0.0,), (1.0,), (0,)), r"`bins` of Binning must be whole numbers of at least 1, but got \(0,\)"),
    ],
)
def test_bad_bins_are_reported(settings, message):
    with pytest.raises(ConfigError, match=message):
        Binning(*settings)


def test_what_cannot_be_binned_is_reported():
    binning = Binning((0.0,), (1.0,), (3,))
    with pytest.raises(ConfigError, match=r"only observations in a Box can be binned, but these are in Discrete\(16\)"):
        Discretize(gym.make("FrozenLake-v1"), binning)
    with pytest.raises(ConfigError, match="`binning` must have 4 dimensions, but has 1"):
        DiscretizeVector(make_vector_env("CartPole-v1", 1), binning)
    with pytest.raises(ShapeError, match="observations must have 1 numbers each, but have 2"):
        binning(np.zeros((3, 2)))
    with pytest.raises(ConfigError, match=r"`coverage` must be in \(0, 1\], but got 0"):
        Binning.from_data(np.zeros((3, 2)), 2, coverage=0)
    with pytest.raises(ConfigError, match=r"observations must be numbers to have a bin, but one is \[nan\]"):
        binning(np.array([[0.5], [np.nan]]))


def test_more_states_than_int64_counts_are_refused():
    wide = np.random.default_rng(0).normal(size=(9, 24))
    with pytest.raises(ConfigError, match="fewer than 2\\^63 states"):
        Binning.from_data(wide, 10)
    assert Binning.from_data(wide[:, :18], 10).num_states == 10**18
    with pytest.raises(ConfigError, match="finite way above"):
        Binning((-1e308,), (1e308,), (10,))
