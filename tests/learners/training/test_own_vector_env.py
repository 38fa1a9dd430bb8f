"""Training on a vectorised environment of one's own, registered by that form alone."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from replaylab.envs import BatchedEnv
from replaylab.learners import QLearning, TrainingConfig, train
from replaylab.replay import Uniform


class Corridor(BatchedEnv):
    """Walk right, from the first cell to the end of a corridor of four; each step costs 1."""

    def __init__(self, num_envs=1, *, autoreset_mode="SameStep"):
        super().__init__(num_envs, spaces.Discrete(4), spaces.Discrete(2), ((), np.int64), 20, autoreset_mode)

    def _start(self, generator, options):
        return 0

    def _advance(self, action):
        self._variables = np.clip(self._variables + 2 * action - 1, 0, 3)
        return np.full(self.num_envs, -1.0, np.float32), self._variables == 3

    def _observe(self):
        return self._variables.copy()


def test_it_is_learned():
    gym.register("VectorCorridor-v0", vector_entry_point=Corridor)
    try:
        config = TrainingConfig(
            "VectorCorridor-v0", QLearning(gamma=1.0), Uniform(), 1_000, eval_every=1_000, eval_episodes=2
        )
        found = train(config, [0, 1])
    finally:
        del gym.registry["VectorCorridor-v0"]
    assert [found.of("eval/mean_reward", seed=seed)[1].tolist() for seed in (0, 1)] == [[-3.0], [-3.0]]
