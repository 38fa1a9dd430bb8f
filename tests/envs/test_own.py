"""The library's own environments: registered, passing Gymnasium's checker, single and vector forms alike."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from replaylab.envs import goal_functions, make_vector_env
from replaylab.envs.registration import OWN as REGISTERED
from replaylab.envs.wrappers.noise import VectorNoisyRewards
from replaylab.errors import ConfigError
from replaylab.replay import Hindsight, ReplayBuffer
from tests.envs import conformance

MODES = list(AutoresetMode)
OWN = [
    ("replaylab/BitFlip-v0", {"n": 3}),
    ("replaylab/BitFlip-v0", {"n": 9, "max_episode_steps": 4}),
    ("replaylab/BlindCliffwalk-v0", {"n": 3}),
    ("replaylab/GridWorld-v0", {"grid": ("S.", "#G"), "max_episode_steps": 9}),
    ("replaylab/MountainCarGoal-v0", {}),
    ("replaylab/MountainCarGoal-v0", {"goal_velocity": 0.02}),
    ("replaylab/AcrobotGoal-v0", {"max_episode_steps": 30}),
    ("replaylab/NoisyRewards-v0", {"env": "CartPole-v1", "scale": 0.5}),
    ("replaylab/NoisyRewards-v0", {"env": "replaylab/BlindCliffwalk-v0", "n": 2}),
]
GOALS = ["replaylab/BitFlip-v0", "replaylab/MountainCarGoal-v0", "replaylab/AcrobotGoal-v0"]
LIMITED = [
    ("replaylab/BitFlip-v0", {"n": 9}),
    ("replaylab/BlindCliffwalk-v0", {"n": 5}),
    ("replaylab/GridWorld-v0", {}),
    ("replaylab/MountainCarGoal-v0", {}),
    ("replaylab/AcrobotGoal-v0", {}),
    *((f"replaylab/{name}", {}) for name in REGISTERED if name.startswith("MinAtar")),
    ("replaylab/NoisyRewards-v0", {"env": "MountainCar-v0"}),
    ("replaylab/NoisyRewards-v0", {"env": "replaylab/BitFlip-v0", "n": 9}),
    ("replaylab/NoisyRewards-v0", {"env": "replaylab/MinAtar-Breakout-v1"}),
    ("replaylab/NoisyRewards-v0", {"env": "gymnasium:Pendulum-v1"}),
]
"""Every environment of this library, to be cut."""


@pytest.mark.parametrize(("env_id", "kwargs"), OWN)
def test_the_single_form_passes_gymnasiums_checker(env_id, kwargs):
    env = gym.make(env_id, disable_env_checker=True, **kwargs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")  # NoisyRewards is a wrapper
        warnings.filterwarnings("ignore", ".*Box observation space m.*imum value is -?infinity")  # CartPole
        check_env(env.unwrapped if "Noisy" not in env_id else env, skip_render_check=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "kwargs"), OWN)
def test_the_vector_form_equals_single_ones(env_id, kwargs, mode):
    def make(count, mode):
        return make_vector_env(env_id, count, autoreset_mode=mode, **kwargs)

    steps = 220 if "MountainCar" in env_id else 90  # more than an episode
    ends, _ = conformance.equals_single_forms(make, lambda: gym.make(env_id, **kwargs), mode, steps, atol=3e-7)
    assert ends >= 4


def first_end(env, within, vector):
    """Return after how many steps of one action the first episode ends, and how; None: not within so many steps."""
    env.reset(seed=[1] if vector else 1)
    action = np.zeros_like(env.action_space.sample())
    action = action if vector or action.ndim else int(action)
    for length in range(1, within):
        terminated, truncated = env.step(action)[2:4]
        if np.any(terminated) or np.any(truncated):
            return length, bool(np.all(terminated)), bool(np.all(truncated))
    return None


LONG = {"replaylab/GridWorld-v0": 5_000, "replaylab/MinAtar-Freeway-v1": 2_501}
"""Where a first episode of one action takes more than 500 steps: those of its own limit or end."""


@pytest.mark.parametrize("limit", [None, 1, 2, 8, 210, "above", pytest.param("far above", marks=pytest.mark.slow), -1])
@pytest.mark.parametrize(("env_id", "kwargs"), LIMITED)
def test_a_time_limit_cuts_both_forms_alike(env_id, kwargs, limit):
    """Above the environment's own limit, too."""
    default_limit = LONG.get(env_id, 500)
    limit = {"above": default_limit + 50, "far above": default_limit + 300}.get(limit, limit)
    options = kwargs | ({} if limit is None else {"max_episode_steps": limit})
    single = first_end(gym.make(env_id, **options), default_limit + 400, vector=False)
    assert first_end(make_vector_env(env_id, 1, **options), default_limit + 400, vector=True) == single
    if limit != -1:
        assert first_end(gym.make_vec(env_id, 1, **options), default_limit + 400, vector=True) == single
    if limit is not None and limit > 0:
        assert single[0] <= limit


def test_every_environment_is_cut():
    assert {env_id.partition("/")[2] for env_id, _ in LIMITED} == set(REGISTERED)


@pytest.mark.parametrize(("env_id", "kwargs"), OWN)
def test_a_restored_environment_goes_on_exactly(env_id, kwargs):
    steps = 220 if "MountainCar" in env_id else 90
    conformance.goes_on_exactly(lambda: make_vector_env(env_id, 3, autoreset_mode="NextStep", **kwargs), steps, steps)


@pytest.mark.parametrize("env_id", GOALS)
def test_goal_functions_say_what_the_environment_says(env_id):
    env = make_vector_env(env_id, 8, autoreset_mode="NextStep")
    single = gym.make(env_id)
    generator = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    reached = 0
    for compute_reward, compute_terminated in (goal_functions(env), goal_functions(single)):
        for _ in range(500):
            before = env.state()["ended"]
            action = generator.integers(env.single_action_space.n, size=8)
            if "Acrobot" in env_id:
                action = np.where(obs["observation"][:, 4] >= 0, 0, 2)
            elif "Car" in env_id:
                action = np.where(obs["observation"][:, 1] >= 0, 2, 0)
            elif generator.random() < 0.8:
                action = (obs["observation"] != obs["desired_goal"]).argmax(1)
            obs, reward, terminated, _, _ = env.step(action)
            goals = (obs["achieved_goal"][~before], obs["desired_goal"][~before], {})
            np.testing.assert_array_equal(compute_reward(*goals), reward[~before])
            np.testing.assert_array_equal(compute_terminated(*goals), terminated[~before])
            reached += terminated.sum()
    assert reached > 20


@pytest.mark.parametrize("env_id", GOALS)
def test_hindsight_learns_from_what_was_achieved(env_id):
    env = make_vector_env(env_id, 2)
    hindsight = Hindsight(*goal_functions(env), strategy="final", ratio=1e9)
    buffer = ReplayBuffer.for_env(env, 1000, transforms=[hindsight], seed=0)
    obs, _ = env.reset(seed=0)
    actions = np.random.default_rng(0)
    for _ in range(200):
        action = actions.integers(env.single_action_space.n, size=2)
        next_obs, reward, terminated, truncated, infos = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated, "final_obs": infos.get("final_obs")}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = next_obs
    batch = buffer.sample(500)
    assert batch.relabelled.all()
    reached = batch["next_obs"]["achieved_goal"] >= batch["next_obs"]["desired_goal"]
    if "BitFlip" in env_id:
        reached = batch["next_obs"]["achieved_goal"] == batch["next_obs"]["desired_goal"]
    np.testing.assert_array_equal(batch.terminated, reached.all(-1))
    assert batch.terminated.any()


def test_an_environment_without_goals_is_reported():
    with pytest.raises(ConfigError, match="must have the functions `compute_reward` and `compute_terminated`"):
        goal_functions(make_vector_env("CartPole-v1", 1))


def test_gymnasium_steps_goal_forms_and_keeps_their_functions():
    env = SyncVectorEnv([lambda: gym.make("replaylab/AcrobotGoal-v0")] * 2)
    reward, terminated = goal_functions(env)
    goals = np.array([[0.5], [1.0]], np.float32), np.array([[1.0], [1.0]], np.float32), {}
    assert reward(*goals).tolist() == [-1, 0]
    assert terminated(*goals).tolist() == [False, True]
    reward, terminated = goal_functions(gym.make("replaylab/MountainCarGoal-v0"))
    assert reward(*goals).tolist() == [-1, -1]
    assert terminated(*goals).tolist() == [False, True]


@pytest.mark.parametrize(("goal_velocity", "goal"), [(0.0, [0.5]), (-0.01, [0.5, -0.01]), (0.045, [0.5, 0.045])])
def test_a_velocity_asked_for_is_part_of_the_goal(goal_velocity, goal):
    """Cars that come to the goal too slowly have not reached it, in the environment and in hindsight alike."""
    options = {"goal_velocity": goal_velocity}
    env = make_vector_env("replaylab/MountainCarGoal-v0", 50, autoreset_mode="NextStep", **options)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs["desired_goal"], np.tile(np.float32(goal), (50, 1)))
    judged = [goal_functions(each)[1] for each in (env, gym.make("replaylab/MountainCarGoal-v0", **options))]
    actions, slow, reached = np.random.default_rng(0), 0, 0
    for _ in range(600):
        before = env.state()["ended"]
        action = np.where(obs["observation"][:, 1] >= 0, 2, 0)
        action = np.where(actions.random(50) < 0.3, actions.integers(3, size=50), action)
        obs, _, terminated, _, _ = env.step(action)
        assert env.observation_space.contains(obs)
        for compute_terminated in judged:
            ended = compute_terminated(obs["achieved_goal"], obs["desired_goal"], {})
            np.testing.assert_array_equal(ended[~before], terminated[~before])
        slow += ((obs["observation"][:, 0] >= 0.5) & ~terminated & ~before).sum()
        reached += terminated.sum()
    assert reached > 20
    assert (slow > 20) == (goal_velocity > 0)


def test_bit_flip_flips_one_bit_a_step_until_the_goal():
    env = gym.make("replaylab/BitFlip-v0", n=6)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        distance = (obs["observation"] != obs["desired_goal"]).sum()
        while distance > 0:
            bit = int(np.flatnonzero(obs["observation"] != obs["desired_goal"])[0])
            new, reward, terminated, truncated, _ = env.step(bit)
            assert np.flatnonzero(new["observation"] != obs["observation"]).tolist() == [bit]
            obs, distance = new, distance - 1
            assert (reward, terminated) == (0.0 if distance == 0 else -1.0, distance == 0)
            assert not truncated or terminated


def test_bit_flips_starts_are_uniform():
    """The chance that one of 24 counts lies outside is below 24 x 2 exp(-2 x 10,000 x .04²) < 1e-12."""
    env = make_vector_env("replaylab/BitFlip-v0", 1000, n=12)
    starts = [env.reset(seed=1)[0]] + [env.reset()[0] for _ in range(9)]
    for key in ("observation", "desired_goal"):
        shares = np.concatenate([obs[key] for obs in starts]).mean(0)
        assert np.abs(shares - 0.5).max() < 0.04


@pytest.mark.parametrize("n", [1, 4, 9])
def test_blind_cliffwalk_rewards_one_sequence_of_actions(n):
    env = make_vector_env("replaylab/BlindCliffwalk-v0", 2**n, n=n, autoreset_mode="Disabled")
    table = gym.make("replaylab/BlindCliffwalk-v0", n=n).unwrapped.P
    sequences = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    obs, _ = env.reset(seed=0)
    total, running, transitions = np.zeros(2**n), np.ones(2**n, bool), 0
    for t in range(n):
        before = obs
        obs, reward, terminated, _, _ = env.step(sequences[:, t])
        for i in np.flatnonzero(running):
            expected = [(1.0, obs[i], reward[i], terminated[i])]
            assert table[before[i]][sequences[i, t]] == expected
        total += running * reward
        transitions += running.sum()
        running &= ~terminated
        env.reset(options={"reset_mask": terminated})
        obs = np.where(terminated, 0, obs)
    assert not running.any()
    assert transitions == 2 ** (n + 1) - 2  # as Schaul et al. count them
    assert total.sum() == 1
    assert sequences[total.argmax()].tolist() == [s % 2 for s in range(n)]


def test_noise_has_mean_zero_and_the_scale_asked_for():
    """Mean and deviation of 40,000 normals: six standard errors, each missed with a chance below 1e-8."""
    env = make_vector_env("replaylab/NoisyRewards-v0", 40, env="MountainCar-v0", scale=2.0)
    env.reset(seed=0)
    noise = np.array([env.step(np.ones(40, np.int64))[1] for _ in range(1000)]) + 1
    assert abs(noise.mean()) < 6 * 2 / np.sqrt(noise.size)
    assert abs(noise.std() - 2) < 6 * 2 / np.sqrt(2 * noise.size)
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 6 / np.sqrt(noise.size)
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 6 / np.sqrt(1000)


def test_noise_around_integer_rewards_is_not_cut_off():
    class Whole(VectorWrapper):
        def step(self, actions):
            obs, reward, *rest = self.env.step(actions)
            return obs, reward.astype(np.int64), *rest

    env = VectorNoisyRewards(Whole(make_vector_env("CartPole-v1", 3)), 0.1)
    env.reset(seed=[0, 1, 2])
    reward = env.step(np.zeros(3, np.int64))[1]
    assert reward.dtype == np.float64
    assert np.all((reward != np.round(reward)) & (np.abs(reward - 1.0) < 1.0))


def test_noise_depends_on_the_copys_seed_alone():
    def rewards(seeds, place):
        env = make_vector_env("replaylab/NoisyRewards-v0", len(seeds), env="MountainCar-v0")
        env.reset(seed=seeds)
        return [env.step(np.ones(len(seeds), np.int64))[1][place] for _ in range(600)]

    assert rewards([5], 0) == rewards([1, 2, 5], 2)
    assert rewards([5], 0) != rewards([6], 0)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("replaylab/BitFlip-v0", {"n": 0}, "`n` of BitFlip must be at least 1, but got 0"),
        ("replaylab/BlindCliffwalk-v0", {"n": 0}, "`n` of BlindCliffwalk must be at least 1, but got 0"),
        ("replaylab/GridWorld-v0", {"grid": "SG"}, "`grid` of GridWorld must be rows of `.`, `#`, `S` and `G`, but"),
        ("replaylab/GridWorld-v0", {"grid": ["S", "x"]}, "`grid` of GridWorld must be rows of `.`, `#`, `S` and `G`"),
        ("replaylab/GridWorld-v0", {"grid": ["S", "G."]}, r"must have rows of one length, but got \[1, 2\]"),
        ("replaylab/GridWorld-v0", {"grid": ["SS", "G."]}, "must have one S and a G, but got 2 and 1"),
        ("replaylab/NoisyRewards-v0", {"scale": -1.0}, "`scale` of NoisyRewards must be finite and not negative"),
        ("replaylab/MountainCarGoal-v0", {"goal_velocity": 0.08}, "`goal_velocity` of MountainCarGoal must be from"),
        ("replaylab/AcrobotGoal-v0", {"max_episode_steps": 0}, "`max_episode_steps` must be at least 1, but got 0"),
    ],
)
def test_bad_options_are_reported(env_id, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_vector_env(env_id, 2, **kwargs)
