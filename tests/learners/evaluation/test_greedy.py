import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from replaylab.envs import make_vector_env
from replaylab.learners import DQN
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.evaluation.evaluators import GreedyEvaluation
from tests.learners.tabular import corridor

SEEDS = [4, 2]


def agents(learner, inputs, seeds, start=0):
    box = gym.spaces.Box(-1.0, 1.0, (inputs,))
    return learner.agents(box, gym.spaces.Discrete(2, start=start), seeds)


def played(env_id, population, r, seed, part, episodes=3):
    """Mean return and length of the greedy policy in the single environment."""
    returns, lengths = [], []
    for start in numbers(seed, Stream.EVALUATION, episodes, part):
        env = gym.make(env_id)
        obs, _ = env.reset(seed=start)
        total, length, over = 0.0, 0, False
        while not over:
            q = population.q_values(np.stack([obs] * len(SEEDS))[:, None])[r, 0]
            obs, reward, terminated, truncated, _ = env.step(int(q.argmax()) + env.action_space.start)
            total, length, over = total + reward, length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    return np.mean(returns), np.mean(lengths)


def test_equals_greedy_episodes_in_the_single_environment():
    for env_id, inputs, start in (("CartPole-v1", 4, 0), (corridor.ENV_ID, 2, 3)):
        population = agents(DQN(hidden=(32,)), inputs, SEEDS, start)
        evaluation = GreedyEvaluation(env_id, 3)
        for part in range(2):
            reward, length = evaluation(population, SEEDS, part)
            expected = [played(env_id, population, r, seed, part) for r, seed in enumerate(SEEDS)]
            np.testing.assert_allclose(np.stack([reward, length], 1), expected)


def test_a_seed_plays_the_same_episodes_in_any_population():
    both, single = (agents(DQN(), 4, seeds) for seeds in (SEEDS, SEEDS[1:]))
    evaluation = GreedyEvaluation("CartPole-v1", 4)
    for part in range(3):
        together, alone = evaluation(both, SEEDS, part), evaluation(single, SEEDS[1:], part)
        np.testing.assert_allclose(np.array(together)[:, 1], np.array(alone)[:, 0])


class Doing:
    """A policy that always does the same."""

    def __init__(self, action):
        self.action = action

    def act(self, obs, *, explore):
        rows = obs["observation"] if isinstance(obs, dict) else obs
        return np.full(rows.shape[:2], self.action)


@pytest.mark.parametrize(
    ("env_id", "options", "cut", "expected"),
    [
        ("MountainCar-v0", {"max_episode_steps": -1}, 1_000, 1_000),
        ("MountainCar-v0", {}, 1_000, 200),
        ("MountainCar-v0", {"max_episode_steps": 1_050}, 1_000, 1_050),
        ("replaylab/NoisyRewards-v0", {"env": "MountainCar-v0"}, 1_000, 200),
        ("Standing-v0", {}, None, 10_000),
        ("Standing-v0", {"max_episode_steps": 1_100}, 1_000, 1_100),
        ("Standing-v0", {"own_limit": 12_000}, None, 12_000),
        ("Standing-v0", {"own_limit": 300}, 1_000, 300),
        ("replaylab/NoisyRewards-v0", {"env": "Standing-v0", "max_episode_steps": 1_020}, 1_000, 1_020),
    ],
)
def test_an_episode_is_as_long_as_the_environment_lets_it_be(env_id, options, cut, expected):
    """An endless one is cut, after 10,000 steps if nothing is said; the environment's limit counts, however large."""
    how = {} if cut is None else {"max_steps": cut}
    reward, length = GreedyEvaluation(env_id, 1, env_options=options, **how)(Doing(1), [3], 0)
    assert length.tolist() == [expected]
    if "Noisy" not in env_id:
        assert reward.tolist() == [-expected]


class Standing(gym.Env):
    """Nothing happens; it may have its own limit."""

    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, own_limit=None):
        self.max_episode_steps = own_limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, -1.0, False, self.steps == self.max_episode_steps, {}


gym.register("Standing-v0", Standing)


def test_games_are_played_whole_unclipped_and_without_noise():
    """Inside `NoisyRewards`, too."""
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    game, firing, seeds = "AssaultNoFrameskip-v4", 2, [4]
    complete = {"screen_size": 21, "noop_max": 3}
    training = complete | {"clip_rewards": True, "episodic_life": True}
    expected = GreedyEvaluation(game, 1, env_options=complete)(Doing(firing), seeds, 1)
    assert expected[0].min() > 30
    for env_id, options in ((game, training), ("replaylab/NoisyRewards-v0", {"env": game, "scale": 2.0, **training})):
        actual = GreedyEvaluation(env_id, 1, env_options=options)(Doing(firing), seeds, 1)
        np.testing.assert_array_equal(actual, expected)
        one_life = make_vector_env(env_id, 1, **options)
        one_life.reset(seed=0)
        steps = next(t for t in range(1, 1_000) if one_life.step(np.array([firing]))[2][0])
        assert steps < expected[1].min() / 2


@pytest.mark.parametrize("env_id", ["Breakout-v5", "replaylab/NoisyRewards-v0"])
def test_games_of_envpool_are_asked_for_whole_and_unclipped(env_id, monkeypatch):
    pools = []

    class Pool:
        observation_space, action_space = Standing.observation_space, Standing.action_space

        def __init__(self, task_id, num_envs, max_episode_steps=2**31 - 1, **options):
            assert task_id == "Breakout-v5"
            assert "scale" not in options
            pools.append(options)
            self.num_envs, self.limit, self.steps = num_envs, max_episode_steps, 0
            self.config = {"max_episode_steps": max_episode_steps}

        def reset(self):
            return np.zeros(self.num_envs, np.int64), {}

        def step(self, actions):
            self.steps += 1
            ends = np.full(self.num_envs, self.steps == self.limit)
            return np.zeros(self.num_envs, np.int64), np.full(self.num_envs, -1.0), ends & False, ends, {}

        def close(self):
            pass

    monkeypatch.setitem(sys.modules, "envpool", SimpleNamespace(make=Pool))
    options = {"backend": "envpool", "reward_clip": True, "episodic_life": True, "noop_max": 1}
    options |= {"env": "Breakout-v5", "scale": 0.0} if "Noisy" in env_id else {}
    for limit, length in ((None, 1_000), (-1, 1_000), (2_700, 2_700)):
        limited = options | {"max_episode_steps": limit}
        evaluated = GreedyEvaluation(env_id, 1, max_steps=1_000, env_options=limited)(Doing(0), [2], 0)
        assert np.ravel(evaluated).tolist() == [-length, length]
    assert {(pool["reward_clip"], pool["episodic_life"], pool["noop_max"]) for pool in pools} == {(False, False, 1)}
