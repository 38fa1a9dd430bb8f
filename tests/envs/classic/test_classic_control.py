import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.envs import AcrobotVectorEnv, CartPoleVectorEnv, MountainCarVectorEnv, make_vector_env
from replaylab.errors import ConfigError, ShapeError

MODES = list(AutoresetMode)
SEEDS = [11, 3, 3, 2**31, 0]
CLASSES = {"CartPole-v1": CartPoleVectorEnv, "MountainCar-v0": MountainCarVectorEnv, "Acrobot-v1": AcrobotVectorEnv}
IDS = list(CLASSES)


def sync(env_id, mode, **kwargs):
    return SyncVectorEnv([lambda: gym.make(env_id, **kwargs) for _ in SEEDS], autoreset_mode=mode)


def swinging(env_id, obs, generator):
    """Push the way it moves, most of the time: MountainCar and Acrobot reach their goals."""
    num_actions = 2 if env_id == "CartPole-v1" else 3
    action = generator.integers(num_actions, size=len(obs))
    if num_actions == 2:
        return action
    forward = np.where(obs[:, 1] >= 0, 2, 0) if obs.shape[1] == 2 else np.where(obs[:, 4] >= 0, 0, 2)
    return np.where(generator.random(len(obs)) < 0.2, action, forward)


def same_infos(left, right):
    assert left.keys() == right.keys()
    if "final_obs" in left:
        np.testing.assert_array_equal(left["_final_obs"], right["_final_obs"])
        for i in np.flatnonzero(left["_final_obs"]):
            np.testing.assert_array_equal(left["final_obs"][i], right["final_obs"][i])
            assert left["final_obs"][i].dtype == right["final_obs"][i].dtype
        assert left["final_info"] == right["final_info"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "limit"), [*((one, None) for one in IDS), *((one, 7) for one in IDS)])
def test_equals_gymnasiums_synchronous_vector_env(env_id, limit, mode):
    """Whole episodes, bit for bit; first observations of Acrobot's episodes are rounded once more by Gymnasium."""
    kwargs = {} if limit is None else {"max_episode_steps": limit}
    ours = make_vector_env(env_id, len(SEEDS), autoreset_mode=mode, **kwargs)
    theirs = sync(env_id, mode, **kwargs)
    assert isinstance(ours, CLASSES[env_id])
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    actions = np.random.default_rng(0)
    obs, expected = ours.reset(seed=SEEDS)[0], theirs.reset(seed=SEEDS)[0]
    starts = {"rtol": 0, "atol": 1e-7}
    np.testing.assert_allclose(obs, expected, **starts)
    ends = terminations = 0
    for _ in range(450 if limit is None else 60):
        action = swinging(env_id, obs, actions)
        left, right = ours.step(action), theirs.step(action)
        for a, b in zip(left[1:4], right[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        obs, reward, terminated, truncated, infos = left
        assert (obs.dtype, reward.dtype) == (np.float32, np.float32)
        going = ours.state()["steps"] > 0
        np.testing.assert_array_equal(obs[going], right[0][going])
        np.testing.assert_allclose(obs, right[0], **starts)
        same_infos(infos, right[4])
        ended = terminated | truncated
        ends += ended.sum()
        terminations += terminated.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, again = (env.reset(options={"reset_mask": ended})[0] for env in (ours, theirs))
            np.testing.assert_allclose(obs, again, **starts)
    assert ends > 10
    assert terminations > 10 or limit == 7


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Acrobot-v1"])
def test_random_episodes_equal_gymnasiums_to_their_time_limit(env_id):
    """Acrobot swings on for 500 steps of a chaotic motion: a single last bit that differs would be seen here."""
    ours, theirs = make_vector_env(env_id, len(SEEDS)), sync(env_id, AutoresetMode.SAME_STEP)
    ours.reset(seed=1)
    theirs.reset(seed=1)
    actions = np.random.default_rng(1).integers(3, size=(499, len(SEEDS)))
    for action in actions:
        obs, expected = ours.step(action)[0], theirs.step(action)[0]
    np.testing.assert_allclose(obs, expected, rtol=0, atol=1e-7)
    assert ours.state()["steps"].max() == (499 if env_id == "Acrobot-v1" else 99)


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
@pytest.mark.parametrize("env_id", IDS)
def test_an_environment_depends_on_its_own_seed_only(env_id, mode):
    def trace(seeds, place):
        env = make_vector_env(env_id, len(seeds), autoreset_mode=mode, max_episode_steps=60)
        rows = [env.reset(seed=seeds)[0][place]]
        own, others = np.random.default_rng(2), np.random.default_rng(len(seeds))
        for _ in range(150):
            action = others.integers(2, size=len(seeds))
            action[place] = own.integers(2)
            rows.append(env.step(action)[0][place])
        return np.array(rows)

    alone = trace([4], 0)
    np.testing.assert_array_equal(alone, trace([9, 8, 4, 7], 2))
    np.testing.assert_array_equal(alone, trace([*range(20, 38), 4], 18))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_a_restored_environment_goes_on_exactly(env_id, mode):
    def play(env, steps):
        actions, rows = np.random.default_rng(5), []
        for _ in range(steps):
            *row, _ = env.step(actions.integers(2, size=3))
            rows.append(np.column_stack(row))
            if mode is AutoresetMode.DISABLED and (row[2] | row[3]).any():
                env.reset(options={"reset_mask": row[2] | row[3]})
        return np.array(rows)

    env, other = (make_vector_env(env_id, 3, autoreset_mode=mode, max_episode_steps=40) for _ in range(2))
    env.reset(seed=[1, 2, 3])
    shown = play(env, 40)[-1][:, : env.single_observation_space.shape[0]]
    state = env.state()
    if mode is AutoresetMode.NEXT_STEP:
        assert state["ended"].any() or env_id == "CartPole-v1"
    seen = other.restore({name: values.copy() for name, values in state.items()})
    if mode is not AutoresetMode.DISABLED:
        np.testing.assert_array_equal(seen, shown)
    expected = play(env, 100)
    np.testing.assert_array_equal(play(other, 100), expected)
    env.restore(state)
    np.testing.assert_array_equal(play(env, 100), expected)


def test_another_environments_state_is_refused():
    state = make_vector_env("CartPole-v1", 2).state()
    with pytest.raises(ShapeError, match=r"variables of shape \(4, 3\), but got \(4, 2\)"):
        make_vector_env("CartPole-v1", 3).restore(state)


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
    car = make_vector_env("MountainCar-v0", 1, goal_velocity=0.05)
    car.reset(seed=0, options={"low": 0.49, "high": 0.49})
    assert car.goal_velocity == 0.05
    assert not any(car.step(np.array([2]))[2][0] for _ in range(20))  # too slow


@pytest.mark.parametrize("env_id", IDS)
def test_what_shall_be_rendered_is_gymnasiums(env_id):
    assert isinstance(make_vector_env(env_id, 1, render_mode="rgb_array"), SyncVectorEnv)
    assert isinstance(make_vector_env(env_id, 1, render_mode=None), CLASSES[env_id])


def test_the_disabled_mode_refuses_to_step_an_ended_episode():
    env = make_vector_env("CartPole-v1", 2, autoreset_mode="Disabled", max_episode_steps=1)
    env.reset(seed=[0, 1])
    env.step(np.zeros(2, np.int64))
    with pytest.raises(gym.error.ResetNeeded, match=r"environments \[0, 1\] were not"):
        env.step(np.zeros(2, np.int64))


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\)"):
        make_vector_env("Acrobot-v1", 1).step(np.zeros(1, np.int64))


@pytest.mark.parametrize("env_id", IDS)
def test_bad_actions_are_told(env_id):
    env = make_vector_env(env_id, 2)
    env.reset(seed=0)
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(ConfigError, match=rf"`action` must be in Discrete\(\d\), but got \[{bad[0]}, {bad[1]}\]"):
            env.step(np.array(bad))
    with pytest.raises(ShapeError, match=r"must be integers of shape \(2,\), but got float64\[2\]"):
        env.step(np.zeros(2))
    with pytest.raises(ShapeError, match=r"must be integers of shape \(2,\), but got int64\[3\]"):
        env.step(np.zeros(3, np.int64))


def test_bad_seeds_and_masks_are_told():
    env = make_vector_env("CartPole-v1", 2)
    with pytest.raises(ShapeError, match="`seed` must hold one seed for each of the 2 environments, but got 3"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match=r"`seed` must be a whole number that is not negative, but got -2"):
        env.reset(seed=[1, -2])
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got int64\[2\]"):
        env.reset(options={"reset_mask": np.array([1, 0])})
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got \[True\]"):
        env.reset(options={"reset_mask": [True]})
