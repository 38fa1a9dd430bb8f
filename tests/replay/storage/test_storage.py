"""Rows outside the process: what is in a file is what would be in memory, for one buffer and for several."""

import json
from contextlib import suppress
from itertools import permutations
from threading import Thread

import numpy as np
import pytest

from replaylab.errors import EmptyBufferError, IdError, StorageError
from replaylab.replay import (
    Field,
    FrameStack,
    Hindsight,
    MemoryMap,
    NStep,
    Prioritized,
    ReplayBuffer,
    Sequence,
    Uniform,
)
from replaylab.research import Permuted
from tests.replay.guarantees.chi2 import ALARM, p_value
from tests.replay.guarantees.test_conformance import SAMPLERS
from tests.replay.storage.storage_worlds import FIELDS, NEEDS_LINUX, drive, step

pytestmark = NEEDS_LINUX
TRANSFORMS = [
    (),
    (NStep(3, 0.9),),
    (FrameStack(3),),
    (NStep(2, 0.9), FrameStack(2, padding="zero")),
    (Sequence(4, 2, 2),),
    (Sequence(3, 0, 0), NStep(2), FrameStack(2)),
]


class TestTheSameAsInMemory:
    """One process alone sees no difference."""

    @pytest.mark.parametrize(
        "sampler", [sampler for sampler in SAMPLERS if sampler.in_core], ids=lambda s: type(s).__name__
    )
    def test_samplers(self, storage, sampler):
        options = {"num_envs": 3, "sampler": sampler, "seed": 4}
        drive([ReplayBuffer(20, FIELDS, **options, storage=s) for s in (None, storage(headroom=3))], 40, lead=(3,))

    @pytest.mark.parametrize("transforms", TRANSFORMS, ids=lambda parts: "+".join(type(p).__name__ for p in parts))
    @pytest.mark.parametrize("capacity", [5, 64])
    @pytest.mark.parametrize("envs", [None, 3])
    def test_transforms(self, storage, transforms, capacity, envs):
        options = {"num_envs": envs, "transforms": transforms, "seed": 4, "autoreset": "next_step"}
        lead = () if envs is None else (envs,)
        turns = 80 if capacity == 64 and envs is None else 40  # the ring wraps
        drive([ReplayBuffer(capacity, FIELDS, **options, storage=s) for s in (None, storage())], turns, lead=lead)

    def test_replicas(self, storage):
        options = {"num_envs": 2, "replicas": 3, "sampler": Prioritized(beta=0.4), "transforms": (NStep(2),), "seed": 1}
        drive([ReplayBuffer(10, FIELDS, **options, storage=s) for s in (None, storage())], 40, lead=(3, 2))

    def test_hindsight(self, storage):
        goals = {name: Field((2,)) for name in ("observation", "achieved_goal", "desired_goal")}
        fields = {**FIELDS, "obs": goals, "next_obs": goals}
        relabel = Hindsight(lambda a, d, _: -np.abs(a - d).sum(-1), lambda a, d, _: np.abs(a - d).sum(-1) < 0.2)
        buffers = [
            ReplayBuffer(30, fields, transforms=(relabel, NStep(3)), seed=3, storage=s) for s in (None, storage())
        ]
        rng = np.random.default_rng(0)
        for _ in range(80):
            values = step(rng) | {name: {key: rng.random(2) for key in goals} for name in ("obs", "next_obs")}
            batches = []
            for buffer in buffers:
                buffer.add(**values)
                batches.append(buffer.sample(8))
            np.testing.assert_array_equal(batches[0].reward, batches[1].reward)
            np.testing.assert_array_equal(batches[0].obs["desired_goal"], batches[1].obs["desired_goal"])

    def test_more_than_fits_into_memory(self, storage, monkeypatch):
        """Rows are then asked for before they are read: other calls to the system, the same results."""
        monkeypatch.setattr("replaylab.replay.storage.storage.machine_memory", lambda: 1000)
        options = {"transforms": (FrameStack(3),), "num_envs": 2, "seed": 4}
        drive([ReplayBuffer(64, FIELDS, **options, storage=s) for s in (None, storage())], 100, lead=(2,))

    def test_an_episode_that_is_cut(self, storage):
        options = {"transforms": (NStep(3),), "seed": 0}
        buffers = [ReplayBuffer(10, FIELDS, **options, storage=s) for s in (None, storage())]
        for _ in range(3):
            drive(buffers, 5)
            for buffer in buffers:
                buffer.end_episode()

    def test_extend_past_the_capacity(self, storage):
        buffer = ReplayBuffer(5, {"x": Field()}, sampler=Prioritized(beta=0.4), storage=storage(headroom=2))
        assert buffer.extend(x=np.arange(23.0)).tolist() == list(range(23))
        assert buffer.get(range(18, 23))["x"].tolist() == [18, 19, 20, 21, 22]
        with pytest.raises(IdError, match="id 17 is not stored"):
            buffer.get(17)
        assert set(buffer.sample(200).id) == set(range(18, 23))


class TestOtherBuffers:
    """Several buffers on the same rows, as several processes have them."""

    def test_each_sees_what_the_others_add(self, storage):
        first = ReplayBuffer(50, {"x": Field()}, storage=storage(create=True))
        two = first.handle().open(sampler=Prioritized(beta=0.4))
        with pytest.raises(EmptyBufferError):
            two.sample(1)
        assert first.add(x=1.0) == 0
        assert two.add(x=2.0) == 1
        assert first.add(x=3.0) == 2
        for buffer in (first, two):
            assert len(buffer) == buffer.size == 3
            assert buffer.get([0, 1, 2])["x"].tolist() == [1, 2, 3]
            batch = buffer.sample(50)
            assert set(batch.id) == {0, 1, 2}
            np.testing.assert_array_equal(batch.x, batch.id + 1)
        two.update_priorities([0, 1], priority=[0.0, 0.0])
        assert set(two.sample(50).id) == {2}
        assert set(first.sample(50).id) == {0, 1, 2}, "priorities are each buffer's own"

    @pytest.mark.parametrize(
        "sampler", [sampler for sampler in SAMPLERS if sampler.in_core], ids=lambda s: type(s).__name__
    )
    def test_one_that_was_left_behind(self, storage, sampler):
        """By more than all its steps: it forgets them and has the newest."""
        options = {"num_envs": 2, "sampler": sampler, "transforms": (NStep(2), FrameStack(2))}
        first = ReplayBuffer(20, FIELDS, **options, storage=storage(headroom=4))
        two = first.handle().open()
        rng = np.random.default_rng(0)
        for turns in (8, 100, 5, 12, 11, 10, 9):
            for _ in range(turns):
                first.add(**step(rng, (2,)))
            for buffer in (first, two):
                batch = buffer.sample(4, progress=0.5)
                assert set(batch.id) <= set(
                    range(buffer._parts.core.counts()[1][0] - 20, buffer._parts.core.counts()[1][0])
                )
                stored = buffer.get(batch.id)
                np.testing.assert_array_equal(batch.obs[:, -1], stored["obs"])
                every = np.arange(buffer._parts.core.counts()[1][0])[-20:]
                if sampler.has_closed_form:
                    assert buffer.probabilities(every, batch_size=4, progress=0.5).sum() == pytest.approx(1.0)
                buffer.update_priorities(batch.id, rng.standard_normal(batch.id.shape))

    def test_a_new_process_begins_new_episodes(self, storage):
        """Its environments are not where those of the old one stopped."""
        options = {"transforms": (NStep(9, 1.0),)}
        plain = {"obs": [0, 0], "next_obs": [0, 0], "terminated": False, "truncated": False, "reward": 1.0}
        first = ReplayBuffer(50, FIELDS, **options, storage=storage())
        first.add(**plain)
        first.close()
        two = ReplayBuffer(50, FIELDS, **options, storage=storage())
        two.add(**plain)
        two.add(**plain)
        assert two._parts.core.gather(np.arange(3), True)["n_steps"].tolist() == [1, 2, 1]

    def test_as_many_writers_as_declared(self, storage):
        buffers = [ReplayBuffer(50, {"x": Field()}, storage=storage(writers=2)) for _ in range(3)]
        buffers[0].add(x=0.0)
        buffers[1].add(x=0.0)
        with pytest.raises(StorageError, match="has places for 2 processes"):
            buffers[2].add(x=0.0)
        assert len(buffers[2]) == 2
        del buffers[0]
        buffers[-1].add(x=0.0)
        assert len(buffers[0]) == 3


class TestTheFile:
    """Its format is open: NumPy alone reads it, as docs/reference/formats.md says."""

    def test_rows_open_in_numpy_alone(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field((2,)), "y": Field((), np.int64)}, storage=MemoryMap(tmp_path / "rows"))
        buffer.extend(x=np.arange(24.0).reshape(12, 2), y=np.arange(12))
        content = np.fromfile(tmp_path / "rows", np.uint8)
        assert content[:8].tobytes() == b"RLABROWS"
        assert content[8:16].view("<u4").tolist() == [1, 0x01020304]
        capacity, headroom, writers, _, _, stride, length, section, section_bytes, _ = content[16:96].view("<i8")
        declared = json.loads(content[4096 : 4096 + length].tobytes())
        rows = np.dtype(
            {
                "names": list(declared["fields"]),
                "formats": [(field["dtype"], tuple(field["shape"])) for field in declared["fields"].values()],
                "offsets": [field["offset"] for field in declared["fields"].values()],
                "itemsize": stride,
            }
        )
        replica = content[section : section + section_bytes]
        head = int(replica[:8].view("<i8")[0])
        log = replica[128 + 64 * writers :].view("<u8")[: capacity + headroom]
        held = -(-(capacity + headroom + writers + 1) * stride // 4096) * 4096
        stored = replica[section_bytes - held :][: (capacity + headroom + writers) * stride].view(rows)
        newest = [stored[int(log[id_ % len(log)] & 0xFFFFFFFF)] for id_ in range(head - capacity, head)]
        assert [int(row["y"]) for row in newest] == list(range(2, 12))
        assert newest[0]["x"].tolist() == [4.0, 5.0]

    def test_bytes_that_are_stated(self, tmp_path):
        buffer = ReplayBuffer(1000, {"x": Field((1000,))}, storage=MemoryMap(tmp_path / "rows"))
        assert buffer.nbytes < 2**20, "rows on disk are no memory"
        assert (tmp_path / "rows").stat().st_size > 4_000_000


class TestRowsThatBeginAnywhere:
    """A buffer made on rows of others takes in the newest C, whose first lies in any slot."""

    @pytest.mark.parametrize("before", [0, 7, 20])
    @pytest.mark.parametrize("bins", [1, 3])
    def test_permuted_draws_keep_their_distribution(self, storage, tmp_path, bins, before):
        first = ReplayBuffer(20, {"x": Field()}, storage=storage())
        first.extend(x=np.arange(before))
        two = first.handle().open(sampler=Permuted(alpha=1.0, beta=0.4, bins=bins), seed=0)
        assert len(two) == before
        first.extend(x=np.arange(33))
        ids = np.arange(before + 13, before + 33)
        np.testing.assert_allclose(two.probabilities(ids), 1 / 20)
        td_error = np.arange(20.0)
        two.update_priorities(ids, td_error=td_error)
        np.testing.assert_allclose(np.sort(two.probabilities(ids)), td_error / 190, atol=1e-6)
        two.save(tmp_path / "snapshot")
        again = ReplayBuffer.load(tmp_path / "snapshot")
        np.testing.assert_array_equal(again.probabilities(ids), two.probabilities(ids))

    def test_every_permutation_is_as_likely(self, storage):
        first = ReplayBuffer(3, {"x": Field()}, storage=storage())
        first.extend(x=np.arange(8))  # id 5, the oldest, is in slot 2
        counts = np.zeros(27, np.int64)
        for seed in range(800):
            two = first.handle().open(sampler=Permuted(alpha=1.0, beta=0.4), seed=seed)
            two.update_priorities([5, 6, 7], priority=[1.0, 2.0, 3.0])
            shares = np.rint(two.probabilities([5, 6, 7]) * 6).astype(int) - 1
            counts[shares @ [9, 3, 1]] += 1
            two.close()
        possible = np.zeros(27)
        possible[[np.array(p) @ [9, 3, 1] for p in permutations(range(3))]] = 1 / 6
        assert p_value(counts, possible) > ALARM

    def test_a_batch_that_is_drawn_again_is_checked_again(self, storage):
        """While it was read, others replaced 64 sequences by 8."""
        fields = {"x": Field((16_384,)), "terminated": Field((), bool), "truncated": Field((), bool)}
        options = {"sampler": Uniform(replace=False), "transforms": (Sequence(8, 0, 0),)}
        first = ReplayBuffer(64, fields, **options, storage=storage(headroom=1))
        two = first.handle().open(sampler=Uniform())
        x, no = np.zeros((64, 16_384), np.float32), np.zeros(64, bool)
        for _ in range(80):
            two.extend(x=x, terminated=~no, truncated=no)
            other = Thread(target=two.extend, kwargs={"x": x, "terminated": np.arange(64) % 8 == 7, "truncated": no})
            other.start()
            with suppress(EmptyBufferError):
                assert len(set(first.sample(48).id.tolist())) == 48
            other.join()
