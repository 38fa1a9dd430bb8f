"""Blocks of prioritized draws: the joint distribution by enumeration, every draw by the oracle, and their form.

`test_conformance.py` has the sampling probability of one row in every state. False alarms: see `chi2.py`.
"""

import math
from fractions import Fraction
from itertools import accumulate, pairwise, product

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay, research
from replaylab.errors import ConfigError
from tests.given import priorities_or_errors
from tests.oracle import Stream, block_slots
from tests.replay.guarantees.chi2 import assert_distribution

RAW = {"alpha": 1.0, "beta": 0.4}


def make(sampler, priority, *, steps=None, seed=3, **options):
    """A full ring of as many steps as there are priorities, which belong to the stored steps from old to new."""
    capacity = len(priority)
    steps = capacity if steps is None else steps
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=sampler, seed=seed, **options)
    lead = () if buffer.replicas is None else (buffer.replicas,)
    ids = buffer.extend(x=np.broadcast_to(np.arange(steps), (*lead, steps)))[..., -capacity:]
    buffer.update_priorities(ids, **priorities_or_errors(sampler, np.broadcast_to(priority, ids.shape)))
    return buffer


def rows_of_cell(cell, mass, length):
    """The chance of every outcome of L rows at equal distances in a cell's running sum: {rows: chance}."""
    ends = [Fraction(end * length, sum(mass[i] for i in cell)) for end in accumulate(mass[i] for i in cell)]
    edges = sorted({Fraction(0), Fraction(1)} | {end % 1 for end in ends})
    chances = {}
    for low, high in pairwise(edges):
        middle = (low + high) / 2
        rows = tuple(next(i for i, end in zip(cell, ends, strict=True) if end > row + middle) for row in range(length))
        chances[rows] = chances.get(rows, 0) + (high - low)
    return chances


def joint_distribution(mass, by_slot, length, blocks):
    """The chance of every batch, by enumeration over offsets, cells and rows; steps are numbered from old to new.

    Args:
        mass: p^α of each step, whole numbers.
        by_slot: the steps in the order of their slots, by which draws are stratified.
        length: L.
        blocks: B/L.
    """
    distribution, total = {}, sum(mass)
    for offset in range(length):
        cells = {}
        for step in range(len(mass)):
            cells.setdefault((step + offset) // length, []).append(step)
        of_block = []
        for k in range(blocks):
            chances, end = {}, Fraction(0)
            for step in by_slot:  # the part of the running sum that lies in this block's segment
                start, end = end, end + mass[step]
                share = min(end, total * Fraction(k + 1, blocks)) - max(start, total * Fraction(k, blocks))
                if share <= 0:
                    continue
                cell = next(cell for cell in cells.values() if step in cell)
                for rows, chance in rows_of_cell(cell, mass, length).items():
                    chances[rows] = chances.get(rows, 0) + chance * share * blocks / total
            of_block.append(chances)
        for parts in product(*(chances.items() for chances in of_block)):
            batch = sum((rows for rows, _ in parts), ())
            distribution[batch] = distribution.get(batch, 0) + math.prod(chance for _, chance in parts) / length
    return distribution


def assert_joint_distribution(buffer, mass, by_slot, length, blocks, batches):
    rows = length * blocks
    distribution = joint_distribution(mass, by_slot, length, blocks)
    shares = [sum(chance * batch.count(i) for batch, chance in distribution.items()) / rows for i in range(len(mass))]
    assert shares == [Fraction(m, sum(mass)) for m in mass]  # every row's own chance, exactly
    oldest = int(buffer.columns["x"].min())
    drawn = np.stack([buffer.sample(rows).id for _ in range(batches)]) - oldest
    shape = (len(mass),) * rows
    expected = np.zeros(shape)
    for batch, chance in distribution.items():
        expected[batch] = float(chance)
    counts = np.bincount(np.ravel_multi_index(tuple(drawn.T), shape), minlength=expected.size)
    assert_distribution(counts, expected.ravel())


class TestTheJointDistribution:
    @pytest.mark.parametrize("steps", [7, 24])  # as stored, and with the oldest step in slot 3
    @pytest.mark.parametrize("mass", [[3, 1, 4, 1, 5, 9, 2], [1, 0, 0, 7, 0, 2, 1], [1] * 7])
    @pytest.mark.parametrize(("length", "blocks"), [(2, 1), (2, 2), (3, 1), (5, 1)])
    def test_by_enumeration(self, length, blocks, mass, steps):
        buffer = make(replay.Prioritized(**RAW, block_length=length), mass, steps=steps)
        by_slot = sorted(range(7), key=lambda step: (steps + step) % 7)
        assert_joint_distribution(buffer, mass, by_slot, length, blocks, batches=8000)

    @pytest.mark.parametrize("bins", [1, 2])
    @pytest.mark.parametrize("length", [2, 3])
    def test_of_permuted_priorities_by_the_age_of_what_is_shown(self, length, bins):
        priorities = [3, 1, 4, 1, 5, 9, 2]
        buffer = make(research.Permuted(**RAW, bins=bins, block_length=length), priorities, steps=24)
        mass = [round(m) for m in buffer.probabilities(np.arange(17, 24)) * sum(priorities)]
        assert sorted(mass) == sorted(priorities)
        assert mass != priorities
        assert_joint_distribution(buffer, mass, range(7), length, 1, batches=8000)

    def test_of_small_errors_first(self):
        buffer = make(research.AntiPrioritized(**RAW, block_length=2), [1 / 4, 1, 1 / 2, 1 / 8, 1, 1 / 4, 1])
        assert_joint_distribution(buffer, [4, 1, 2, 8, 1, 4, 1], range(7), 2, 2, batches=8000)


@pytest.mark.parametrize("length", [2, 8, 64])
@pytest.mark.parametrize("capacity", [1, 2, 5, 63, 1000])
def test_every_draw_by_the_oracle(capacity, length):
    """Whole priorities make every sum exact, so no draw can fall on the other side of an edge."""
    priority = 1.0 + np.arange(capacity) % 7 * (np.arange(capacity) % 3)
    for seed, steps in [(1, capacity), (99, 3 * capacity + capacity // 3), (2**40 + 7, 7 * capacity + 1)]:
        buffer = make(replay.Prioritized(**RAW, block_length=length), priority, steps=steps, seed=seed)
        stream, slots = Stream(seed), (steps + np.arange(capacity)) % capacity
        masses = np.empty(capacity)
        masses[slots] = priority
        for rows in (length, 3 * length):
            expected = block_slots(stream, masses.astype(int).tolist(), (steps - 1) % capacity, rows, length)
            assert (buffer.sample(rows).id % capacity).tolist() == expected


def test_the_same_draws_on_every_machine():
    buffer = make(replay.Prioritized(**RAW, block_length=4), 1.0 + np.arange(1000) % 7, seed=0)
    assert buffer.sample(8).id.tolist() == [45, 46, 47, 48, 685, 685, 687, 688]


class TestABlock:
    @pytest.mark.parametrize("priority", [1.0, 0.3, 1e-30])
    @pytest.mark.parametrize("length", [2, 3, 8, 20])
    @pytest.mark.parametrize("kind", [replay.Prioritized, replay.ReLo, research.AntiPrioritized, research.Permuted])
    def test_of_equal_priorities_is_consecutive_steps(self, kind, length, priority):
        """As `Blocks` gives; the cells at the two ends may be shorter, and give their steps about equally often."""
        buffer, short = make(kind(block_length=length), np.full(50, priority), steps=133), 0
        for _ in range(200):
            for block in buffer.sample(4 * length, progress=0.5).id.reshape(4, length):
                steps, counts = np.unique(block, return_counts=True)
                assert block.tolist() == sorted(block)
                assert steps.tolist() == list(range(steps[0], steps[-1] + 1))
                assert counts.max() - counts.min() <= 1
                assert len(steps) == length or steps[0] == 83 or steps[-1] == 132
                short += len(steps) < length
        assert 0 < short < 400

    def test_starts_as_often_at_every_step_as_those_of_blocks(self):
        starts = []
        for sampler in (replay.Prioritized(block_length=4), research.Blocks(4)):
            buffer = make(sampler, np.ones(37))
            batches = np.stack([buffer.sample(4, progress=0.0).id for _ in range(6000)])
            starts.append(np.bincount(batches[(np.diff(batches) == 1).all(axis=1), 0], minlength=37))
            assert_distribution(starts[-1], np.append(np.full(34, 1 / 34), np.zeros(3)))

    @pytest.mark.parametrize("kind", [replay.Prioritized, research.AntiPrioritized, research.Permuted])
    def test_lies_in_one_cell_and_a_batchs_cells_share_an_offset(self, kind):
        buffer = make(kind(**RAW, block_length=8), np.random.default_rng(0).exponential(size=100), steps=333)
        offsets = set()
        for _ in range(300):
            blocks = buffer.sample(64).id.reshape(8, 8)
            fits = [offset for offset in range(8) if (np.ptp((blocks + offset) // 8, axis=1) == 0).all()]
            assert fits
            offsets |= set(fits) if len(fits) == 1 else set()
        assert offsets == set(range(8))

    @pytest.mark.parametrize("normalize", ["buffer", "none"])
    def test_has_the_probabilities_and_weights_of_single_draws(self, normalize):
        priority = np.random.default_rng(0).exponential(size=30)
        single, blocks = (
            make(replay.Prioritized(**RAW, normalize=normalize, block_length=n), priority) for n in (1, 8)
        )
        batch, many = blocks.sample(64), single.sample(5000)
        weight = dict(zip(many.id.tolist(), many.weight, strict=True))
        np.testing.assert_array_equal(batch.probability, single.probabilities(batch.id))
        np.testing.assert_array_equal(batch.weight, [weight[i] for i in batch.id.tolist()])

    def test_follows_new_priorities_and_new_steps(self):
        """Steps whose neighbours lost their priorities are drawn alone, while the ring goes round."""
        buffer = make(replay.Prioritized(**RAW, block_length=8), np.ones(50))
        for step in range(50, 200):
            buffer.add(x=step)
            alive = np.arange(step - 49, step + 1)
            buffer.update_priorities(alive, priority=np.where(alive % 10 == 3, 1.0, 0.0))
            assert set(buffer.sample(16).id % 10) == {3}
            buffer.update_priorities([step], priority=[1.0])


class TestRefusals:
    def test_a_batch_that_is_no_multiple(self):
        buffer, twin = (make(replay.Prioritized(**RAW, block_length=8), np.ones(50)) for _ in range(2))
        with pytest.raises(ConfigError) as caught:
            buffer.sample(20)
        assert str(caught.value) == (
            "`batch_size` must be a multiple of the sampler's `block_length`, but got batch_size=20, block_length=8; "
            "ask for 24 rows, or for blocks of a length that divides 20"
        )
        np.testing.assert_array_equal(buffer.sample(16).id, twin.sample(16).id)

    def test_a_share_of_a_mixture_that_is_no_multiple(self):
        buffer = make(replay.Mixture((replay.Uniform(), replay.Prioritized(**RAW, block_length=8))), np.ones(50))
        assert len(buffer.sample(16).id) == 16
        with pytest.raises(ConfigError, match="but got batch_size=4, block_length=8; ask for 8 rows"):
            buffer.sample(8)
