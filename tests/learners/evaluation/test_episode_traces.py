"""Traced episodes: Q values and returns as a hook of the test sees them, and means of what was replayed."""

from dataclasses import replace

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN, DQNAsPublished, Hook, QLearning, TrainingConfig, train
from replaylab.learners.evaluation.episode_traces import STATISTICS, discounted
from replaylab.measures import legacy_correlated_pairs
from replaylab.replay import Prioritized, Uniform

SEEDS = [3, 8]
SMALL = {"hidden": (8,), "learning_starts": 40, "batch_size": 8, "gamma": 0.9}


class Watching(Hook):
    """Writes down each step's Q value and stored reward, and each batch, by seed and episode."""

    def __init__(self):
        self.steps, self.batches, self.over, self.arrived = {}, {}, np.zeros(len(SEEDS), int), {}

    def on_step(self, run, step, ids):
        q = run.agents.q_values(step.obs[:, None])[:, 0]
        stored = run.replay.as_batch(ids[:, None])
        error = np.abs(run.agents.probe(stored).td_error[:, 0])
        for r in range(len(SEEDS)):
            self.steps.setdefault((r, self.over[r]), []).append((q[r, step.action[r]], stored.reward[r, 0]))
            self.arrived[r, ids[r]] = error[r]
        self.ended = step.ended

    def on_update(self, run, update, batch):
        for r in range(len(SEEDS)):
            arrived = np.array([self.arrived[r, step] for step in batch.id[r]])
            numbers = [pairs_of(batch.obs[r])]
            for error in (np.abs(update.td_error[r]), arrived):
                numbers += [error.mean(), np.median(error), error.max(), error.std()]
            self.batches.setdefault((r, self.over[r]), []).append(numbers)

    def after_turn(self, run):
        self.over += self.ended


def pairs_of(obs):
    return float(legacy_correlated_pairs(obs)) if obs.ndim == 2 else np.nan


@pytest.mark.parametrize(
    ("env_id", "learner", "sampler"),
    [
        ("CartPole-v1", DQN(**SMALL), Prioritized()),
        ("CartPole-v1", DQNAsPublished(**SMALL, capacity=50, end_reward=-10.0), Uniform()),
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
        pairs, *batches = np.mean(watching.batches.get((r, episode), [[np.nan] * 9]), axis=0)
        statistics = [f"{kind}_{name}" for kind in ("td_error", "insertion_error") for name in STATISTICS]
        for name, mean in zip(statistics, batches, strict=True):
            ends, values = metrics.of(f"trace/{name}", SEEDS[r])
            assert values[ends == at] == pytest.approx([] if np.isnan(mean) else [mean], rel=1e-5)
        if env_id == "CartPole-v1" and not np.isnan(pairs):
            ends, values = metrics.of("trace/correlated_pairs", SEEDS[r])
            assert values[ends == at] == pytest.approx([pairs])
        traced += 1
    ends, _ = metrics.of("trace/q_minus_return")
    assert len(ends) == traced > 4


def test_nothing_is_traced_unless_asked_for():
    metrics = train(TrainingConfig("FrozenLake-v1", QLearning(), Uniform(), total_steps=100), seeds=[1])
    assert not any(name.startswith("trace/") for name in metrics.columns["metric"])


def test_discounted():
    np.testing.assert_allclose(discounted(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])


def test_a_punished_end_is_the_last_return_of_its_trace():
    learner = DQNAsPublished(**SMALL, end_reward=-10.0)
    job = TrainingConfig("CartPole-v1", learner, Uniform(), total_episodes=2, trace_every=1, eval_every=None)
    metrics = train(job, seeds=[0])
    last = int(metrics.of("rollout/ep_len")[1][1]) - 1
    assert metrics.of(f"trace_return/{last}")[1][-1] == -10.0
    assert metrics.of(f"trace_return/{last - 1}")[1][-1] == pytest.approx(1.0 - 0.9 * 10.0)
    assert (metrics.of("rollout/ep_rew")[1] == metrics.of("rollout/ep_len")[1]).all()  # as the environment paid


def test_returns_are_of_rewards_that_a_later_hook_stores():
    class Doubled(Hook):  # after the library's own hooks
        def before_store(self, run, step):
            return replace(step, reward=2.0 * step.reward)

    job = TrainingConfig("CartPole-v1", DQN(**SMALL), Uniform(), total_episodes=1, trace_every=1, eval_every=None)
    metrics = train(job, seeds=[0], hooks=[Doubled()])
    last = int(metrics.of("rollout/ep_len")[1][0]) - 1
    assert metrics.of(f"trace_return/{last}")[1][-1] == 2.0


def test_a_learner_without_a_discount_is_not_traced():
    class Undiscounted(QLearning):
        gamma = None

        def __post_init__(self):
            pass

    with pytest.raises(ConfigError, match="`trace_every` needs a learner with a `gamma`"):
        train(TrainingConfig("FrozenLake-v1", Undiscounted(gamma=None), Uniform(), 10, trace_every=1), seeds=[0])
