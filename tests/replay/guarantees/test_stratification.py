"""Stratified or not: the sampling probability of a row is the same, the joint distribution of rows is what differs."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.replay import Prioritized, Uniform
from tests.oracle import Stream
from tests.replay.guarantees.chi2 import ALARM, p_value

SIZE, ROWS = 12, 4


def filled(sampler, size=SIZE, *, added=None, seed=5, **options):
    buffer = ReplayBuffer(size, {"x": Field()}, sampler=sampler, seed=seed, **options)
    buffer.extend(x=np.arange(float(added or size)))
    return buffer


def masses():
    return 1.0 + np.arange(SIZE) % 5


def prioritized(**options):
    buffer = filled(Prioritized(alpha=1.0, beta=0.0, epsilon=0.0, **options))
    buffer.update_priorities(np.arange(SIZE), masses())
    return buffer, masses() / masses().sum()


def pairs(buffer, batches=15_000):
    """Return the count of each pair of steps in rows 0 and 1."""
    drawn = np.stack([buffer.sample(ROWS).id[:2] for _ in range(batches)])
    return np.bincount(drawn @ [SIZE, 1], minlength=SIZE**2)


class TestJointDistribution:
    """Of two rows of a batch."""

    def test_uniform_rows_are_independent(self):
        assert p_value(pairs(filled(Uniform())), np.full(SIZE**2, SIZE**-2.0)) > ALARM

    def test_unstratified_prioritized_rows_are_independent(self):
        buffer, distribution = prioritized(stratified=False)
        assert p_value(pairs(buffer), np.outer(distribution, distribution).ravel()) > ALARM

    def test_stratified_rows_are_not(self):
        """So the comparison can fail."""
        buffer, distribution = prioritized()
        assert p_value(pairs(buffer, 3_000), np.outer(distribution, distribution).ravel()) < ALARM
        uniform = filled(Uniform(stratified=True))
        assert p_value(pairs(uniform, 3_000), np.full(SIZE**2, SIZE**-2.0)) < ALARM

    @pytest.mark.parametrize(
        "sampler", [Uniform(stratified=True), Prioritized(alpha=0.0), Prioritized(alpha=0.0, beta=0.0)]
    )
    @pytest.mark.parametrize(("size", "rows"), [(12, 4), (12, 12), (35, 7)])
    def test_each_stratum_gives_one_row(self, sampler, size, rows):
        buffer = filled(sampler, size, added=size + 5)  # wrapped: strata are of slots
        for _ in range(300):
            slots = buffer.sample(rows, progress=0.5).id % size
            assert (slots // (size // rows)).tolist() == list(range(rows))

    def test_a_stratum_is_drawn_from_evenly(self):
        """By the fraction of a step that belongs to it, where B does not divide N."""
        buffer = filled(Uniform(stratified=True), 5)
        drawn = np.stack([buffer.sample(2).id for _ in range(8_000)])
        for row, distribution in ((0, [0.4, 0.4, 0.2, 0, 0]), (1, [0, 0, 0.2, 0.4, 0.4])):
            assert p_value(np.bincount(drawn[:, row], minlength=5), np.array(distribution)) > ALARM

    def test_unstratified_blocks_choose_their_cells_independently(self):
        sampler = Prioritized(alpha=0.0, beta=0.0, block_length=4, stratified=False)
        buffer = filled(sampler, 16)
        together = [len(set((buffer.sample(8).id).tolist())) for _ in range(500)]
        assert min(together) <= 4  # both blocks are of the same cell, which strata of half the buffer never are
        stratified = filled(Prioritized(alpha=0.0, beta=0.0, block_length=4), 16)
        assert np.mean([len(set(stratified.sample(8).id.tolist())) for _ in range(500)]) > np.mean(together)


class TestOneRandomStream:
    """Draws are what the words say, number for number."""

    @pytest.mark.parametrize("size", [1, 5, 64, 1000, 65_537])
    def test_stratified_uniform_equals_equal_priorities(self, size):
        uniform = filled(Uniform(stratified=True), size, added=size + size // 3)
        equal = filled(Prioritized(alpha=0.0, beta=0.0), size, added=size + size // 3)
        for rows in (1, 7, 64):
            assert uniform.sample(rows).id.tolist() == equal.sample(rows).id.tolist()

    def test_unstratified_draws_by_the_oracle(self):
        buffer, _ = prioritized(stratified=False)
        stream, ends = Stream(5), np.cumsum(masses())
        expected = [int(np.searchsorted(ends, stream.uniform() * ends[-1], side="right")) for _ in range(64)]
        assert buffer.sample(64).id.tolist() == expected
