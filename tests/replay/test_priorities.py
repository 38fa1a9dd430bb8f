"""A replay without fields: the distributions, ids and feedback of a buffer, over slots that somebody else stores."""

import copy
import pickle

import numpy as np
import pytest

from replaylab import _core, replay
from replaylab.errors import ConfigError, EmptyBufferError, IdError, ShapeError, SnapshotError
from replaylab.replay import Assigned, Field, Priorities, ReplayBuffer
from tests.replay.buffers import FLAGS
from tests.replay.guarantees.chi2 import assert_distribution
from tests.replay.guarantees.test_conformance import EVERY, kind_of

IN_CORE = [sampler for sampler in EVERY if sampler.in_core]
ORDERLESS = [sampler for sampler in IN_CORE if not sampler.needs_order]
CONSTANT = [sampler for sampler in ORDERLESS if sampler.has_closed_form]
"""Those whose sampling distribution is the same for every batch."""
C, E = 37, 3


def same(mine, expected):
    for name in ("id", "weight", "probability"):
        np.testing.assert_array_equal(mine[name], expected[name])


def test_small_batches_skip_the_memory_lookup(monkeypatch):
    """It opens a file, which takes longer than a draw."""

    def looked_up():
        raise LookupError

    monkeypatch.setattr("replaylab.machine.machine_memory", looked_up)
    priorities = Priorities(C, seed=0)
    priorities.extend(50)
    assert len(priorities.sample(32).id) == 32
    with pytest.raises(LookupError):
        priorities.extend(2**18)


class TestLikeABuffer:
    """With one seed and the same calls, every draw is that of a buffer with rows, bit for bit."""

    @pytest.mark.parametrize("sampler", IN_CORE, ids=kind_of)
    @pytest.mark.parametrize("num_envs", [None, E])
    def test_draws_distributions_and_feedback(self, sampler, num_envs):
        rng = np.random.default_rng(0)
        options = {"sampler": sampler, "num_envs": num_envs, "seed": 3, "count_replays": True}
        buffer, mine = ReplayBuffer(C, {"x": Field()} | FLAGS, **options), Priorities(C, **options)
        leading = () if num_envs is None else (num_envs,)
        for _ in range(12):
            flags = {name: rng.random((9, *leading)) < 0.2 for name in FLAGS}
            ids = buffer.extend(x=np.zeros((9, *leading)), **flags)
            np.testing.assert_array_equal(mine.extend(9, **flags), ids)
            flag_of_step = {name: flag[0] for name, flag in flags.items()}
            np.testing.assert_array_equal(mine.add(**flag_of_step), buffer.add(x=np.zeros(leading), **flag_of_step))
            drawn = buffer.sample(8, progress=0.5)
            batch = mine.sample(8, progress=0.5)
            same(batch, drawn)
            np.testing.assert_array_equal(batch.slot, drawn.id % C)
            errors = rng.normal(size=drawn.id.shape)
            late = ids.ravel()[: drawn.id.size] - C // 2  # some of them are gone
            assert mine.update_priorities(batch.id, errors) == buffer.update_priorities(drawn.id, errors)
            assert mine.update_priorities(np.maximum(late, -1), np.ones(late.size)) == buffer.update_priorities(
                np.maximum(late, -1), np.ones(late.size)
            )
        np.testing.assert_array_equal(mine.stored_ids(), buffer.stored_ids()[0])
        np.testing.assert_array_equal(mine.replay_counts(), buffer.replay_counts()[0])
        assert repr(mine.stats(batch_size=8, progress=0.5)) == repr(buffer.stats(batch_size=8, progress=0.5))
        if sampler.has_closed_form:
            distribution = mine.probabilities(mine.stored_ids(), batch_size=8, progress=0.5)
            np.testing.assert_array_equal(
                distribution, buffer.probabilities(buffer.stored_ids()[0], batch_size=8, progress=0.5)
            )

    def test_not_a_byte_for_a_row(self):
        rows = 10_000
        assert Priorities(rows).nbytes == 0
        fields = {"x": Field((), np.uint8)}
        for sampler in (replay.Prioritized(), replay.RankBased()):
            buffer_bytes = ReplayBuffer(rows, fields, sampler=sampler).nbytes
            assert buffer_bytes - Priorities(rows, sampler=sampler).nbytes == rows + 1

    def test_where_and_ends_are_reported_of_some(self):
        priorities = Priorities(C, num_envs=E, sampler=replay.EpisodeEnds(), seed=0)
        assert priorities.add(where=[True, False, True]).tolist() == [0, -1, 1]
        assert priorities.add(terminated=[True, False, False]).tolist() == [2, 3, 4]
        priorities.end_episode([False, False, True])
        assert priorities.extend(2).tolist() == [[5, 6, 7], [8, 9, 10]]
        state = priorities._parts.core.state()
        assert len({*state["replica0.episode_of"][:11].tolist()}) == 5  # three, one that began again, one that ended

    def test_clear(self):
        priorities = Priorities(C, seed=0)
        ids = priorities.extend(5)
        priorities.clear()
        assert (len(priorities), priorities.add(), priorities.update_priorities(ids, np.ones(5))) == (0, C, 0)
        assert priorities.sample(3).slot.tolist() == [0, 0, 0]


class TestAssigned:
    """Whoever stores the rows says which slot a step goes to: a plain dictionary tells what lies where."""

    def filled(self, sampler, seed=0, rounds=60):
        rng = np.random.default_rng(seed)
        priorities, lies = Priorities(C, sampler=sampler, retention=Assigned(), seed=seed), {}
        for _ in range(rounds):
            slots = rng.integers(0, C - 4, rng.integers(1, 5)) + 2 * rng.integers(0, 2)  # some are never used
            ids = priorities.assign(slots)
            lies.update(zip(slots.tolist(), ids.tolist(), strict=True))
            some = rng.choice(priorities.next_id, 6)
            stored = set(lies.values())
            updated = priorities.update_priorities(some, rng.normal(size=6))
            assert updated == sum(id_ in stored for id_ in some.tolist())
        return priorities, lies

    @pytest.mark.parametrize("sampler", CONSTANT, ids=kind_of)
    def test_the_distribution(self, sampler):
        """At most two comparisons, each at a rate of false alarms of 1e-9."""
        priorities, lies = self.filled(sampler)
        ids = priorities.stored_ids()
        assert sorted(lies.values()) == ids.tolist()
        distribution = priorities.probabilities(ids, batch_size=8, progress=0.5)
        slot_of = {id_at: slot for slot, id_at in lies.items()}
        counts = np.zeros(len(ids), np.int64)
        for _ in range(2000):
            batch = priorities.sample(8, progress=0.5)
            assert [slot_of[id_] for id_ in batch.id.tolist()] == batch.slot.tolist()
            counts += np.bincount(np.searchsorted(ids, batch.id), minlength=len(ids))
        assert_distribution(counts, distribution)
        gone = np.setdiff1d(np.arange(priorities.next_id), ids)
        assert not priorities.probabilities(gone, batch_size=8, progress=0.5).any()

    def test_weights_are_those_of_the_distribution(self):
        priorities, _ = self.filled(replay.Prioritized(beta=0.4, normalize="none"))
        batch = priorities.sample(16)
        np.testing.assert_array_equal(batch.probability, priorities.probabilities(batch.id))
        np.testing.assert_allclose(batch.weight, (len(priorities) * batch.probability) ** -0.4, rtol=1e-5)

    def test_stale_feedback_changes_nothing(self):
        priorities = Priorities(4, sampler=replay.Prioritized(beta=0.4), retention=Assigned(), seed=0)
        old = priorities.assign([3, 1])
        new = priorities.assign([3])
        before = priorities.probabilities(new)
        assert priorities.update_priorities(old[:1], [100.0]) == 0
        np.testing.assert_array_equal(priorities.probabilities(new), before)
        assert priorities.stats().stale_updates == 1

    def test_figures(self):
        priorities, lies = self.filled(replay.RankBased(beta=0.4))
        stats = priorities.stats()
        assert (stats.size, stats.added) == (len(lies), priorities.next_id) == (len(priorities), stats.added)
        assert stats.oldest_age == priorities.next_id - 1 - min(lies.values())

    def test_clear(self):
        priorities, _ = self.filled(replay.Prioritized(beta=0.4))
        priorities.clear()
        assert len(priorities) == 0
        with pytest.raises(EmptyBufferError):
            priorities.sample(1)
        ids = priorities.assign([5, 9])
        assert (ids % C).tolist() == [0, 1]
        assert set(priorities.sample(32).slot.tolist()) == {5, 9}

    def test_no_step(self):
        priorities, _ = self.filled(replay.Uniform())
        assert priorities.assign([]).shape == (0,)
        assert priorities.assign(7).shape == ()


class TestSaving:
    """It continues exactly, whichever way it went."""

    def filled(self, retention):
        if retention is None:
            priorities = Priorities(C, sampler=replay.RankBased(beta=0.4), num_envs=E, seed=0)
            priorities.update_priorities(priorities.extend(20)[-5:], np.arange(15.0).reshape(5, 3))
            return priorities
        return TestAssigned().filled(replay.Prioritized(beta=0.4))[0]

    def go_on(self, priorities):
        drawn = [priorities.sample(9)]
        if isinstance(priorities.retention, Assigned):
            priorities.assign([0, 8, 30, 36])
        else:
            priorities.extend(5)
        priorities.update_priorities(drawn[0].id, np.arange(9.0))
        return np.concatenate([*(batch.slot for batch in drawn), priorities.sample(50).slot, priorities.stored_ids()])

    @pytest.mark.parametrize("retention", [None, "assigned"])
    @pytest.mark.parametrize("way", ["load", "restore", "pickle", "deepcopy"])
    def test_it_continues(self, retention, way, tmp_path):
        priorities = self.filled(retention)
        priorities.save(tmp_path / "saved")
        if way == "load":
            other = Priorities.load(tmp_path / "saved")
        elif way == "restore":
            other = self.filled(retention)
            self.go_on(other)
            other.restore(tmp_path / "saved")
        else:
            other = pickle.loads(pickle.dumps(priorities)) if way == "pickle" else copy.deepcopy(priorities)
        np.testing.assert_array_equal(self.go_on(other), self.go_on(priorities))

    def test_saved_again(self, tmp_path):
        priorities = self.filled(None)
        priorities.save(tmp_path)
        priorities.extend(3)
        priorities.save(tmp_path)
        other = Priorities.load(tmp_path, sampler=replay.RankBased(alpha=0.1, beta=0.4))
        assert other.sampler.alpha == 0.1
        np.testing.assert_array_equal(other.stored_ids(), priorities.stored_ids())

    def test_what_is_of_another_kind(self, tmp_path):
        self.filled(None).save(tmp_path / "priorities")
        with pytest.raises(SnapshotError, match=r"is of Priorities; load it with Priorities\.load"):
            ReplayBuffer.load(tmp_path / "priorities")
        ReplayBuffer(8, {"x": Field()}).save(tmp_path / "buffer")
        with pytest.raises(SnapshotError, match=r"is of ReplayBuffer; load it with ReplayBuffer\.load"):
            Priorities.load(tmp_path / "buffer")
        with pytest.raises(SnapshotError, match="with capacity=37, but this one has 38"):
            Priorities(C + 1, sampler=replay.RankBased(beta=0.4), num_envs=E).restore(tmp_path / "priorities")

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("used", [99]),
            ("places", [0] * C),
            ("places", [C] * C),
            ("places", []),
            ("ids", []),
            ("ids", [-1] * C),
        ],
    )
    def test_tables_that_nothing_wrote(self, name, wrong):
        priorities = self.filled("assigned")
        state = priorities._parts.core.state()
        state[f"replica0.{name}"] = np.array(wrong, np.int64)
        with pytest.raises(SnapshotError):
            self.filled("assigned")._parts.core.restore(state)


class TestRefusals:
    @pytest.mark.parametrize("sampler", [replay.LaBER(len), replay.Oracle(len)], ids=["LaBER", "Oracle"])
    def test_samplers_that_look_at_rows(self, sampler):
        with pytest.raises(ConfigError, match="needs rows, which Priorities does not have"):
            Priorities(C, sampler=sampler)

    @pytest.mark.parametrize("sampler", [sampler for sampler in IN_CORE if sampler.needs_order], ids=kind_of)
    def test_no_order(self, sampler):
        with pytest.raises(ConfigError, match=r"needs the order of the steps, which Assigned\(\) does not keep"):
            Priorities(C, sampler=sampler, retention=Assigned())

    def test_of_the_other_retention(self):
        assigned = Priorities(C, retention=Assigned())
        for call in (assigned.add, lambda: assigned.extend(2)):
            with pytest.raises(ConfigError, match=r"use assign\(slots\)"):
                call()
        with pytest.raises(ConfigError, match=r"use add\(\) or extend\(\)"):
            Priorities(C).assign([1])
        with pytest.raises(ConfigError, match=r"must be Fifo\(\) or Assigned\(\)"):
            Priorities(C, retention=replay.Reservoir())
        with pytest.raises(ConfigError, match="`num_envs` must be None with Assigned"):
            Priorities(C, retention=Assigned(), num_envs=2)
        with pytest.raises(ConfigError, match=r"must be Fifo\(\) or Reservoir\(\)"):
            ReplayBuffer(C, {"x": Field()}, retention=Assigned())

    @pytest.mark.parametrize("slots", [[0, C], [-1]])
    def test_no_such_slot(self, slots):
        priorities = Priorities(C, retention=Assigned())
        with pytest.raises(IdError, match="a slot must be 0 to 36"):
            priorities.assign(slots)
        assert priorities.next_id == 0

    def test_flags_of_another_shape(self):
        with pytest.raises(ShapeError, match="terminated"):
            Priorities(C, num_envs=E).add(terminated=[True])

    def test_the_core_has_every_retention(self):
        kinds = {kind.core_kind for kind in (Assigned, replay.Reservoir)} | {_core.Retention.FIFO}
        assert kinds == set(_core.Retention)
