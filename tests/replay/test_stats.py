"""Figures of a buffer, against examples worked out by hand, and against plain formulas for every sampler."""

import dataclasses
import math

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay, research
from replaylab.errors import ConfigError
from tests.given import priorities_or_errors
from tests.replay.buffers import FLAGS
from tests.replay.guarantees.test_conformance import ONCE, SAMPLERS, Fresh, kind_of

X = {"x": Field()}


def make(capacity, sampler=None, steps=0, **options):
    buffer = ReplayBuffer(capacity, X, sampler=sampler, seed=0, count_replays=True, **options)
    buffer.extend(x=np.arange(float(steps)))
    return buffer


class TestByHand:
    def test_the_distribution(self):
        """Priorities 1, 2, 3, 4 of steps of age 3, 2, 1, 0: P = 0.1, 0.2, 0.3, 0.4."""
        buffer = make(10, replay.Prioritized(alpha=1.0), 4)
        buffer.update_priorities(np.arange(4), priority=np.array([1.0, 2.0, 3.0, 4.0]))
        stats = buffer.stats()
        assert stats.mean_drawn_age == pytest.approx(0.3 + 0.4 + 0.3)
        assert stats.effective_size == pytest.approx(1 / 0.30)
        entropy = -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4))
        assert stats.entropy == pytest.approx(entropy)
        assert stats.evenness == pytest.approx(entropy / math.log(4))
        assert stats.largest_priority == 4.0
        assert stats.total_priority == pytest.approx(10.0)

    def test_sizes_and_ages(self):
        stats = make(4, replay.Uniform(), 11).stats()
        assert (stats.size, stats.capacity, stats.added, stats.cycles) == (4, 4, 11, 2)
        assert (stats.oldest_age, stats.mean_age, stats.mean_drawn_age) == (3.0, 1.5, 1.5)
        assert (stats.effective_size, stats.entropy) == (4.0, pytest.approx(math.log(4)))
        assert stats.evenness == pytest.approx(1.0)
        assert stats.largest_priority is None
        assert stats.total_priority is None

    def test_replays_are_counted_where_that_was_asked_for(self):
        buffer = ReplayBuffer(4, X, seed=0)
        buffer.extend(x=np.zeros(4))
        buffer.sample(3)
        stats = buffer.stats()
        assert (stats.mean_replays, stats.max_replays, stats.never_replayed, stats.replay_gini) == (None,) * 4
        assert stats.samples == 3

    def test_replays(self):
        """The newest 2 of 4 twice, the newest 1 of 5 thrice, after which the oldest was dropped: 0, 2, 2, 3."""
        buffer = make(4, replay.SlidingWindow(), 4)
        buffer.sample(2)
        buffer.sample(2)
        stats = buffer.stats()
        assert (stats.mean_replays, stats.max_replays, stats.never_replayed) == (1.0, 2.0, 0.5)
        assert stats.replay_gini == pytest.approx(0.5)
        assert (stats.samples, stats.samples_per_insert) == (4, 1.0)
        buffer.add(x=4.0)
        for _ in range(3):
            buffer.sample(1)
        stats = buffer.stats()
        assert (stats.mean_replays, stats.max_replays, stats.never_replayed) == (7 / 4, 3.0, 0.25)
        assert stats.replay_gini == pytest.approx((-3 * 0 - 1 * 2 + 1 * 2 + 3 * 3) / (4 * 7))
        assert (stats.samples, stats.samples_per_insert) == (7, 7 / 5)

    def test_stale_updates(self):
        buffer = make(3, replay.Prioritized(), 5)
        assert buffer.update_priorities(np.array([0, 1, 1, 2, 4, -1]), np.ones(6)) == 2
        assert buffer.stats().stale_updates == 3

    def test_one_step(self):
        stats = make(5, replay.Uniform(), 1).stats()
        assert (stats.effective_size, stats.entropy, stats.evenness) == (1.0, 0.0, 1.0)
        assert (stats.oldest_age, stats.mean_age, stats.replay_gini) == (0.0, 0.0, 0.0)

    def test_nothing_stored(self):
        stats = make(5, replay.Prioritized()).stats()
        assert (stats.size, stats.added, stats.samples, stats.stale_updates) == (0, 0, 0, 0)
        assert stats.total_priority == 0.0
        for name in ("oldest_age", "mean_age", "effective_size", "entropy", "largest_priority", "samples_per_insert"):
            assert np.isnan(getattr(stats, name)), name

    def test_nothing_can_be_drawn(self):
        buffer = make(5, replay.Prioritized(), 3)
        buffer.update_priorities(np.arange(3), priority=np.zeros(3))
        stats = buffer.stats()
        assert np.isnan(stats.effective_size)
        assert (stats.mean_age, stats.largest_priority, stats.total_priority) == (1.0, 0.0, 0.0)

    def test_replicas_of_unequal_sizes(self):
        buffer = ReplayBuffer(3, X, replicas=3, num_envs=2, sampler=replay.Prioritized(alpha=1.0), seed=0)
        where = np.array([[True, True], [True, False], [False, False]])
        for _ in range(2):
            buffer.add(x=np.zeros((3, 2)), where=where)
        buffer.update_priorities(np.array([[1, 2], [0, 1], [-1, -1]]), priority=[[1.0, 3.0], [1.0, 3.0], [9.0, 9.0]])
        stats = buffer.stats()
        assert stats.size.tolist() == [3, 2, 0]
        assert stats.added.tolist() == [4, 2, 0]
        assert stats.cycles.tolist() == [1, 0, 0]
        assert stats.size.dtype == np.int64
        np.testing.assert_allclose(stats.oldest_age, [2, 1, np.nan])
        np.testing.assert_allclose(stats.total_priority, [5, 4, 0])
        np.testing.assert_allclose(stats.largest_priority, [3, 3, np.nan])
        np.testing.assert_allclose(stats.effective_size, [25 / 11, 16 / 10, np.nan])
        np.testing.assert_allclose(stats.mean_drawn_age, [(2 + 3) / 5, 1 / 4, np.nan])

    def test_a_reservoir(self):
        stats = make(4, replay.Uniform(), 100, retention=replay.Reservoir()).stats()
        assert (stats.size, stats.added, stats.cycles) == (4, 100, 25)
        assert stats.effective_size == pytest.approx(4.0)

    def test_sequences_are_what_is_drawn(self):
        """An episode of 4 steps in two blocks of 2, with priorities 1, 2 and 3, 4: P = 0.3, 0.7."""
        fields = X | {name: Field((), bool) for name in ("terminated", "truncated")} | {"reward": Field()}
        buffer = ReplayBuffer(
            8, fields, sampler=replay.Prioritized(alpha=1.0), transforms=(replay.Sequence(2, 0, 0),), seed=0
        )
        no = np.zeros(4, bool)
        buffer.extend(x=np.zeros(4), reward=np.zeros(4), terminated=no, truncated=no)
        assert buffer.stats().evenness == pytest.approx(1.0)
        buffer.update_priorities(np.array([0, 2]), priority=np.array([1.5, 3.5]))
        stats = buffer.stats()
        assert stats.effective_size == pytest.approx(1 / (0.09 + 0.49))
        assert stats.evenness == pytest.approx(-(0.3 * math.log(0.3) + 0.7 * math.log(0.7)) / math.log(2))
        assert stats.mean_drawn_age == pytest.approx(0.3 * 3 + 0.7 * 1)


ASKED = [research.Blocks(2)] + [
    sampler
    for sampler in (*SAMPLERS, *ONCE)
    if not isinstance(sampler, (research.Blocks, Fresh)) and not getattr(sampler, "distinct", False)
]
LAWFUL = [sampler for sampler in ASKED if sampler.has_closed_form]


def has_priorities(sampler):
    """Whether it, or a sampler that it is made of, draws by priorities."""
    if parts := getattr(sampler, "parts", ()):
        return any(map(has_priorities, parts))
    return isinstance(sampler, (replay.Prioritized, replay.LAP, replay.RankBased, replay.Greedy))


@pytest.mark.parametrize("sampler", LAWFUL, ids=kind_of)
@pytest.mark.parametrize("replicas", [None, 2])
def test_every_sampler(sampler, replicas):
    """Against the sampling distribution that the buffer states, after feedback and a wrap-around."""
    fields = X | {name: Field((), bool) for name in sampler.end_fields}
    buffer = ReplayBuffer(20, fields, sampler=sampler, replicas=replicas, count_replays=True, seed=0)
    lead = () if replicas is None else (replicas,)
    drawn = np.zeros((replicas or 1, 50), np.int64)
    rng = np.random.default_rng(0)
    for _ in range(5):
        buffer.extend(**dict.fromkeys(fields, np.zeros((*lead, 9), bool)))
        batch = buffer.sample(4, progress=0.5)
        buffer.update_priorities(batch.id, rng.normal(size=batch.id.shape))
        for counts, ids in zip(drawn, np.reshape(batch.id, (replicas or 1, -1)), strict=True):
            np.add.at(counts, ids, 1)
    stats = buffer.stats(batch_size=4, progress=0.5)
    ids = np.broadcast_to(np.arange(25, 45), (*lead, 20))
    distribution = buffer.probabilities(ids, batch_size=4, progress=0.5)
    np.testing.assert_allclose(stats.effective_size, 1 / (distribution**2).sum(-1))
    np.testing.assert_allclose(stats.mean_drawn_age, distribution @ np.arange(20)[::-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(stats.entropy, -np.nansum(distribution * np.log(distribution), -1), atol=1e-12)
    np.testing.assert_array_equal(np.reshape(stats.samples, -1), drawn.sum(-1))
    np.testing.assert_allclose(np.reshape(stats.mean_replays, -1), drawn[:, 25:45].mean(-1))
    np.testing.assert_array_equal(np.reshape(stats.max_replays, -1), drawn[:, 25:45].max(-1))
    assert np.shape(stats.size) == lead
    assert (stats.largest_priority is not None) == has_priorities(sampler)
    if has_priorities(sampler):
        assert np.all(stats.largest_priority <= stats.total_priority)


@pytest.mark.parametrize("sampler", [replay.SlidingWindow(), replay.Greedy(), replay.Recency()], ids=str)
def test_figures_that_need_more_are_none(sampler):
    stats = make(10, sampler, 5).stats()
    assert stats.effective_size is stats.entropy is stats.evenness is stats.mean_drawn_age is None
    assert stats.mean_age == 2.0
    assert make(10, sampler, 5).stats(batch_size=2, progress=1.0).effective_size is not None


def test_it_reads():
    text = repr(make(2000, replay.Uniform(), 1500).stats())
    assert text.startswith("ReplayStats\n  size                1,500\n")
    assert "  effective_size      1,500\n" in text
    assert "  largest_priority    —\n" in text
    assert "  entropy             7.313\n" in text
    buffer = ReplayBuffer(10, X, replicas=2, num_envs=2, seed=0)
    buffer.add(x=np.zeros((2, 2)), where=np.array([[True, True], [True, False]]))
    assert "of 2 replicas: mean (least to most)\n  size                1.5 (1 to 2)\n" in repr(buffer.stats())


def test_it_is_plain_data():
    stats = make(10, replay.Uniform(), 5).stats()
    assert isinstance(stats, replay.ReplayStats)
    assert dataclasses.asdict(stats)["size"] == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.size = 3


def test_asking_changes_nothing():
    buffers = [make(10, replay.Mixture((replay.ShuffledEpochs(), replay.Prioritized())), 8) for _ in range(2)]
    buffers[0].stats(batch_size=3)
    np.testing.assert_array_equal(buffers[0].sample(6, progress=0.5).id, buffers[1].sample(6, progress=0.5).id)


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("transforms", [(), (replay.Sequence(3, 1, 1),)], ids=["steps", "sequences"])
@pytest.mark.parametrize("sampler", ASKED, ids=kind_of)
def test_whatever_is_asked_of_whichever_sampler(sampler, transforms, replicas):
    """Figures, sampling distributions and words, of an empty buffer, a full one and one whose priorities are zero."""
    if transforms and not sampler.draws_sequences:
        return
    options = {"sampler": sampler, "transforms": transforms, "replicas": replicas, "count_replays": True, "seed": 0}
    buffer = ReplayBuffer(20, X | FLAGS, **options)
    lead = () if replicas is None else (replicas,)

    def look(stored):
        for asked in ({}, {"batch_size": 2}, {"batch_size": 2, "progress": 0.5}):
            stats = buffer.stats(**asked)
            if not sampler.has_closed_form:
                assert stats.effective_size is stats.entropy is stats.evenness is stats.mean_drawn_age is None
            assert (stats.effective_size is None) == (stats.entropy is None)
            assert np.shape(stats.size) == lead
            assert repr(stats)
        assert stats.effective_size is not None or not sampler.has_closed_form
        assert type(sampler).__name__ in repr(buffer)
        assert buffer._repr_html_()
        ids = np.broadcast_to(np.arange(max(0, stored - 20), stored), (*lead, min(stored, 20)))
        if sampler.has_closed_form:
            distribution = buffer.probabilities(ids, batch_size=2, progress=0.5)
            assert np.isfinite(distribution).all()
            assert distribution.shape == ids.shape
            return distribution.sum(-1)
        with pytest.raises(ConfigError, match="has no closed form of its sampling probability"):
            buffer.probabilities(ids, batch_size=2, progress=0.5)
        return np.ones(lead)

    look(0)
    for steps in (1, 30):
        ends = np.arange(steps) % 7 == 6
        rows = {"x": np.zeros(steps), "terminated": ends, "truncated": np.zeros(steps, bool)}
        ids = buffer.extend(**{name: np.broadcast_to(value, (*lead, steps)) for name, value in rows.items()})
        np.testing.assert_allclose(look(ids.max() + 1), 1.0)
        if steps > 1:
            assert buffer.sample(2, progress=0.5).id.shape[-1] == sampler.rows(2)
    buffer.update_priorities(ids, **priorities_or_errors(sampler, np.zeros(ids.shape)))
    look(31)


@pytest.mark.parametrize("reservoir", [False, True])
@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize("steps", [3, 7, 17])
def test_ids_and_replay_counts_are_in_one_order_oldest_first(steps, replicas, reservoir):
    """Counted from the batches themselves; after a wrap, slots and ids of a reservoir agree in no way."""
    more = {"retention": replay.Reservoir()} if reservoir else {}
    buffer = ReplayBuffer(7, X, replicas=replicas, seed=0, count_replays=True, **more)
    batches = []
    for i in range(steps):
        buffer.add(x=np.full(replicas or (), float(i)))
        batches.append(np.asarray(buffer.sample(5).id).reshape(replicas or 1, 5))
    drawn = np.concatenate(batches, axis=1)
    for r, (ids, counts) in enumerate(zip(buffer.stored_ids(), buffer.replay_counts(), strict=True)):
        assert len(ids) == min(steps, 7)
        assert (np.diff(ids) > 0).all()
        assert counts.tolist() == [(drawn[r] == row).sum() for row in ids]
    assert reservoir or buffer.stored_ids()[0].tolist() == list(range(max(0, steps - 7), steps))
