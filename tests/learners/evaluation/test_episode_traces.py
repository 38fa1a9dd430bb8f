"""Traced episodes: Q values and returns as a hook of the test sees them, and means of what was replayed."""

import numpy as np
import pytest

from replaylab.learners import DQN, Hook, QLearning, TrainingConfig, train
from replaylab.learners.evaluation.episode_traces import discounted
from replaylab.measures import legacy_correlated_pairs
from replaylab.replay import Prioritized, Uniform

SEEDS = [3, 8]


class Watching(Hook):
    """Writes down each step's Q value and reward, and each batch, by seed and episode."""

    def __init__(self):
        self.steps, self.batches, self.over = {}, {}, np.zeros(len(SEEDS), int)

    def on_step(self, run, step, ids):
        q = run.agents.q_values(step.obs[:, None])[:, 0]
        for r in range(len(SEEDS)):
            self.steps.setdefault((r, self.over[r]), []).append((q[r, step.action[r]], step.reward[r]))
        self.ended = step.ended

    def on_update(self, run, update, batch):
        for r in range(len(SEEDS)):
            error = np.abs(update.td_error[r])
            numbers = [error.mean(), np.median(error), error.max(), error.std(), pairs_of(batch.obs[r])]
            self.batches.setdefault((r, self.over[r]), []).append(numbers)

    def after_turn(self, run):
        self.over += self.ended


def pairs_of(obs):
    return float(legacy_correlated_pairs(obs)) if obs.ndim == 2 else np.nan


@pytest.mark.parametrize(
    ("env_id", "learner", "sampler"),
    [
        ("CartPole-v1", DQN(hidden=(8,), learning_starts=40, batch_size=8, gamma=0.9), Prioritized()),
        ("FrozenLake-v1", QLearning(gamma=0.9, batch_size=4, learning_starts=8), Uniform()),
    ],
)
def test_a_trace_is_what_was_expected_and_what_followed(env_id, learner, sampler):
    watching = Watching()
    job = TrainingConfig(env_id, learner, sampler, total_steps=300, trace_every=3, eval_every=None)
    metrics = train(job, seeds=SEEDS, hooks=[watching])
    traced = 0
    for (r, episode), steps in watching.steps.items():
        q, reward = np.array(steps, float).T
        if episode % 3 or episode >= watching.over[r]:  # not traced, or not over
            continue
        expected = [sum(0.9**k * x for k, x in enumerate(reward[t:])) for t in range(len(q))]
        for t in range(len(q)):
            ends, values = metrics.of(f"trace_q/{t}", SEEDS[r])
            at = sum(len(watching.steps[r, before]) for before in range(episode + 1))
            assert values[ends == at] == pytest.approx([q[t]], rel=1e-6)
            ends, values = metrics.of(f"trace_return/{t}", SEEDS[r])
            assert values[ends == at] == pytest.approx([expected[t]])
        ends, values = metrics.of("trace/q_minus_return", SEEDS[r])
        assert values[ends == at] == pytest.approx([np.mean(q - expected)], rel=1e-5)
        batches = np.mean(watching.batches.get((r, episode), [[np.nan] * 5]), axis=0)
        for name, mean in zip(
            ("td_error_mean", "td_error_median", "td_error_max", "td_error_std"), batches, strict=False
        ):
            ends, values = metrics.of(f"trace/{name}", SEEDS[r])
            assert values[ends == at] == pytest.approx([] if np.isnan(mean) else [mean])
        if env_id == "CartPole-v1" and not np.isnan(batches[4]):
            ends, values = metrics.of("trace/correlated_pairs", SEEDS[r])
            assert values[ends == at] == pytest.approx([batches[4]])
        traced += 1
    ends, _ = metrics.of("trace/q_minus_return")
    assert len(ends) == traced > 4


def test_nothing_is_traced_unless_asked_for():
    metrics = train(TrainingConfig("FrozenLake-v1", QLearning(), Uniform(), total_steps=100), seeds=[1])
    assert not any(name.startswith("trace/") for name in metrics.columns["metric"])


def test_discounted():
    np.testing.assert_allclose(discounted(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])
