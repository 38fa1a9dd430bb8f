import gymnasium as gym
import numpy as np

from replaylab.learners import DQN
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.evaluation.greedy import GreedyEvaluation
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
    both, one = (agents(DQN(), 4, seeds) for seeds in (SEEDS, SEEDS[1:]))
    evaluation = GreedyEvaluation("CartPole-v1", 4)
    for part in range(3):
        together, alone = evaluation(both, SEEDS, part), evaluation(one, SEEDS[1:], part)
        np.testing.assert_allclose(np.array(together)[:, 1], np.array(alone)[:, 0])


def test_an_endless_episode_is_cut():
    evaluation = GreedyEvaluation("CartPole-v1", 2, max_steps=5)
    _, length = evaluation(agents(DQN(), 4, SEEDS), SEEDS, 0)
    np.testing.assert_array_equal(length, [5, 5])
