"""CleanRL's settings: what a run's figure is, and its interval."""

import dataclasses

import numpy as np
import pytest

from replaylab.claims import ReplicationOutcome, cleanrl
from replaylab.learners import Metrics


def test_figure_is_the_mean_of_the_last_100_episodes():
    returns = np.concatenate([np.zeros(50), np.arange(100.0)])
    columns = {
        "seed": np.repeat([4, 7], 150),
        "step": np.tile(np.arange(150), 2),
        "metric": np.full(300, "rollout/ep_rew"),
        "value": np.concatenate([returns, returns + 1.0]),
    }
    assert cleanrl.final_returns(Metrics(columns), [4, 7]).tolist() == [49.5, 50.5]


def test_interval_is_students():
    low, high = cleanrl.t_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (low + high) / 2 == 2.5
    assert high - 2.5 == pytest.approx(3.182446 * np.sqrt(5 / 3) / 2, rel=1e-6)  # t of three degrees of freedom


def test_a_hundredth_of_the_budget_does_not_reach_the_figure():
    settings = dataclasses.replace(cleanrl.SETTINGS, learning_starts=128)
    (finding,) = cleanrl.measure({"CartPole-v1": (488.7, 16.1)}, seeds=(0, 1), steps=1_000, settings=settings)
    assert finding.verdict is ReplicationOutcome.NOT_REPRODUCED
    assert 8.0 < finding.ours < 100.0
