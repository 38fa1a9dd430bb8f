"""Steps that an actor stores."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.hub import Hub, Report
from replaylab.distributed.training.options import Actors
from replaylab.learners import DQN, TrainingConfig
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.replay import Field, ReplayBuffer, Uniform


class Halves(VectorEnv):
    """Copies that go half a step further each time, three times; resets return integers."""

    single_observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, num_envs, autoreset_mode=AutoresetMode.SAME_STEP):
        self.num_envs, self.mode, self.t = num_envs, AutoresetMode(autoreset_mode), 0
        self.metadata = {"autoreset_mode": self.mode}
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((self.num_envs, 1), int), {}

    def step(self, actions):
        self.t += 1
        obs, ended, infos = np.full((self.num_envs, 1), self.t / 2), np.full(self.num_envs, self.t == 3), {}
        if self.t == 3:
            infos = {"final_obs": np.full(self.num_envs, None), "_final_obs": ended}
            for i, last in enumerate(obs):
                infos["final_obs"][i] = last
            obs, _ = self.reset()
        return obs, np.ones(self.num_envs), ended, np.zeros(self.num_envs, bool), infos


class Writer:
    """Stores steps in a buffer."""

    lost_steps = 0

    def __init__(self, envs):
        fields = {"obs": Field((1,)), "action": Field((), np.int64), "reward": Field(), "next_obs": Field((1,))}
        flag = Field((), bool)
        self.buffer = ReplayBuffer(100, {**fields, "terminated": flag, "truncated": flag}, num_envs=envs)
        self.extend = self.buffer.extend

    def flush(self):
        pass


class RatedDQN(DQN):
    def agents(self, observation_space, action_space, seeds):
        agents = super().agents(observation_space, action_space, seeds)
        agents.__class__ = Rated
        return agents


gym.register("test/Halves-v0", vector_entry_point=Halves)


class Client:
    """A hub in this process."""

    def __init__(self, hub):
        self.hub = hub

    def call(self, method, *arguments):
        answer = getattr(self.hub, method)(*arguments)
        return type("Answer", (), {"result": lambda self: answer})()


class Rated(PerceptronAgents):
    """Agents whose initial TD errors are the rewards plus the observations."""

    def initial_td_errors(self, columns):
        return columns["reward"] + columns["obs"][..., 0]


def actor_of(learner, unroll):
    configuration = TrainingConfig("test/Halves-v0", learner, Uniform(), total_steps=10)
    hub, writer = Hub(1, 2), Writer(2)
    actor = Actor(0, 0, Actors(1, envs=2, unroll=unroll), configuration, learner, 0, writer, Client(hub))
    hub.publish(0, actor._agents.weights(), 0.0, 24, True, {})
    return actor, hub, writer


@pytest.mark.parametrize("unroll", [1, 4])
def test_final_obs_after_integer_reset_keeps_fractions(unroll):
    actor, hub, writer = actor_of(DQN(hidden=(4,)), unroll)
    for _ in range(12 // unroll):
        assert actor.turn()
    stored = writer.buffer.get(np.arange(24))
    assert stored["obs"][::2, 0].tolist() == [0.0, 0.5, 1.0] * 4
    assert stored["next_obs"][::2, 0].tolist() == [0.5, 1.0, 1.5] * 4
    assert actor.turn()  # nothing is left to grant
    assert hub.publish(0, None, 0.0, 24, True, {})[0][:3] == (24, 0, [3.0] * 8)
    hub.exchange(0, 1, Report(), 0, 1)
    assert not actor.turn()


def test_initial_td_errors_of_agents_are_stored():
    actor, _, writer = actor_of(RatedDQN(hidden=(4,)), 3)
    errors = []
    writer.extend = lambda td_error, **columns: errors.append(td_error)
    actor.turn()
    assert errors[0].tolist() == [[1.0, 1.0], [1.5, 1.5], [2.0, 2.0]]
