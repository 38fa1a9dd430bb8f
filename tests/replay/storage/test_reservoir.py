"""Reservoir retention: every step ever given is stored with the same chance, whatever its age."""

import numpy as np
import pytest
from scipy import stats

from replaylab.errors import IdError
from replaylab.replay import Field, Fifo, Greedy, Prioritized, ReplayBuffer, Reservoir
from tests.replay.guarantees.test_conformance import EVERY, kind_of

FALSE_ALARM = 1e-6
ORDERLESS = [sampler for sampler in EVERY if sampler.in_core and not sampler.needs_order]


def reservoir_of(capacity, steps, seed=0, **options):
    """Return a reservoir after so many steps whose one field is their number, and the ids they got."""
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, retention=Reservoir(), seed=seed, **options)
    return buffer, buffer.extend(x=np.arange(steps))


class TestWhatIsKept:
    def test_all_until_it_is_full(self):
        buffer, ids = reservoir_of(10, 10)
        np.testing.assert_array_equal(ids, np.arange(10))
        np.testing.assert_array_equal(buffer.columns["x"], np.arange(10))

    def test_every_step_has_the_same_chance(self):
        """χ² over 20,000 reservoirs of 5 out of 13; steps of one reservoir exclude each other, which only helps."""
        capacity, steps, repeats = 5, 13, 20_000
        counts = np.zeros(steps)
        buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, retention=Reservoir(), replicas=repeats, seed=11)
        buffer.extend(x=np.tile(np.arange(steps), (repeats, 1)))
        np.add.at(counts, buffer.columns["x"].ravel(), 1)
        expected = capacity * repeats / steps
        assert counts.sum() == capacity * repeats
        assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), steps - 1) > FALSE_ALARM
        assert counts.std() > 0  # it is random at all

    def test_pairs_have_the_same_chance(self):
        """Not only single steps: any two are stored together as often as any other two."""
        capacity, steps, repeats = 3, 6, 30_000
        buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, retention=Reservoir(), replicas=repeats, seed=5)
        buffer.extend(x=np.tile(np.arange(steps), (repeats, 1)))
        stored = np.zeros((repeats, steps))
        np.put_along_axis(stored, buffer.columns["x"], 1, axis=1)
        pairs = (stored.T @ stored)[np.triu_indices(steps, 1)]
        expected = repeats * capacity * (capacity - 1) / (steps * (steps - 1))
        assert stats.chi2.sf(((pairs - expected) ** 2 / expected).sum(), len(pairs) - 1) > FALSE_ALARM

    def test_ids_are_of_the_stored_only(self):
        buffer, ids = reservoir_of(4, 1000)
        stored = ids[ids >= 0]
        np.testing.assert_array_equal(stored, np.arange(len(stored)))  # dense, in the order they came
        assert 4 < len(stored) < 100
        newest = stored[-1]
        assert buffer.get(newest)["x"] == np.flatnonzero(ids == newest)[0]

    def test_one_seed_one_reservoir(self):
        first, second, other = (reservoir_of(6, 500, seed)[0].columns["x"] for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()


@pytest.mark.parametrize("sampler", ORDERLESS, ids=kind_of)
class TestSamplers:
    def test_rows_ids_and_distribution_belong_together(self, sampler):
        buffer, ids = reservoir_of(7, 200, sampler=sampler)
        number = {int(i): x for x, i in enumerate(ids) if i >= 0}
        for turn in range(50):
            batch = buffer.sample(5, progress=0.5)
            assert [number[int(i)] for i in batch.id] == batch.x.tolist()
            assert set(batch.x.tolist()) <= set(buffer.columns["x"].tolist())
            buffer.update_priorities(batch.id, np.abs(np.sin(batch.x + turn)) + 0.1)
            more = buffer.extend(x=np.arange(3) + 1000 + 3 * turn)
            number |= {int(i): 1000 + 3 * turn + k for k, i in enumerate(more) if i >= 0}

    def test_the_distribution_sums_to_one(self, sampler):
        buffer, ids = reservoir_of(7, 200, sampler=sampler)
        if not sampler.has_closed_form:
            return
        distribution = buffer.probabilities(ids[ids >= 0], batch_size=4, progress=0.5)
        assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
        assert (distribution > 0).sum() == (4 if sampler == Greedy() else 7)

    def test_saved_and_restored_it_goes_on_as_before(self, sampler, tmp_path):
        buffer, _ = reservoir_of(9, 300, sampler=sampler)
        buffer.save(tmp_path)
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        for turn in range(40):
            a, b = buffer.sample(4, progress=0.5), twin.sample(4, progress=0.5)
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
            np.testing.assert_array_equal(buffer.add(x=turn), twin.add(x=turn))
            assert buffer.update_priorities(a.id, a.x + 1.0) == twin.update_priorities(b.id, b.x + 1.0)


def test_feedback_for_a_step_that_went_changes_nothing():
    buffer, ids = reservoir_of(3, 400, sampler=Prioritized(alpha=1.0, beta=1.0))
    gone = next(i for i in ids[ids >= 0] if buffer.probabilities(i) == 0)
    before = [float(buffer.probabilities(i)) for i in ids[ids >= 0]]
    assert buffer.update_priorities(gone, 1e6) == 0
    assert before == [float(buffer.probabilities(i)) for i in ids[ids >= 0]]
    with pytest.raises(IdError, match="is not stored"):
        buffer.get(gone)


def test_fifo_is_the_default():
    assert ReplayBuffer(5, {"x": Field()}).retention == Fifo()
