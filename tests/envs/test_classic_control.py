import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.envs import AcrobotVectorEnv, CartPoleVectorEnv, MountainCarVectorEnv, make_vector_env
from replaylab.errors import ConfigError, ShapeError
from tests.envs import conformance

MODES = list(AutoresetMode)
SEEDS = [11, 3, 3, 2**31, 0]
CLASSES = {"CartPole-v1": CartPoleVectorEnv, "MountainCar-v0": MountainCarVectorEnv, "Acrobot-v1": AcrobotVectorEnv}
IDS = list(CLASSES)


def sync(env_id, mode, **kwargs):
    return SyncVectorEnv([lambda: gym.make(env_id, **kwargs) for _ in SEEDS], autoreset_mode=mode)


def swinging(env, obs, rng):
    """Push the way it moves, most of the time: MountainCar and Acrobot reach their goals."""
    action = conformance.at_random(env, obs, rng)
    if env.single_action_space.n == 2:
        return action
    forward = np.where(obs[:, 1] >= 0, 2, 0) if obs.shape[1] == 2 else np.where(obs[:, 4] >= 0, 0, 2)
    return np.where(rng.random(len(obs)) < 0.2, action, forward)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "limit"), [*((env_id, None) for env_id in IDS), *((env_id, 7) for env_id in IDS)])
def test_equals_gymnasiums_synchronous_vector_env(env_id, limit, mode):
    """Whole episodes, bit for bit; first observations of Acrobot's episodes are rounded once more by Gymnasium."""
    kwargs = {} if limit is None else {"max_episode_steps": limit}
    assert isinstance(make_vector_env(env_id, 1, **kwargs), CLASSES[env_id])

    def make(count, mode):
        return make_vector_env(env_id, count, autoreset_mode=mode, **kwargs)

    steps = 450 if limit is None else 60
    single = functools.partial(gym.make, env_id, **kwargs)
    ends, terminations = conformance.equals_single_forms(make, single, mode, steps, swinging, starts=1e-7)
    assert ends > 10
    assert terminations > 10 or limit == 7


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Acrobot-v1"])
def test_random_episodes_equal_gymnasiums_to_their_time_limit(env_id):
    """Acrobot swings on for 500 steps of a chaotic motion: a single last bit that differs would be seen here."""
    vector, gymnasiums = make_vector_env(env_id, len(SEEDS)), sync(env_id, AutoresetMode.SAME_STEP)
    vector.reset(seed=1)
    gymnasiums.reset(seed=1)
    actions = np.random.default_rng(1).integers(3, size=(499, len(SEEDS)))
    for action in actions:
        obs, expected = vector.step(action)[0], gymnasiums.step(action)[0]
    np.testing.assert_allclose(obs, expected, rtol=0, atol=1e-7)
    assert vector.state()["steps"].max() == (499 if env_id == "Acrobot-v1" else 99)


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
    options = {"autoreset_mode": mode, "max_episode_steps": 60}
    conformance.depends_on_its_own_seed_only(lambda count: make_vector_env(env_id, count, **options))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_a_restored_environment_goes_on_exactly(env_id, mode):
    options = {"autoreset_mode": mode, "max_episode_steps": 40}
    conformance.goes_on_exactly(lambda: make_vector_env(env_id, 3, **options), 40, 100)


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
def test_bad_actions_are_reported(env_id):
    env = make_vector_env(env_id, 2)
    env.reset(seed=0)
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(ConfigError, match=rf"`action` must be in Discrete\(\d\), but got \[{bad[0]}, {bad[1]}\]"):
            env.step(np.array(bad))
    with pytest.raises(ShapeError, match=r"must be integers of shape \(2,\), but got float64\[2\]"):
        env.step(np.zeros(2))
    with pytest.raises(ShapeError, match=r"must be integers of shape \(2,\), but got int64\[3\]"):
        env.step(np.zeros(3, np.int64))


def test_bad_seeds_and_masks_are_reported():
    env = make_vector_env("CartPole-v1", 2)
    with pytest.raises(ShapeError, match="`seed` must hold one seed for each of the 2 environments, but got 3"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match=r"`seed` must be a whole number that is not negative, but got -2"):
        env.reset(seed=[1, -2])
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got int64\[2\]"):
        env.reset(options={"reset_mask": np.array([1, 0])})
    with pytest.raises(ShapeError, match=r"must be a bool array of shape \(2,\), but got \[True\]"):
        env.reset(options={"reset_mask": [True]})
