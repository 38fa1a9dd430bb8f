"""Training on a custom vectorized environment, registered by that form alone."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab.envs import BatchedEnv
from replaylab.learners import DQN, DQNAsPublished, Hook, QLearning, TrainingConfig, train
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
        metrics = train(config, [0, 1])
    finally:
        del gym.registry["VectorCorridor-v0"]
    assert [metrics.of("eval/mean_reward", seed=seed)[1].tolist() for seed in (0, 1)] == [[-3.0], [-3.0]]


class Pooled(Corridor):
    """Resets in the next step alone, as pools of other libraries do, and pays whole numbers."""

    def __init__(self, num_envs=1, *, autoreset_mode="SameStep"):
        if AutoresetMode(autoreset_mode) is not AutoresetMode.NEXT_STEP:
            raise ValueError("only NEXT_STEP")
        super().__init__(num_envs, autoreset_mode=autoreset_mode)

    def _advance(self, action):
        reward, ended = super()._advance(action)
        return reward.astype(np.int64), ended


@pytest.fixture
def pooled():
    gym.register("VectorPooled-v0", vector_entry_point=Pooled)
    yield "VectorPooled-v0"
    del gym.registry["VectorPooled-v0"]


def test_evaluations_reset_as_training_does(pooled):
    learner = DQN(hidden=(8,), learning_starts=20, batch_size=8)
    config = TrainingConfig(pooled, learner, Uniform(), 60, eval_every=30, autoreset_mode="NextStep", held_out=4)
    metrics = train(config, [0, 1])
    assert np.isfinite(metrics.of("eval/mean_reward", seed=1)[1]).all()
    assert len(metrics.of("eval/held_out_q", seed=1)[1]) == 2
    with pytest.raises(ValueError, match="only NEXT_STEP"):
        train(replace(config, autoreset_mode=None), [0])


def test_an_end_pays_what_was_asked_in_whole_numbers(pooled):
    learner, stored = DQNAsPublished(hidden=(8,), learning_starts=20, batch_size=8, end_reward=-0.5), Rewards()
    train(TrainingConfig(pooled, learner, Uniform(), 100, eval_every=None, autoreset_mode="NextStep"), [0], [stored])
    assert stored.seen == {-0.5, -1.0}


class Rewards(Hook):
    """Keeps the rewards of the stored steps at the end."""

    def on_end(self, run, over):
        self.seen = set(run.replay.columns["reward"][0, : run.replay.size[0]].tolist())
