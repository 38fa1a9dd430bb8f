"""Arguments of an actor's writer."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.distributed.training.actor import Actor, ActorDeclaration
from replaylab.learners import DQN, TrainingConfig
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
    """Stores what it is given in a buffer."""

    def __init__(self, envs):
        fields = {"obs": Field((1,)), "action": Field((), np.int64), "reward": Field(), "next_obs": Field((1,))}
        flag = Field((), bool)
        self.buffer = ReplayBuffer(100, {**fields, "terminated": flag, "truncated": flag}, num_envs=envs)
        self.extend = self.buffer.extend

    def flush(self):
        pass


gym.register("test/Halves-v0", vector_entry_point=Halves)


@pytest.mark.parametrize("steps", [1, 4])
def test_final_obs_after_integer_reset_keeps_fractions(steps):
    pytest.importorskip("torch")
    configuration = TrainingConfig("test/Halves-v0", DQN(hidden=(4,)), Uniform(), total_steps=10)
    writer = Writer(2)
    actor = Actor(ActorDeclaration(0, 0, configuration, configuration.learner, 0, (1.0, 1.0)), writer)
    weights = actor._agents.weights()
    for _ in range(12 // steps):
        actor.step(0, steps, 0.0, weights)
    stored = writer.buffer.get(np.arange(24))
    assert stored["obs"][::2, 0].tolist() == [0.0, 0.5, 1.0] * 4
    assert stored["next_obs"][::2, 0].tolist() == [0.5, 1.0, 1.5] * 4
