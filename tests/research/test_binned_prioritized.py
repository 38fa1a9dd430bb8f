"""Bins by one power of TD errors, and steps of a bin by another: against a slow oracle, which looks ahead."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.errors import ConfigError, FieldError, SnapshotError
from replaylab.replay import EpisodeEnds, Prioritized, Table
from replaylab.research import BinnedPrioritized
from tests.replay.guarantees.chi2 import assert_distribution
from tests.research.test_by_steps_to_end import CAPACITY, ROWS, STEPS, TERMINATED, add, bin_of, make, worlds

EXPONENTS = [(0.0, 0.0), (0.6, 0.0), (0.0, 0.6), (0.6, 0.6), (1.2, 0.4)]


class Oracle:
    """One replica: TD errors by id, and the probabilities by the formula."""

    def __init__(self, between, within, epsilon):
        self.exponents, self.epsilon, self.priorities = (between, within), epsilon, {}

    def add(self, step):
        self.priorities.pop(step - CAPACITY, None)
        self.priorities[step] = max(self.priorities.values(), default=1.0)

    def update(self, ids, td_errors):
        for i, error in zip(ids.tolist(), td_errors.tolist(), strict=True):
            if i in self.priorities:
                self.priorities[i] = abs(error) + self.epsilon

    def probabilities(self, ends):
        ids, newest = sorted(self.priorities), max(self.priorities)
        bins = [bin_of(i, newest, ends) for i in ids]
        between, within = (np.array([self.priorities[i] ** a for i in ids]) for a in self.exponents)
        members = [[j for j, other in enumerate(bins) if other == bin_] for bin_ in bins]
        shares = [between[rows].sum() / between.sum() for rows in members]
        return np.array([shares[j] * within[j] / within[rows].sum() for j, rows in enumerate(members)])


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(("between", "within"), EXPONENTS)
def test_probabilities_are_those_of_the_formula(between, within, replicas):
    """Before and after the ring wraps, between updates of some rows; powers are float32 numbers."""
    ends, rng = worlds(replicas, STEPS, 3), np.random.default_rng(5)
    buffer = make(BinnedPrioritized(between, within, epsilon=0.01), replicas)
    oracles = [Oracle(between, within, 0.01) for _ in range(replicas)]
    for step in range(STEPS):
        add(buffer, step, ends[step])
        for oracle in oracles:
            oracle.add(step)
        ids = np.arange(max(0, step + 1 - CAPACITY), step + 1)
        expected = np.stack([oracle.probabilities(ends[:, r]) for r, oracle in enumerate(oracles)])
        np.testing.assert_allclose(buffer.probabilities(np.tile(ids, (replicas, 1))), expected, rtol=2e-6)
        batch = buffer.sample(ROWS)
        np.testing.assert_allclose(
            batch.probability, np.take_along_axis(expected, batch.id - ids[0], axis=1), rtol=2e-6
        )
        np.testing.assert_array_equal(batch.x, batch.id)
        assert (batch.weight == 1).all()
        errors = rng.normal(size=batch.id.shape) ** 3
        some = (batch.id >= CAPACITY) & (rng.random(batch.id.shape) < 0.3)
        fed = np.where(some, batch.id - CAPACITY, batch.id)  # some of which are not stored any more
        buffer.update_priorities(fed, errors)
        for r, oracle in enumerate(oracles):
            oracle.update(fed[r], errors[r])


def trained(sampler, seed=0):
    """A buffer whose steps have TD errors, and its ids."""
    ends, rng = worlds(1, STEPS, 3), np.random.default_rng(seed)
    buffer = make(sampler)
    for step in range(STEPS):
        add(buffer, step, ends[step])
        if step % 3 == 0:
            ids = rng.integers(max(0, step + 1 - CAPACITY), step + 1, ROWS)
            buffer.update_priorities(ids, rng.normal(size=ROWS))
    return buffer, np.arange(STEPS - CAPACITY, STEPS), ends[:, 0]


def test_equal_exponents_are_prioritized_replay():
    (binned, ids, _), (prioritized, _, _) = map(trained, (BinnedPrioritized(0.7, 0.7), Prioritized(0.7, beta=0.0)))
    np.testing.assert_allclose(binned.probabilities(ids), prioritized.probabilities(ids), rtol=1e-5)  # float32 there


def test_one_exponent_keeps_the_other_factor():
    """Within a bin as uniform draws, or bins as often as they draw them."""
    even, ids, ends = trained(BinnedPrioritized(0.0, 0.0))
    np.testing.assert_allclose(even.probabilities(ids), 1 / CAPACITY)
    bins = [bin_of(i, STEPS - 1, ends) for i in ids.tolist()]
    positions, errors, both = (trained(BinnedPrioritized(*a))[0] for a in [(0.6, 0.0), (0.0, 0.6), (0.6, 0.6)])
    for wanted in set(bins):
        rows = ids[[bin_ == wanted for bin_ in bins]]
        shares = [buffer.probabilities(rows) for buffer in (positions, errors, both)]
        assert np.ptp(shares[0]) < 1e-12
        assert shares[0].sum() == pytest.approx(shares[2].sum(), rel=1e-6)
        assert shares[1].sum() == pytest.approx(len(rows) / CAPACITY)
        np.testing.assert_allclose(shares[1] / shares[1].sum(), shares[2] / shares[2].sum(), rtol=1e-6)


@pytest.mark.parametrize("sampler", [BinnedPrioritized(1.0, 0.2), EpisodeEnds(Table((0.2, 0.8), (0.1, 0.5)))])
def test_draws_follow_the_probabilities(sampler):
    buffer, ids, _ = trained(sampler)
    drawn = np.concatenate([buffer.sample(ROWS, progress=0.5).id for _ in range(4_000)])
    assert_distribution(np.bincount(drawn - ids[0], minlength=CAPACITY), buffer.probabilities(ids, progress=0.5))


@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_the_share_of_ends_follows_its_schedule(progress):
    share = {0.0: 0.1, 0.25: 0.2, 1.0: 0.0}[progress]
    buffer, ids, ends = trained(EpisodeEnds(Table((0.0, 0.5, 0.75), (0.1, 0.3, 0.0))))
    assert (ends[ids] == TERMINATED).any()
    expected = trained(EpisodeEnds(share))[0].probabilities(ids)
    np.testing.assert_allclose(buffer.probabilities(ids, progress=progress), expected)


def test_draws_are_even_without_ends():
    buffer = make(EpisodeEnds(1.0))
    buffer.extend(x=range(10), terminated=[False] * 10, truncated=[True] * 10)
    np.testing.assert_allclose(buffer.probabilities(range(10)), 0.1)


@pytest.mark.parametrize("sampler", [BinnedPrioritized(0.6, 0.3), EpisodeEnds(Table((0.0, 1.0), (0.4, 0.1)))])
def test_snapshots_and_parts_continue(sampler, tmp_path):
    ends, buffer = worlds(3, STEPS, 8), make(sampler, 3, [4, 9, 2])

    def drawn(buffer, begin, end, replicas=slice(None)):
        draws = []
        for step in range(begin, end):
            add(buffer, step, ends[step, replicas])
            draws.append(buffer.sample(ROWS, progress=step / STEPS).id)
            buffer.update_priorities(draws[-1], np.sin(draws[-1] * 1.7))
        return np.stack(draws)

    drawn(buffer, 0, 100)
    buffer.save(tmp_path)
    part, loaded = buffer.part([0, 2]), ReplayBuffer.load(tmp_path, continue_episodes=True)
    expected = drawn(buffer, 100, STEPS)
    np.testing.assert_array_equal(drawn(loaded, 100, STEPS), expected)
    np.testing.assert_array_equal(drawn(part, 100, STEPS, [0, 2]), expected[:, [0, 2]])


def test_a_cleared_buffer_begins_again():
    buffer, _, _ = trained(BinnedPrioritized())
    buffer.update_priorities([STEPS - 1], [100.0])
    buffer.clear()
    first = buffer.extend(x=range(4), terminated=[False] * 4, truncated=[False] * 4)
    buffer.update_priorities(first[:1], [3.0])
    weights = np.array([3.0 + 1e-6, 1.0, 1.0, 1.0]) ** 0.6
    np.testing.assert_allclose(buffer.probabilities(first), weights / weights.sum())


class TestRefusals:
    def test_priorities(self):
        buffer, ids, _ = trained(BinnedPrioritized())
        with pytest.raises(ConfigError, match="priority"):
            buffer.update_priorities(ids, priority=np.ones(len(ids)))

    def test_no_field_that_ends_episodes(self):
        with pytest.raises(FieldError, match="must know where episodes end"):
            ReplayBuffer(8, {"x": Field()}, sampler=BinnedPrioritized())

    def test_other_exponents_than_were_saved(self, tmp_path):
        trained(BinnedPrioritized(0.6, 0.3))[0].save(tmp_path)
        with pytest.raises(SnapshotError, match="saved with sampler"):
            ReplayBuffer.load(tmp_path, sampler=BinnedPrioritized(0.6, 0.6))
