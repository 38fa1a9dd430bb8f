"""Draws in which no step comes twice: the joint distribution of a batch, by enumeration, and what they refuse.

False alarms: see `chi2.py`.
"""

from itertools import permutations

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import Combined, Field, Mixture, Prioritized, ReplayBuffer, Sequence, Uniform
from tests.replay.buffers import filled
from tests.replay.guarantees.chi2 import assert_distribution

SUCCESSIVE = Prioritized(alpha=1.0, beta=1.0, replace=False)


def make(sampler, steps, capacity=100, **options):
    return filled(sampler, capacity, steps, seed=5, **options)


def assert_joint_distribution(buffer, rows, distribution, draws=8000):
    """Compare the batches of a buffer of few steps with the chance of each sequence of ids."""
    shape = (len(buffer),) * rows
    first = buffer.stored_ids()[0][0]
    drawn = np.stack([buffer.sample(rows).id for _ in range(draws)]) - first
    counts = np.bincount(np.ravel_multi_index(tuple(drawn.T), shape), minlength=len(buffer) ** rows)
    expected = np.zeros(shape)
    for steps, chance in distribution.items():
        expected[steps] = chance
    assert expected.sum() == pytest.approx(1.0, rel=1e-12)
    assert_distribution(counts, expected.ravel())


@pytest.mark.parametrize("priority", [[1.0, 2.0, 4.0, 0.5, 3.0], [0.0, 2.0, 1e6, 1.0, 3.0]])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_each_row_is_drawn_from_the_steps_that_are_left(rows, priority):
    buffer = make(SUCCESSIVE, 5)
    buffer.update_priorities(np.arange(5), priority=np.array(priority))
    distribution = {}
    for steps in permutations(range(5), rows):
        left, distribution[steps] = sum(priority), 1.0
        for step in steps:
            distribution[steps] *= priority[step] / left if left else 0.0
            left -= priority[step]
    assert_joint_distribution(buffer, rows, distribution)
    with_replacement = make(Prioritized(alpha=1.0, beta=1.0), 5)
    with_replacement.update_priorities(np.arange(5), priority=np.array(priority))
    batch = buffer.sample(rows)  # the drawn leaves are there again
    np.testing.assert_array_equal(batch.probability, with_replacement.probabilities(batch.id))
    np.testing.assert_allclose(batch.weight, _weights(priority, batch.id), rtol=2e-6)


def _weights(priority, ids):
    """β = 1, the largest of the buffer 1."""
    mass = np.array(priority, np.float32).astype(float)
    return (mass[mass > 0].min() / mass[ids]).astype(np.float32)


def test_a_batch_of_everything_and_one_row_more():
    buffer = make(SUCCESSIVE, 6, capacity=4)  # ids 2 to 5
    assert sorted(buffer.sample(4).id) == [2, 3, 4, 5]
    with pytest.raises(
        EmptyBufferError, match=r"Prioritized\(replace=False\) gives `batch_size` different steps.* only 4"
    ):
        buffer.sample(5)
    buffer.update_priorities([3], priority=[0.0])
    with pytest.raises(EmptyBufferError, match="only 3"):
        buffer.sample(4)
    assert sorted(buffer.sample(3).id) == [2, 4, 5]


@pytest.mark.parametrize("mode", ["plus", "replace"])
def test_combined_takes_different_steps_beside_the_newest(mode):
    sampler = Combined(mode=mode, distinct=True)
    buffer = make(sampler, 7, capacity=5)  # ids 2 to 6, the head within the ring
    asked = 2 if mode == "plus" else 3
    batches = np.stack([buffer.sample(asked).id for _ in range(4000)])
    assert batches.shape == (4000, 3)
    assert (batches[:, 2] == 6).all()
    others = np.ravel_multi_index(tuple((batches[:, :2] - 2).T), (4, 4))
    assert_distribution(np.bincount(others, minlength=16), (1.0 - np.eye(4)).ravel() / 12)
    np.testing.assert_allclose(buffer.probabilities([2, 6], batch_size=asked), [1 / 6, 1 / 3])
    assert len(buffer.sample(asked + 2).id) == 5
    with pytest.raises(EmptyBufferError, match=r"Combined\(distinct=True\) gives"):
        buffer.sample(asked + 3)


def test_the_newest_alone():
    assert make(Combined("replace", distinct=True), 1).sample(1).id == [0]


def test_what_it_does_not_go_with():
    with pytest.raises(ConfigError, match="`replace` of Prioritized must be True with blocks"):
        Prioritized(replace=False, block_length=2)
    with pytest.raises(ConfigError, match="parts"):
        Mixture((Uniform(), SUCCESSIVE))
    with pytest.raises(
        ConfigError, match="Prioritized has no closed form of its sampling probability: each row depends"
    ):
        make(SUCCESSIVE, 3).probabilities([0])
    fields = {"x": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
    for sampler in (SUCCESSIVE, Combined(distinct=True)):
        with pytest.raises(ConfigError, match="draws single steps, each once"):
            ReplayBuffer(8, fields, sampler=sampler, transforms=[Sequence(2, overlap=0)])
