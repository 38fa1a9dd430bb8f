"""Goals in hindsight, asked of the environment through Stable-Baselines3."""

import pickle

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium
from gymnasium import spaces
from stable_baselines3 import DDPG, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from replaylab.errors import ConfigError
from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer
from replaylab.integrations.sb3.goals import Goals
from replaylab.replay import Prioritized, Uniform

POINT = spaces.Box(-20.0, 20.0, (2,), np.float32)


class Walk(gymnasium.Env):
    """A point that walks to a goal; it ends where it gets there."""

    observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), POINT))
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, by_rows=False):
        self.by_rows = by_rows

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = np.zeros(2, np.float32), self.np_random.uniform(-3, 3, 2).astype(np.float32)
        return self._obs(), {}

    def step(self, action):
        self.place = self.place + np.asarray(action, np.float32)
        reward = self.compute_reward(self.place, self.goal, {})
        return self._obs(), float(reward), bool(self.compute_terminated(self.place, self.goal, {})), False, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.linalg.norm(np.subtract(achieved_goal, desired_goal), axis=-1) > 0.5).astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        near = np.linalg.norm(np.subtract(achieved_goal, desired_goal), axis=None if self.by_rows else -1) <= 0.5
        return bool(near) if self.by_rows else near

    def _obs(self):
        return {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}


def walking(n_envs=1, limit=12, by_rows=False, **options):
    def make():
        return gymnasium.wrappers.TimeLimit(Walk(by_rows), limit)

    return make_vec_env(make, n_envs=n_envs, seed=0, **options)


def learner(kind=SAC, env=None, **options):
    arguments = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 32, "learning_starts": 8, "seed": 1, "device": "cpu"}
    return kind("MultiInputPolicy", env or walking(), replay_buffer_class=ReplayLabBuffer, **arguments | options)


def check(buffer, steps=1, gamma=1.0):
    """Check a batch's goals, rewards and ends against the environment's own words."""
    walk = Walk()
    batch = buffer.sample(300)
    assert (batch.next_observations["desired_goal"] == batch.observations["desired_goal"]).all()
    reached, goal = (batch.next_observations[key].numpy() for key in ("achieved_goal", "desired_goal"))
    ends = walk.compute_terminated(reached, goal, {})
    np.testing.assert_array_equal(batch.dones.numpy()[:, 0], ends)
    if steps == 1:
        np.testing.assert_array_equal(batch.rewards.numpy()[:, 0], walk.compute_reward(reached, goal, {}))
    else:
        powers = [gamma**n for n in range(1, steps + 1)]
        discounts = batch.discounts.numpy()[:, 0]
        assert (discounts[ends] == 0.0).all()
        assert np.isclose(discounts[~ends, None], powers).any(1).all()
    return batch, ends


@pytest.mark.parametrize("strategy", ["future", "final", "episode", GoalSelectionStrategy.FUTURE])
@pytest.mark.parametrize("by_rows", [False, True])
def test_rewards_and_ends_are_those_of_the_new_goals(strategy, by_rows):
    goals = {"n_sampled_goal": 4, "goal_selection_strategy": strategy}
    model = learner(env=walking(3, by_rows=by_rows), learning_starts=80, replay_buffer_kwargs=goals)
    model.learn(90)
    _, ends = check(model.replay_buffer)
    assert ends.mean() > 0.05  # far more than the walk itself finds


def test_an_episode_that_is_not_finished_is_relabelled_too():
    model = learner(env=walking(limit=10**6), replay_buffer_kwargs={"n_sampled_goal": 9}).learn(30)
    assert not model.replay_buffer.dones[:30].any()
    batch, _ = check(model.replay_buffer)
    assert len(np.unique(batch.observations["desired_goal"].numpy(), axis=0)) > 10


@pytest.mark.parametrize("kind", [pytest.param(SAC, marks=pytest.mark.slow), PrioritizedSAC])
def test_all_together(kind, tmp_path):
    """Hindsight, n steps, several environments, derived observations, compression, normalized, saved and loaded."""
    env = VecNormalize(walking(2), norm_obs_keys=["observation"])
    sampler = Prioritized() if kind is PrioritizedSAC else Uniform()
    options = {"n_sampled_goal": 4, "sampler": sampler, "compressed": True, "n_steps": 3, "gamma": 0.9}
    model = learner(kind, env, gamma=0.9, optimize_memory_usage=True, replay_buffer_kwargs=options)
    model.learn(90)
    check(model.replay_buffer, 3, 0.9)
    model.save_replay_buffer(tmp_path / "kept")
    loaded = learner(kind, env, gamma=0.9, optimize_memory_usage=True, replay_buffer_kwargs=options)
    loaded.load_replay_buffer(tmp_path / "kept")
    check(loaded.replay_buffer, 3, 0.9)
    with pytest.warns(UserWarning, match="will be truncated"):
        loaded.learn(40)


def test_normalized_returns_in_hindsight():
    """Each reward is normalized and clipped before the sum, of rows with new goals and without."""
    env = VecNormalize(walking(2), norm_obs=False, clip_reward=0.5)
    model = learner(env=env, gamma=0.5, replay_buffer_kwargs={"n_sampled_goal": 1, "n_steps": 3, "gamma": 0.5})
    model.learn(60)
    env.ret_rms.var = np.array(4.0)  # so that −1 becomes −0.5
    buffer = model.replay_buffer
    state = pickle.dumps(buffer)
    raw = buffer.sample(200)
    again = pickle.loads(state)
    again.set_env(env)
    normal = again.sample(200, env=env)
    np.testing.assert_allclose(normal.rewards, raw.rewards / np.sqrt(4.0 + env.epsilon), atol=1e-6)
    env.ret_rms.var = np.array(0.25)  # −1 becomes −2, which is clipped
    again = pickle.loads(state)
    again.set_env(env)
    np.testing.assert_allclose(again.sample(200, env=env).rewards, raw.rewards * 0.5, atol=1e-6)


def test_ends_that_the_environment_does_not_tell():
    env = BitFlippingEnv(n_bits=4, continuous=False)
    with pytest.raises(ConfigError, match=r"the environment has no `compute_terminated`"):
        learner(PrioritizedDQN, env, replay_buffer_kwargs={"n_sampled_goal": 4})

    def same(achieved, desired, info):
        return (achieved == desired).all(-1)

    options = {"n_sampled_goal": 4, "compute_terminated": same}
    model = learner(PrioritizedDQN, env, replay_buffer_kwargs=options).learn(60)
    batch = model.replay_buffer.sample(200)
    met = (batch.next_observations["achieved_goal"] == batch.next_observations["desired_goal"]).all(1)
    assert (batch.dones[:, 0] == met).all()
    assert met.float().mean() > 0.1


def test_ends_as_they_were_played():
    env = BitFlippingEnv(n_bits=4, continuous=True)
    options = {"goal_selection_strategy": "future", "compute_terminated": "stored"}
    model = learner(DDPG, env, replay_buffer_kwargs=options).learn(40)
    assert model.replay_buffer.sample(500).dones.mean() <= model.replay_buffer.dones[:40].mean() * 2


@pytest.mark.slow
def test_environments_in_processes():
    env = walking(2, vec_env_cls=SubprocVecEnv)
    model = learner(env=env, replay_buffer_kwargs={"n_sampled_goal": 4}).learn(40)
    check(model.replay_buffer)
    env.close()


def test_without_an_environment_it_says_what_is_missing():
    space = Walk.observation_space
    buffer = ReplayLabBuffer(10, space, Walk.action_space, n_sampled_goal=1000.0)
    obs = {key: np.zeros((1, 2)) for key in space.spaces}
    buffer.add(obs, obs, np.zeros((1, 2)), np.zeros(1), np.zeros(1), [{}])
    with pytest.raises(ConfigError, match=r"set_env\(model\.get_env\(\)\)"):
        buffer.sample(4)


@pytest.mark.parametrize("answer", ["index", "array"])
def test_ends_of_one_goal_at_a_time(answer):
    """One that takes no rows, be it that it fails on them, or that it answers with a number for each axis."""

    class Single(Walk):
        def compute_terminated(self, achieved, desired, info):
            if answer == "index":
                return bool(achieved[0] == desired[0] and achieved[1] == desired[1])
            return achieved[0] == desired[0]

    goals = Goals("env")
    goals.set_env(DummyVecEnv([Single]))
    achieved = np.array([[1.0, 2.0], [1.0, 3.0]])
    desired = np.array([[1.0, 2.0], [0.0, 3.0]])
    assert goals.terminated(achieved, desired, {}).tolist() == [True, False]
