"""Traps of priorities."""

import numpy as np
import pytest

from replaylab.replay import Prioritized
from tests.replay.buffers import filled

RAW = Prioritized(alpha=1.0, beta=1.0)


def make(capacity, sampler=RAW, steps=None):
    return filled(sampler, capacity, steps, seed=2)


@pytest.mark.parametrize(
    ("sampler", "capacity", "priority", "steps", "expected"),
    [
        pytest.param(RAW, 4, [1e6, 2.0, 3.0, 1.0], 1, [2, 3, 1, 3], id="an early spike is forgotten with its step"),
        pytest.param(RAW, 4, [1e6, 2.0, 3.0, 1.0], 2, [3, 1, 3, 3], id="all of one call"),
        pytest.param(RAW, 4, [0.0] * 4, 1, [0, 0, 0, 1], id="where all are zero it is one"),
        pytest.param(RAW, 8, [5.0, 1.0], 1, [5, 1, 5], id="the largest"),
        pytest.param(Prioritized(alpha=0.5, beta=0.0), 8, [16.0, 1.0], 1, [4, 1, 4], id="is raised to alpha once"),
    ],
)
def test_trap_07_new_steps_get_the_largest_stored_priority(sampler, capacity, priority, steps, expected):
    buffer = make(capacity, sampler, len(priority))
    buffer.update_priorities(np.arange(len(priority)), priority=priority)
    ids = buffer.extend(x=np.arange(steps))
    stored = np.arange(ids[-1] + 1)[-capacity:]
    np.testing.assert_allclose(buffer.probabilities(stored), np.array(expected) / sum(expected), rtol=1e-12)


def test_trap_07_it_falls_when_the_largest_is_lowered():
    buffer = make(8, steps=3)
    buffer.update_priorities(np.arange(3), priority=np.array([5.0, 1.0, 1.0]))
    buffer.add(x=3)
    buffer.update_priorities(np.array([0, 3]), priority=np.array([0.5, 0.5]))
    buffer.add(x=4)
    np.testing.assert_allclose(buffer.probabilities(np.arange(5)), np.array([0.5, 1, 1, 0.5, 1]) / 4, rtol=1e-12)


class TestTrap15WeightsAreNormalisedByPowersOfTheRightQuantity:
    """With p = 4, 16, 64, 256 and alpha 1/2 the distribution is 1, 2, 4, 8 fifteenths; no p is its own power."""

    P = np.array([1, 2, 4, 8]) / 15

    def test_trap_15_a_zero_priority_does_not_count_as_the_smallest(self):
        """A step that can never be drawn has no weight; it must not push the others' weights to zero."""
        buffer = make(4, Prioritized(alpha=1.0, beta=1.0))
        buffer.update_priorities(np.arange(4), priority=np.array([0.0, 1, 2, 4]))
        batch = buffer.sample(64)
        np.testing.assert_allclose(batch.weight, 1 / np.array([np.nan, 1, 2, 4])[batch.id], rtol=1e-6)

    def test_trap_15_beta_one_makes_the_mean_unbiased(self):
        """Sum over ids of P w x, with w = 1 / (N P), is the plain mean."""
        buffer = make(4, Prioritized(alpha=0.5, beta=1.0, normalize="none"))
        buffer.update_priorities(np.arange(4), priority=np.array([4.0, 16, 64, 256]))
        batch = buffer.sample(256)
        weight = dict(zip(batch.id.tolist(), batch.weight.tolist(), strict=True))
        assert len(weight) == 4
        assert sum(self.P[i] * weight[i] * i for i in range(4)) == pytest.approx(np.mean(range(4)), rel=1e-6)


class TestTrap16TheLastOfDuplicateIdsWins:
    def test_trap_16_in_one_call(self):
        buffer = make(4)
        ids = np.array([1, 1, 2, 1, 2])
        assert buffer.update_priorities(ids, priority=np.array([9.0, 0, 8, 3, 1])) == 5
        np.testing.assert_allclose(buffer.probabilities(np.arange(4)), np.array([1, 3, 1, 1]) / 6, rtol=1e-12)
