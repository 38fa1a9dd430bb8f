"""Tapes of Stable-Baselines3's algorithms: one recording of all seeds, and what each of them learns from."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import SB3, Hook, TapeRecorder, TrainingConfig, train
from replaylab.replay import Prioritized
from replaylab.research import Tape
from replaylab.research.tape_file import TapeReader
from tests.learners.sb3.test_sb3 import CARTPOLE, SMALL

SEEDS = [3, 5, 9]
TD3 = ("TD3", "Pendulum-v1", SMALL | {"learning_starts": 70, "train_freq": 2, "gradient_steps": 2})


class Drawn(Hook):
    """Each draw's ids, by seed."""

    def __init__(self):
        self.ids = {}

    def on_draw(self, run, batch):
        assert batch.id.shape == (1, 16)
        self.ids.setdefault(run.seeds[0], []).append(batch.id[0].copy())

    @property
    def all(self):
        return np.stack([np.stack(draws) for draws in self.ids.values()])


def trained(of, sampler, seeds, *hooks):
    algorithm, env_id, arguments = of
    learner = SB3(algorithm, arguments=arguments)
    config = TrainingConfig(env_id, learner, sampler, total_steps=100, eval_every=None, log_every=10)
    drawn = Drawn()
    metrics = train(config, seeds, [drawn, *hooks])
    return metrics, drawn.all


@pytest.mark.parametrize("of", [CARTPOLE, TD3])
def test_a_seed_learns_from_what_another_one_drew(of, tmp_path):
    path, prioritized = tmp_path / "a.tape", Prioritized(beta=0.0)
    recorder = TapeRecorder(path)
    _, drawn = trained(of, prioritized, SEEDS, recorder)
    tape = TapeReader(path)
    recorded = np.stack([tape.ids(k) for k in range(tape.draws)], axis=1)
    np.testing.assert_array_equal(recorded, drawn)
    assert len(recorder.writer) == tape.draws == drawn.shape[1] > 8
    np.testing.assert_array_equal(drawn[[2]], trained(of, prioritized, SEEDS[2:])[1])  # its own run

    _, replayed = trained(of, Tape(str(path), shift=1), SEEDS)
    np.testing.assert_array_equal(replayed, np.roll(recorded, -1, axis=0))
    assert not (replayed == recorded).all(axis=(1, 2)).any()
    again, drawn_alone = trained(of, Tape(str(path)), SEEDS)
    np.testing.assert_array_equal(drawn_alone, recorded)
    first, _ = trained(of, Tape(str(path)), SEEDS[:1])  # seeds of one tape do not touch each other
    for metric in ("rollout/ep_rew", "train/critic_loss" if of is TD3 else "train/loss"):
        np.testing.assert_array_equal(again.of(metric, seed=3), first.of(metric, seed=3))


def test_a_tape_of_too_few_seeds(tmp_path):
    path = tmp_path / "a.tape"
    recorder = TapeRecorder(path)
    trained(CARTPOLE, Prioritized(beta=0.0), SEEDS[:2], recorder)
    with pytest.raises(ConfigError, match="is for one training, but it has recorded seed 3; make another"):
        trained(CARTPOLE, Prioritized(beta=0.0), SEEDS[:2], recorder)
    with pytest.raises(ConfigError, match="must have a replica for each of the buffer's 3, but has 2"):
        trained(CARTPOLE, Tape(str(path), shift=1), SEEDS)
    with pytest.raises(ConfigError, match="`shift` must lead to other replicas"):
        trained(CARTPOLE, Tape(str(path), shift=2), SEEDS[:2])
