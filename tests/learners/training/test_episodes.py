"""Budgets in episodes: replicas that have finished theirs leave, and the others do not notice."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from replaylab.learners import ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.learners.tabular.temporal_difference import TabularAgents
from replaylab.learners.training import metrics_recorder
from replaylab.replay import CustomSampler, Exponential, Mixture, Prioritized, RankBased, Recency
from tests.learners.calls import assert_same_rows, train

SEEDS = [4, 0, 7, 2]
LEARNERS = [
    QLearning(epsilon=Exponential(0.5, 0.01)),
    QLearning(batch_size=4, learning_starts=8, capacity=30, epsilon=0.3),
    QLearning(online=False, batch_size=4, learning_starts=8, capacity=30, epsilon=0.3),
    Sarsa(batch_size=4, learning_starts=8, capacity=30, epsilon=0.3),
    ExpectedSarsa(epsilon=0.3),
]


@dataclass(frozen=True)
class Falling(CustomSampler):
    """Uniform, with weights that fall over the run."""

    def distribution(self, view, batch_size):
        return np.full(len(view), 1 / len(view))

    def weights(self, view, probabilities, progress):
        return np.full(len(probabilities), 1 - progress / 2)


def run(learner, sampler=None, seeds=SEEDS, env_id="FrozenLake-v1", episodes=12, **options):
    options = {"eval_every": 5, "eval_episodes": 2, "log_every": 4, "total_episodes": episodes} | options
    return train(env_id, learner, sampler or Prioritized(), seeds, **options)


@pytest.mark.parametrize(
    "learner", LEARNERS, ids=lambda learner: f"{type(learner).__name__}-{learner.batch_size}-{learner.online}"
)
def test_a_population_of_tables_equals_its_single_runs(learner):
    """Whoever finishes when: each replica's rows are its own those run."""
    together = run(learner)
    for seed in SEEDS:
        rows = together.columns["seed"] == seed
        alone = run(learner, seeds=[seed])
        assert_same_rows(together, alone, rows)
        np.testing.assert_array_equal(alone.of("rollout/ep_len")[0], np.arange(1, 13))
        np.testing.assert_array_equal(alone.of("eval/mean_reward")[0], [5, 10, 12])


def test_who_has_finished_costs_nothing_more(monkeypatch):
    """No action value is asked for, and no row drawn, beyond what the replicas' own episodes take."""
    asked, drawn = [], []
    q_values, update = TabularAgents.q_values, TabularAgents.update
    monkeypatch.setattr(TabularAgents, "q_values", lambda s, obs: asked.append(obs.size) or q_values(s, obs))
    monkeypatch.setattr(TabularAgents, "update", lambda s, batch: drawn.append(batch.id.size) or update(s, batch))
    learner = QLearning(batch_size=4, learning_starts=4, capacity=30, epsilon=1.0)
    metrics = run(learner, eval_every=None)
    steps = [int(metrics.of("rollout/ep_len", seed)[1].sum()) for seed in SEEDS]
    assert len(set(steps)) == len(steps)
    assert sum(asked) == sum(steps)
    assert sum(drawn) == sum(4 * (count - 3) for count in steps)


def test_listeners_hear_each_replica_at_its_own_episode():
    """Hooks receive the numbers of the rows, at the same times."""
    reported = {}

    def on_metrics(now, values):
        for metric, numbers in values.items():
            for seed, value in zip(SEEDS, numbers, strict=True):
                if not np.isnan(value):
                    reported.setdefault((metric, seed), []).append((now, value))

    learner = QLearning(batch_size=4, learning_starts=8, capacity=30, epsilon=0.3)
    metrics = run(learner, log_every=1, measure_every=10, on_metrics=on_metrics)
    for metric in ("train/q_mean", "eval/mean_reward", "replay/drawn_age_mean", "replay/transitions_replayed"):
        for seed in SEEDS:
            assert reported[metric, seed] == list(zip(*metrics.of(metric, seed), strict=True))


def test_the_speed_counts_each_replica_as_long_as_it_is_there(monkeypatch):
    """A second passes between two looks at the clock, so the speeds add up to the steps: none is below 0."""
    monkeypatch.setattr(metrics_recorder, "time", SimpleNamespace(perf_counter=map(float, itertools.count()).__next__))
    speeds = {}

    def on_metrics(_, values):  # of one look there may be several calls, for seeds at different episodes
        if "time/fps" in values:
            speeds[np.nanmax(values["time/total_timesteps"])] = np.nanmax(values["time/fps"])

    learner = QLearning(batch_size=4, learning_starts=4, capacity=30, epsilon=1.0)
    metrics = run(learner, eval_every=None, log_every=1, on_metrics=on_metrics)
    assert min(speeds.values()) >= 0
    assert sum(speeds.values()) == metrics.of("rollout/ep_len")[1].sum()


def test_epsilon_follows_each_replicas_own_episodes(monkeypatch):
    seen = []
    call = EpsilonGreedy.__call__
    monkeypatch.setattr(EpsilonGreedy, "__call__", lambda s, q, e: seen.append(np.copy(e)) or call(s, q, e))
    metrics = run(QLearning(epsilon=Exponential(0.25, 0.25 * 0.99**12)), seeds=[4])
    lengths = metrics.of("rollout/ep_len")[1].astype(int)
    np.testing.assert_allclose(np.concatenate(seen), np.repeat(0.25 * 0.99 ** np.arange(12), lengths))


@pytest.mark.parametrize("sampler", [Mixture((Recency(), RankBased())), Falling()], ids=lambda s: type(s).__name__)
def test_a_samplers_schedule_follows_each_replicas_own_episodes(sampler):
    """Rows and weights are those of single runs, bit for bit: η, β, and what a sampler in Python makes of progress."""
    learner = QLearning(online=False, batch_size=4, learning_starts=8, capacity=30, epsilon=0.3)
    together = run(learner, sampler)
    for seed in SEEDS:
        rows, alone = together.columns["seed"] == seed, run(learner, sampler, seeds=[seed])
        assert_same_rows(together, alone, rows)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_online_learning_sees_each_step_once_and_truly(mode, monkeypatch):
    """SARSA hears of every step with what is done next; of an episode's last one at once, with the true next_obs."""
    heard = {learner: [] for learner in (Sarsa, QLearning)}
    observe = TabularAgents.observe

    def spy(self, step):
        for r in np.flatnonzero(step.where):
            row = [getattr(step, name)[r] for name in ("obs", "action", "next_obs", "next_action")]
            heard[type(self.learner)].append((r, *map(int, row), bool(step.terminated[r] or step.truncated[r])))
        observe(self, step)

    monkeypatch.setattr(TabularAgents, "observe", spy)
    for learner in heard:
        metrics = run(learner(epsilon=1.0), episodes=6, eval_every=None, autoreset_mode=mode)
        for r, seed in enumerate(SEEDS[:1]):
            first = heard[learner]
            steps = int(metrics.of("rollout/ep_len", seed)[1].sum())
            rows = [row for row in first if row[0] == r][:steps]
            for before, after in itertools.pairwise(rows):
                if not before[5]:
                    assert before[3] == after[1]
                    assert learner is QLearning or before[4] == after[2]
                else:
                    assert after[1] == 0
            ends = [row for row in rows if row[5]]
            assert len(ends) >= 2
            assert all(row[3] in (5, 7, 11, 12, 15) for row in ends)  # holes and the goal, not the start
    total = sum(map(len, heard.values()))
    assert total > 60
