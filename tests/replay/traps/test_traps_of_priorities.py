"""Traps of priorities, numbered as in the project's list of them; see `test_traps.py`."""

import numpy as np
import pytest

from replaylab.replay import Field, Prioritized, ReplayBuffer

RAW = Prioritized(alpha=1.0, beta=1.0)


def make(capacity, sampler=RAW, steps=None, **options):
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=sampler, seed=2, **options)
    buffer.extend(x=np.arange(capacity if steps is None else steps))
    return buffer


def test_trap_06_a_td_error_for_an_overwritten_step_does_not_reach_its_successor():
    buffer = make(10)
    batch = buffer.sample(8)
    buffer.extend(x=np.arange(10))  # every step of the batch is gone, its slots are taken
    before = buffer.probabilities(np.arange(10, 20))
    assert buffer.update_priorities(batch.id, np.full(8, 1000.0)) == 0
    np.testing.assert_array_equal(buffer.probabilities(np.arange(10, 20)), before)


class TestTrap07NewStepsGetTheLargestPriorityNowInTheBuffer:
    def test_trap_07_an_early_spike_is_forgotten_with_its_step(self):
        buffer = make(4)
        buffer.update_priorities(np.arange(4), priority=np.array([1e6, 2.0, 3.0, 1.0]))
        buffer.add(x=4)  # takes the place of the spike; the largest left is 3
        np.testing.assert_allclose(buffer.probabilities(np.arange(1, 5)), np.array([2, 3, 1, 3]) / 9, rtol=1e-12)

    def test_trap_07_all_of_one_call(self):
        buffer = make(4)
        buffer.update_priorities(np.arange(4), priority=np.array([1e6, 2.0, 3.0, 1.0]))
        buffer.extend(x=np.arange(2))
        np.testing.assert_allclose(buffer.probabilities(np.arange(2, 6)), np.array([3, 1, 3, 3]) / 10, rtol=1e-12)

    def test_trap_07_where_all_are_zero_it_is_one(self):
        buffer = make(4)
        buffer.update_priorities(np.arange(4), priority=np.zeros(4))
        buffer.add(x=4)
        assert buffer.probabilities(np.arange(1, 5)).tolist() == [0, 0, 0, 1]
        buffer.update_priorities(np.array([3]), priority=np.array([1.0]))
        assert buffer.probabilities(np.arange(1, 5)).tolist() == [0, 0, 0.5, 0.5]

    def test_trap_07_it_falls_when_the_largest_is_lowered(self):
        buffer = make(8, steps=3)
        buffer.update_priorities(np.arange(3), priority=np.array([5.0, 1.0, 1.0]))
        buffer.add(x=3)
        buffer.update_priorities(np.array([0, 3]), priority=np.array([0.5, 0.5]))
        buffer.add(x=4)
        np.testing.assert_allclose(buffer.probabilities(np.arange(5)), np.array([0.5, 1, 1, 0.5, 1]) / 4, rtol=1e-12)

    def test_trap_07_the_first_step_gets_one(self):
        buffer = make(4, steps=2)
        buffer.update_priorities(np.array([0]), priority=np.array([3.0]))
        np.testing.assert_allclose(buffer.probabilities(np.arange(2)), [0.75, 0.25], rtol=1e-12)

    def test_trap_07_the_priority_is_raised_to_alpha_once(self):
        """New steps get the largest p, not p^alpha raised again."""
        buffer = make(8, Prioritized(alpha=0.5, beta=0.0), steps=2)
        buffer.update_priorities(np.arange(2), priority=np.array([16.0, 1.0]))
        buffer.add(x=2)
        np.testing.assert_allclose(buffer.probabilities(np.arange(3)), np.array([4, 1, 4]) / 9, rtol=1e-12)


def test_trap_08_a_huge_priority_leaves_no_rounding_behind():
    """1 + 1e30 - 1e30 is 0 in floating point: sums updated by differences would now be empty or negative."""
    buffer = make(1000)
    for i in range(1000):
        buffer.update_priorities(np.array([i]), priority=np.array([1e30]))
        buffer.update_priorities(np.array([i]), priority=np.array([1.0]))
    np.testing.assert_allclose(buffer.probabilities(np.arange(1000)), 1e-3, rtol=1e-12)
    assert len(set(buffer.sample(1000).id.tolist())) > 400
    buffer.update_priorities(np.arange(999), priority=np.zeros(999))
    assert set(buffer.sample(1000).id.tolist()) == {999}


@pytest.mark.parametrize("capacity", [1, 3, 5, 6, 7, 100, 1000, 4097])
def test_trap_09_capacity_need_not_be_a_power_of_two(capacity):
    buffer = make(capacity, steps=capacity * 2 + 1)
    ids = np.arange(capacity + 1, capacity * 2 + 1)
    priority = 1.0 + np.arange(capacity) % 3
    buffer.update_priorities(ids, priority=priority)
    np.testing.assert_allclose(buffer.probabilities(ids), priority / priority.sum(), rtol=1e-12)
    assert set(buffer.sample(capacity * 4).id.tolist()) == set(ids.tolist())


class TestTrap15WeightsAreNormalisedByPowersOfTheRightQuantity:
    """With p = 4, 16, 64, 256 and alpha 1/2 the law is 1, 2, 4, 8 fifteenths; no p is its own power."""

    P = np.array([1, 2, 4, 8]) / 15

    def weights(self, normalize, beta=0.7):
        sampler = Prioritized(alpha=0.5, beta=beta, normalize=normalize)
        buffer = make(9, sampler, steps=4)
        buffer.update_priorities(np.arange(4), priority=np.array([4.0, 16, 64, 256]))
        return buffer.sample(3)  # of 3 draws, the first two thirds never fall on the rarest step

    def test_trap_15_buffer(self):
        batch = self.weights("buffer")
        np.testing.assert_allclose(batch.weight, (self.P[0] / self.P[batch.id]) ** 0.7, rtol=1e-6)
        np.testing.assert_allclose(batch.probability, self.P[batch.id], rtol=1e-12)

    def test_trap_15_batch(self):
        batch = self.weights("batch")
        assert batch.weight.max() == 1
        rarest = self.P[batch.id].min()
        np.testing.assert_allclose(batch.weight, (rarest / self.P[batch.id]) ** 0.7, rtol=1e-6)

    def test_trap_15_none(self):
        batch = self.weights("none")
        np.testing.assert_allclose(batch.weight, (4 * self.P[batch.id]) ** -0.7, rtol=1e-6)

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

    @pytest.mark.parametrize("capacity", [16, 1000, 70_000])
    def test_trap_16_many_at_once_keep_the_tree_consistent(self, capacity):
        buffer = make(capacity)
        rng = np.random.default_rng(0)
        ids = rng.integers(0, capacity, 5 * capacity)
        priority = rng.exponential(size=len(ids)).astype(np.float32) * (rng.random(len(ids)) < 0.5)
        buffer.update_priorities(ids, priority=priority)
        leaves = np.ones(capacity)
        for i, p in zip(ids.tolist(), priority.tolist(), strict=True):
            leaves[i] = p
        np.testing.assert_allclose(buffer.probabilities(np.arange(capacity)), leaves / leaves.sum(), rtol=1e-12)
        assert (leaves[buffer.sample(10_000).id] > 0).all()
