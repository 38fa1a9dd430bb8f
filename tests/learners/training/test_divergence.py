"""A seed whose network diverges is reported, fails none of the others, and disturbs no sampler."""

from functools import cache

import numpy as np
import pytest

from replaylab.learners import DQN, Hook, TrainingConfig, train
from replaylab.learners.api.agent_laber import AgentLaBER
from replaylab.replay import Prioritized, ReLo, Uniform

SEEDS = (4, 7, 9)
SAMPLERS = [Uniform(), Prioritized(), AgentLaBER(), ReLo()]


class Poison(Hook):
    """Makes a seed's parameters NaN, or infinite, after its tenth update."""

    def __init__(self, seed, value):
        self.seed, self.value = seed, value
        self.rows = []

    def on_update(self, run, update, batch):
        if run.agents.updates == 10:
            state = run.agents.state()
            state["online"][run.seeds.index(self.seed)] = self.value
            run.agents.restore(state)


def run(sampler, *hooks):
    learner = DQN(batch_size=8, learning_starts=20, capacity=100, train_period=2, target_period=5, hidden=(8,))
    config = TrainingConfig("CartPole-v1", learner, sampler, 100, eval_every=50, eval_episodes=2, log_every=10)
    return train(config, SEEDS, hooks)


@cache
def undisturbed(sampler):
    return run(sampler)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_the_others_learn_as_if_it_were_not_there(sampler, value):
    with pytest.warns(RuntimeWarning, match=r"^seed 7 diverged: `train/loss` is (nan|inf) by step \d0; ") as reported:
        lost = run(sampler, Poison(7, value))
    assert len([warning for warning in reported if "diverged" in str(warning.message)]) == 1
    expected = undisturbed(sampler)
    for metric in ("train/loss", "eval/mean_reward", "rollout/ep_rew", "replay/weight_mean"):
        for seed in (4, 9):
            (steps, values), (own_steps, expected_values) = (rows.of(metric, seed=seed) for rows in (lost, expected))
            np.testing.assert_array_equal(steps, own_steps)
            np.testing.assert_array_equal(values, expected_values)
        assert len(lost.of(metric, seed=7)[0])
    assert not np.isfinite(lost.of("train/loss", seed=7)[1][-1])
    assert np.isfinite(lost.of("eval/mean_reward", seed=7)[1]).all()


def test_seeds_that_diverge_together_are_reported_together():
    with pytest.warns(RuntimeWarning, match=r"^seeds 4, 7, 9 diverged: `train/loss` is nan by step \d+; lower the"):
        run(Prioritized(), Poison(4, np.nan), Poison(7, np.nan), Poison(9, np.nan))
