"""Guarantee 5: trees don't drift; a zero-priority or empty leaf is never drawn, at any floating-point edge.

Capacities lie around the powers of 16, the width of the tree's nodes.
"""

import math

import numpy as np
import pytest

from replaylab.replay import Field, Prioritized, ReplayBuffer

EDGES = [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 65537]
RAW = Prioritized(alpha=1.0, beta=0.0, normalize="none")


def make(capacity, steps=None, **options):
    buffer = ReplayBuffer(capacity, {"x": Field((), np.uint8)}, sampler=RAW, seed=capacity, **options)
    lead = () if buffer.replicas is None else (buffer.replicas,)
    ids = buffer.extend(x=np.zeros((*lead, capacity if steps is None else steps), np.uint8))
    return buffer, ids[..., -capacity:]


def as_leaf(priority):
    """Round priorities as the tree holds them, so that sums can be compared exactly."""
    return np.asarray(priority, np.float32).astype(np.float64)


def assert_exact(buffer, ids, leaves):
    """The tree's total is the exact sum of its leaves, as seen through each leaf's share."""
    exact = math.fsum(leaves.tolist())
    np.testing.assert_allclose(buffer.probabilities(ids), leaves / exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("capacity", EDGES)
def test_no_drift_after_many_updates_of_all_magnitudes(capacity):
    buffer, ids = make(capacity, capacity + capacity // 3)
    leaves = np.ones(capacity)
    rng = np.random.default_rng(capacity)
    for round_ in range(300):
        n = 200
        at = rng.integers(0, capacity, n)
        scale = rng.choice([-30, -7, 0, 7, 30], n) if round_ % 2 else rng.choice([-2, 0, 2], n)
        value = as_leaf(rng.uniform(0.5, 2, n) * 10.0**scale * (rng.random(n) < 0.9))
        buffer.update_priorities(ids[at], priority=value)
        leaves[at] = value  # NumPy keeps the last of duplicates too
        if round_ % 50 == 49 and leaves.any():
            assert_exact(buffer, ids, leaves)
    # The huge ones go: sums kept by differences would be left with their rounding errors.
    leaves[:] = as_leaf(np.where(rng.random(capacity) < 0.5, 1e-30, 0.0))
    leaves[-1] = as_leaf(1e-30)
    buffer.update_priorities(ids, priority=leaves)
    assert_exact(buffer, ids, leaves)
    drawn = buffer.sample(10_000).id
    assert (leaves[drawn - ids[0]] > 0).all()


@pytest.mark.parametrize("capacity", EDGES)
def test_no_empty_slot_is_drawn_while_filling(capacity):
    buffer, _ = make(capacity, 0)
    for size in sorted({1, 2, 3, capacity // 2, capacity - 1, capacity} & set(range(1, capacity + 1))):
        buffer.extend(x=np.zeros(size - len(buffer), np.uint8))
        drawn = buffer.sample(5000).id
        assert drawn.min() >= 0
        assert drawn.max() < size


def test_sums_that_overflow_are_refused_or_right():
    """Sixteen priorities near the largest float64 have no finite sum."""
    buffer, ids = make(16)
    try:
        buffer.update_priorities(ids, priority=np.full(16, 1.7e308))
    except ValueError:
        assert_exact(buffer, ids, np.ones(16))
    else:
        np.testing.assert_allclose(buffer.probabilities(ids), 1 / 16, rtol=1e-12)
    assert set(buffer.sample(1000).id.tolist()) <= set(ids.tolist())


@pytest.mark.parametrize("capacity", [15, 17, 257])
def test_replicas_have_separate_trees(capacity):
    buffer, ids = make(capacity, replicas=3)
    leaves = np.zeros((3, capacity))
    leaves[0, 0], leaves[1, capacity // 2], leaves[2, -1] = 1e-30, 1.0, 1e30
    buffer.update_priorities(ids, priority=leaves)
    assert buffer.probabilities(ids).tolist() == (leaves > 0).tolist()
    for drawn, row in zip(buffer.sample(1000).id, leaves, strict=True):
        assert (drawn == row.argmax()).all()
