import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.envs import CartPoleVectorEnv, make_vector_env
from replaylab.errors import ConfigError, ShapeError

MODES = list(AutoresetMode)
SEEDS = [11, 3, 3, 2**31, 0]


def sync(mode, seeds, **kwargs):
    return SyncVectorEnv([lambda: gym.make("CartPole-v1", **kwargs) for _ in seeds], autoreset_mode=mode)


def same_infos(left, right):
    assert left.keys() == right.keys()
    if "final_obs" in left:
        np.testing.assert_array_equal(left["_final_obs"], right["_final_obs"])
        for i in np.flatnonzero(left["_final_obs"]):
            np.testing.assert_array_equal(left["final_obs"][i], right["final_obs"][i])
            assert left["final_obs"][i].dtype == right["final_obs"][i].dtype
        assert left["final_info"] == right["final_info"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [7, 500])
def test_equals_gymnasiums_synchronous_vector_env(mode, limit):
    ours = make_vector_env("CartPole-v1", len(SEEDS), autoreset_mode=mode, max_episode_steps=limit)
    theirs = sync(mode, SEEDS, max_episode_steps=limit)
    assert isinstance(ours, CartPoleVectorEnv)
    assert ours.metadata["autoreset_mode"] is mode
    actions = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset(seed=SEEDS)[0], theirs.reset(seed=SEEDS)[0])
    ends = 0
    for _ in range(300):
        action = actions.integers(2, size=len(SEEDS))
        left, right = ours.step(action), theirs.step(action)
        for a, b in zip(left[:4], right[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert left[0].dtype == np.float32
        same_infos(left[4], right[4])
        ended = left[2] | left[3]
        ends += ended.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            obs = [env.reset(options={"reset_mask": ended})[0] for env in (ours, theirs)]
            np.testing.assert_array_equal(*obs)
    assert ends > 20


def test_equals_the_single_environment_of_the_same_seed():
    vector = make_vector_env("CartPole-v1", 2)
    single = gym.make("CartPole-v1")
    start, _ = vector.reset(seed=[5, 6])
    obs, _ = single.reset(seed=6)
    np.testing.assert_array_equal(start[1], obs)
    actions = np.random.default_rng(1)
    for _ in range(200):
        action = actions.integers(2, size=2)
        batch, reward, terminated, truncated, infos = vector.step(action)
        obs, r, end, cut, _ = single.step(int(action[1]))
        assert (reward[1], terminated[1], truncated[1]) == (r, end, cut)
        last = infos["final_obs"][1] if end or cut else batch[1]
        np.testing.assert_array_equal(last, obs)
        if end or cut:
            np.testing.assert_array_equal(batch[1], single.reset()[0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_depends_on_its_own_seed_only(mode):
    def trace(seeds, place):
        env = make_vector_env("CartPole-v1", len(seeds), autoreset_mode=mode)
        rows = [env.reset(seed=seeds)[0][place]]
        own, others = np.random.default_rng(2), np.random.default_rng(len(seeds))
        for _ in range(150):
            action = others.integers(2, size=len(seeds))
            action[place] = own.integers(2)
            rows.append(env.step(action)[0][place])
        return np.array(rows)

    np.testing.assert_array_equal(trace([4], 0), trace([9, 8, 4, 7], 2))


def test_an_int_seed_counts_up_and_no_seed_goes_on():
    env = make_vector_env("CartPole-v1", 3)
    np.testing.assert_array_equal(env.reset(seed=5)[0], env.reset(seed=[5, 6, 7])[0])
    first = env.reset(seed=5)[0]
    second = env.reset()[0]
    assert not np.array_equal(first, second)
    env.reset(seed=5)
    np.testing.assert_array_equal(env.reset()[0], second)


def test_reset_bounds_and_kwargs_reach_gymnasiums_class():
    env = make_vector_env("CartPole-v1", 4, sutton_barto_reward=True)
    obs, _ = env.reset(seed=0, options={"low": 0.2, "high": 0.2})
    np.testing.assert_array_equal(obs, np.full((4, 4), 0.2, np.float32))
    assert env.step(np.zeros(4, np.int64))[1].max() == 0.0


def test_the_disabled_mode_refuses_to_step_an_ended_episode():
    env = make_vector_env("CartPole-v1", 2, autoreset_mode="Disabled", max_episode_steps=1)
    env.reset(seed=[0, 1])
    env.step(np.zeros(2, np.int64))
    with pytest.raises(gym.error.ResetNeeded, match=r"environments \[0, 1\] were not"):
        env.step(np.zeros(2, np.int64))


def test_bad_seeds_and_masks_are_told():
    env = make_vector_env("CartPole-v1", 2)
    with pytest.raises(ShapeError, match="`seed` must hold one seed for each of the 2 environments, got 3"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match=r"`seed` must not be negative, but got \[1, -2\]"):
        env.reset(seed=[1, -2])
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got int64\[2\]"):
        env.reset(options={"reset_mask": np.array([1, 0])})
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got \[True\]"):
        env.reset(options={"reset_mask": [True]})
