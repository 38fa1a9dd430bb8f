"""The distance to the optimal values against dynamic programming and by hand."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

from replaylab.envs import NoisyRewards, TransitionTable
from replaylab.errors import ConfigError
from replaylab.learners import DQN, QLearning
from replaylab.learners.evaluation.evaluators import OptimumDistance, acting_states
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.replay import Uniform
from tests.learners.calls import assert_same_rows, train


class ThreeRooms(gym.Env):
    """Rooms 5, 6, 7 (states 0, 1, 2) and a fourth that nobody comes to; see P."""

    observation_space = gym.spaces.Discrete(4, start=5)
    action_space = gym.spaces.Discrete(2)
    initial_state_distrib = np.array([1.0, 0.0, 0.0, 0.0])
    P: ClassVar = {
        0: {0: [(1.0, 1, 1.0, False)], 1: [(0.5, 2, 4.0, True), (0.5, 0, 0.0, False)]},
        1: {0: [(1.0, 2, 2.0, True)], 1: [(1.0, 0, 0.0, False)]},
        2: {0: [(1.0, 2, 9.0, True)], 1: [(1.0, 2, 9.0, True)]},  # terminal
        3: {0: [(1.0, 0, 7.0, False)], 1: [(1.0, 0, 7.0, False)]},  # out of reach
    }
    state = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 5, {}

    def step(self, action):
        outcomes = self.P[self.state][int(action)]
        _, self.state, reward, terminated = outcomes[int(self.np_random.random() < outcomes[0][0]) - 1]
        return 5 + self.state, reward, terminated, False, {}


ROOMS = "ThreeRooms-v0"
if ROOMS not in gym.registry:
    gym.register(ROOMS, ThreeRooms, max_episode_steps=20)


def agents_of(env_id, learner, seeds):
    env = gym.make(env_id)
    return learner.agents(env.observation_space, env.action_space, seeds)


def test_by_hand():
    """γ = .5: Q*(1, 0) = 2, V(0) = max(1 + .5·2, 2 + .25·V(0)) = 8/3; Q*(0, ·) = 2, 8/3 and Q*(1, 1) = .5·8/3."""
    learner = QLearning(gamma=0.5)
    agents = agents_of(ROOMS, learner, [0, 1])
    agents.q[0] = [[2.0, 8 / 3], [2.0, 4 / 3], [50.0, 50.0], [60.0, 60.0]]
    agents.q[1] = agents.q[0] + [[0.0, 1.0], [0.0, -3.0], [0.0, 0.0], [5.0, 5.0]]
    distance = OptimumDistance(ROOMS, learner)(agents, [0, 1])
    np.testing.assert_allclose(distance, [0.0, np.sqrt((1 + 9) / 4)], rtol=0, atol=1e-12)


def test_states_that_an_episode_acts_in():
    assert acting_states(TransitionTable.of(ROOMS)).tolist() == [True, True, False, False]
    cliff = acting_states(TransitionTable.of("CliffWalking-v1"))
    assert cliff.tolist() == [True] * 37 + [False] * 11  # neither the cliff's ten places nor the goal
    assert acting_states(TransitionTable.of("Taxi-v4")).sum() == 400  # the passenger is not where they want to be
    lake = acting_states(TransitionTable.of("FrozenLake-v1"))
    assert np.flatnonzero(~lake).tolist() == [5, 7, 11, 12, 15]


@pytest.mark.parametrize(("env_id", "gamma"), [("CliffWalking-v1", 1.0), ("FrozenLake-v1", 0.99), ("Taxi-v4", 0.9)])
def test_optimal_values_have_no_error(env_id, gamma):
    learner = QLearning(gamma=gamma)
    agents = agents_of(env_id, learner, [0])
    agents.q[0] = optimal_values(TransitionTable.of(env_id), gamma)
    assert OptimumDistance(env_id, learner)(agents, [0])[0] <= 1e-12


def test_a_network_of_one_layer_is_a_table():
    """A perceptron without hidden layer holds Q* itself, in float32."""
    learner = DQN(hidden=(), gamma=0.9)
    agents = agents_of("CliffWalking-v1", learner, [0, 1])
    best = optimal_values(TransitionTable.of("CliffWalking-v1"), 0.9)
    agents.core.online[:] = 0.0
    agents.core.online[0, : best.size] = best.T.ravel()
    distance = OptimumDistance("CliffWalking-v1", learner)(agents, [0, 1])
    expected = np.sqrt((best[:37] ** 2).mean())
    np.testing.assert_allclose(distance, [0.0, expected], rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    "learner", [QLearning(gamma=0.5, epsilon=1.0), DQN(hidden=(8,), learning_starts=64, gamma=0.5)]
)
def test_training_tells_it_at_each_evaluation(learner):
    options = {"total_steps": 400, "eval_every": 100, "log_every": 100}
    metrics = train(ROOMS, learner, Uniform(), [0, 1], value_error=True, **options)
    steps, errors = metrics.of("eval/value_error", seed=1)
    assert steps.tolist() == [100, 200, 300, 400]
    assert (errors > 0).all()
    plain = train(ROOMS, learner, Uniform(), [0, 1], **options)
    rows = metrics.columns["metric"] != "eval/value_error"
    assert_same_rows(metrics, plain, rows)


def test_q_learning_comes_close_to_the_optimal_values():
    metrics = train(
        "FrozenLake-v1", QLearning(alpha=1.0, epsilon=1.0, gamma=0.9), Uniform(), [0], 3_000, eval_every=300,
        value_error=True, env_options={"is_slippery": False},
    )  # fmt: skip
    errors = metrics.of("eval/value_error")[1]
    assert errors[0] > 0.1
    assert errors[-1] < 1e-6


@pytest.mark.parametrize("seed", [0, 1])
def test_episodes_end_apart_and_each_has_its_own(seed):
    options = {"total_episodes": 12, "eval_every": 4, "value_error": True}
    together = train(ROOMS, QLearning(gamma=0.5), Uniform(), [0, 1], **options)
    alone = train(ROOMS, QLearning(gamma=0.5), Uniform(), [seed], **options)
    for column, expected in zip(together.of("eval/value_error", seed), alone.of("eval/value_error"), strict=True):
        np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "replaylab/BitFlip-v0"])
def test_without_a_table_nothing_is_trained(env_id, monkeypatch):
    monkeypatch.setattr("replaylab.learners.training.loop.turn", lambda *_: pytest.fail("trained"))
    with pytest.raises(ConfigError, match=r"`value_error` needs exact values, but .* has no transition table"):
        train(env_id, DQN(), Uniform(), [0], 2_000, value_error=True)


class TestWrappers:
    """A table tells of steps and rewards as they are within wrappers; those that change them are refused."""

    @pytest.mark.parametrize(
        "wrapped",
        [
            lambda env: gym.wrappers.TransformReward(env, lambda reward: reward / 10),
            lambda env: gym.wrappers.StickyAction(env, 0.5),
            lambda env: gym.wrappers.TimeLimit(gym.wrappers.TransformAction(env, lambda a: 3 - a, env.action_space), 9),
        ],
    )
    def test_that_change_the_process(self, wrapped):
        env = wrapped(gym.make("CliffWalking-v1"))
        with pytest.raises(ConfigError, match="may not step by its table `P` in the wrapper"):
            TransitionTable.of(env)
        gym.register("Wrapped-v0", lambda: env)
        try:
            with pytest.raises(ConfigError, match="`value_error` needs exact values, but"):
                OptimumDistance("Wrapped-v0", QLearning())
        finally:
            del gym.registry["Wrapped-v0"]

    @pytest.mark.parametrize(
        "wrapped",
        [
            lambda env: gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(env, 9)),
            lambda env: NoisyRewards(env, 2.0),
            lambda env: gym.wrappers.TransformObservation(env, lambda obs: obs, env.observation_space),
        ],
    )
    def test_that_leave_it(self, wrapped):
        bare = TransitionTable.of("CliffWalking-v1")
        np.testing.assert_array_equal(TransitionTable.of(wrapped(gym.make("CliffWalking-v1"))).reward, bare.reward)
