"""Schedules that go by environment steps, under budgets of steps and of episodes."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Hook, QLearning
from replaylab.replay import Exponential, Field, Linear, Prioritized, Progress, ReplayBuffer, Uniform
from tests.learners.calls import train

FALLING = Linear(1.0, 0.1, steps=90)


class Watch(Hook):
    """Notes the steps so far and ε, of each replica still in training."""

    def __init__(self):
        self.epsilon = []

    def on_step(self, run, step, ids):
        self.epsilon += [(run.clock.steps, epsilon) for epsilon in np.broadcast_to(run.agents.epsilon, len(ids))]


@pytest.mark.parametrize("budget", [{"total_steps": 150}, {"total_episodes": 40}])
def test_epsilon_falls_with_the_steps_whatever_the_budget_counts(budget):
    watch = Watch()
    train("FrozenLake-v1", QLearning(epsilon=FALLING), Uniform(), [0, 1], hooks=[watch], eval_every=None, **budget)
    steps, epsilon = np.transpose(watch.epsilon)
    assert steps.max() > 100
    np.testing.assert_allclose(epsilon, 1.0 - 0.9 * np.minimum(steps / 90, 1.0))


@pytest.mark.parametrize("replicas", [None, 2])
def test_a_sampler_is_reported_the_steps(replicas):
    def weights(beta, progress):
        sampler = Prioritized(alpha=1.0, beta=beta, normalize="none")
        buffer = ReplayBuffer(8, {"x": Field()}, sampler=sampler, replicas=replicas, seed=0)
        lead = () if replicas is None else (replicas,)
        buffer.extend(x=np.zeros((*lead, 8)))
        buffer.update_priorities(np.tile(np.arange(8), (*lead, 1)), priority=np.tile(np.arange(1.0, 9), (*lead, 1)))
        return buffer.sample(8, progress=progress).weight

    reported = Progress(0.9, 45) if replicas is None else Progress.of_each(np.array([0.2, 0.9]), 45)
    np.testing.assert_array_equal(weights(Linear(0.0, 1.0, steps=90), reported), weights(0.5, None))


def test_values():
    assert FALLING(0.0) == 1.0, "the run begins"
    assert [round(FALLING(Progress(0.01, steps)), 3) for steps in (0, 45, 90, 1_000)] == [1.0, 0.55, 0.1, 0.1]
    assert Exponential(1.0, 0.01, steps=10)(Progress(0.5, 5)) == pytest.approx(0.1)


def test_without_steps_it_says_how_to_pass_them():
    with pytest.raises(ConfigError, match=r"goes by environment steps.*pass Progress\(share, steps=\.\.\.\)"):
        FALLING(0.5)
    with pytest.raises(ConfigError, match="`until` of Linear must be left out where `steps`"):
        Linear(1.0, 0.1, until=0.5, steps=9)
    with pytest.raises(ConfigError, match="`steps` of Exponential must be at least 1, but got 0"):
        Exponential(1.0, 0.1, steps=0)
