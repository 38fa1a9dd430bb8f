import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.envs import VisitCounts, make_vector_env
from replaylab.errors import ConfigError


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_observation_counts_once(mode):
    env = VisitCounts(make_vector_env("replaylab/BlindCliffwalk-v0", 3, n=4, autoreset_mode=mode))
    expected = np.zeros((3, 4), np.int64)

    def seen(obs, where=(True, True, True)):
        for i in np.flatnonzero(where):
            expected[i, obs[i]] += 1

    seen(env.reset(seed=0)[0])
    actions = np.random.default_rng(0)
    for _ in range(200):
        obs, _, terminated, _, infos = env.step(actions.integers(2, size=3))
        seen(obs)
        if mode is AutoresetMode.SAME_STEP and terminated.any():
            seen(infos["final_obs"], terminated)
        if mode is AutoresetMode.DISABLED and terminated.any():
            seen(env.reset(options={"reset_mask": terminated})[0], terminated)
    np.testing.assert_array_equal(env.visits, expected)
    assert env.visits.sum() > 603 or mode is AutoresetMode.NEXT_STEP


def test_bins_are_those_of_a_histogram():
    env = VisitCounts(make_vector_env("MountainCar-v0", 2), bins=(6, 5), low=[-0.9, -0.02], high=[0.3, 0.02])
    obs, _ = env.reset(seed=0)
    actions = np.random.default_rng(1)
    seen = [obs, *(env.step(actions.integers(3, size=2))[0] for _ in range(150))]
    seen = np.clip(seen, [-0.899, -0.0199], [0.299, 0.0199])
    for copy, rows in enumerate(np.moveaxis(seen, 1, 0)):
        expected = np.histogram2d(*rows.T, bins=(6, 5), range=[(-0.9, 0.3), (-0.02, 0.02)])[0]
        np.testing.assert_array_equal(env.visits[copy], expected)


def test_the_spaces_own_bounds_are_the_default():
    env = VisitCounts(make_vector_env("MountainCar-v0", 1), bins=10)
    env.reset(seed=0, options={"low": -0.5, "high": -0.5})
    assert np.argwhere(env.visits[0]).tolist() == [[3, 5]]


def test_a_restored_count_goes_on_exactly():
    def counted():
        return VisitCounts(make_vector_env("replaylab/BlindCliffwalk-v0", 2, n=3, autoreset_mode="NextStep"))

    def play(env):
        actions = np.random.default_rng(0)
        for _ in range(50):
            env.step(actions.integers(2, size=2))
        return env.visits.copy()

    env, other = counted(), counted()
    env.reset(seed=0)
    play(env)
    other.restore(env.state())
    np.testing.assert_array_equal(play(other), play(env))


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("MountainCar-v0", {}, "needs Discrete observations, or a Box of one axis and `bins`"),
        ("replaylab/BitFlip-v0", {"bins": 2}, "needs Discrete observations, or a Box of one axis and `bins`"),
        ("CartPole-v1", {"bins": 4}, "`low` must be finite and below `high`"),
        ("MountainCar-v0", {"bins": 0}, "`bins` must be a whole number of at least 1, or 2 of them"),
    ],
)
def test_what_cannot_be_counted_is_reported(env_id, options, message):
    with pytest.raises(ConfigError, match=message):
        VisitCounts(make_vector_env(env_id, 1), **options)


def test_what_lies_nowhere_is_not_counted():
    env = VisitCounts(make_vector_env("MountainCar-v0", 2), bins=4)
    with pytest.raises(ConfigError, match=r"observations must be numbers to have a bin, but one is \[ *0\. +nan\]"):
        env._number(np.array([[-0.5, 0.0], [0.0, np.nan]]))


class Rounded(VectorEnv):
    """One copy on a line, half a step to the right each time; resets return integers, and so do steps that reset."""

    num_envs, metadata = 1, {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = spaces.Box(0.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 1), int), {}

    def step(self, actions):
        ended = np.array([True])
        final = np.full(1, None)
        final[0] = np.array([1.5])
        return np.zeros((1, 1), int), np.ones(1), ended, ~ended, {"final_obs": final, "_final_obs": ended}


def test_float_final_obs_after_integer_obs_counts_its_bin():
    env = VisitCounts(Rounded(), bins=4)
    env.reset()
    env.step(np.zeros(1, int))
    assert env.visits.tolist() == [[2, 0, 0, 1]]
