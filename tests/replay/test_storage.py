"""Rows outside the process: what is in a file is what would be in memory, for this process and for others."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, IdError, SnapshotError, StorageError
from replaylab.replay import (
    CustomSampler,
    Field,
    FrameStack,
    Hindsight,
    MemoryMap,
    NStep,
    Oracle,
    Prioritized,
    ReplayBuffer,
    Reservoir,
    Sequence,
    SharedMemory,
    Uniform,
)

from .test_conformance import SAMPLERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rows outside the process need Linux")

FIELDS = {
    "obs": Field((2,), np.uint8),
    "reward": Field(),
    "next_obs": Field((2,), np.uint8),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}
TRANSFORMS = [
    (),
    (NStep(3, 0.9),),
    (FrameStack(3),),
    (NStep(2, 0.9), FrameStack(2, padding="zero")),
    (Sequence(4, 2, 2),),
    (Sequence(3, 0, 0), NStep(2), FrameStack(2)),
]


@pytest.fixture(params=[MemoryMap, SharedMemory])
def storage(request, tmp_path):
    """A storage of either kind, removed afterwards."""
    if request.param is MemoryMap:
        yield lambda **options: MemoryMap(tmp_path / "rows", **options)
        return
    name = f"replaylab-test-{uuid4().hex}"
    yield lambda **options: SharedMemory(name, **options)
    SharedMemory(name).unlink()


def step(rng, lead=()):
    return {
        "obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "reward": rng.random(lead),
        "next_obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "terminated": rng.random(lead) < 0.1,
        "truncated": rng.random(lead) < 0.05,
    }


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def drive(buffers, turns, seed=0, lead=()):
    """Do the same with several buffers and compare all they say."""
    rng = np.random.default_rng(seed)
    for turn in range(turns):
        given = step(rng, lead)
        where = rng.random(lead) < 0.9 if lead else None
        ids = [buffer.add(**given, where=where) for buffer in buffers]
        np.testing.assert_array_equal(*ids)
        if turn < 3:  # a batch without repetition needs some
            continue
        batches = [buffer.sample(4, progress=0.3) for buffer in buffers]
        assert_same(*map(dict, batches))
        feedback = rng.standard_normal(batches[0].id.shape)
        assert len({buffer.update_priorities(batches[0].id, feedback) for buffer in buffers}) == 1
        if buffers[0].sampler.has_law:
            laws = [buffer.probabilities(ids[0], batch_size=4, progress=0.3) for buffer in buffers]
            np.testing.assert_array_equal(*laws)
        assert len({len(buffer) for buffer in buffers}) == 1


class TestTheSameAsInMemory:
    """One process alone sees no difference."""

    @pytest.mark.parametrize(
        "sampler", [s for s in SAMPLERS if not isinstance(s, CustomSampler)], ids=lambda s: type(s).__name__
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
        drive([ReplayBuffer(capacity, FIELDS, **options, storage=s) for s in (None, storage())], 100, lead=lead)

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
            given = step(rng) | {name: {key: rng.random(2) for key in goals} for name in ("obs", "next_obs")}
            batches = []
            for buffer in buffers:
                buffer.add(**given)
                batches.append(buffer.sample(8))
            np.testing.assert_array_equal(batches[0].reward, batches[1].reward)
            np.testing.assert_array_equal(batches[0].obs["desired_goal"], batches[1].obs["desired_goal"])

    def test_more_than_fits_into_memory(self, storage, monkeypatch):
        """Rows are then asked for before they are read: other calls to the system, the same results."""
        monkeypatch.setattr("replaylab.replay.storage.machine_memory", lambda: 1000)
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
        one = ReplayBuffer(50, {"x": Field()}, storage=storage(create=True))
        two = one.handle().open(sampler=Prioritized(beta=0.4))
        with pytest.raises(EmptyBufferError):
            two.sample(1)
        assert one.add(x=1.0) == 0
        assert two.add(x=2.0) == 1
        assert one.add(x=3.0) == 2
        for buffer in (one, two):
            assert len(buffer) == buffer.size == 3
            assert buffer.get([0, 1, 2])["x"].tolist() == [1, 2, 3]
            batch = buffer.sample(50)
            assert set(batch.id) == {0, 1, 2}
            np.testing.assert_array_equal(batch.x, batch.id + 1)
        two.update_priorities([0, 1], priority=[0.0, 0.0])
        assert set(two.sample(50).id) == {2}
        assert set(one.sample(50).id) == {0, 1, 2}, "priorities are each buffer's own"

    @pytest.mark.parametrize(
        "sampler", [s for s in SAMPLERS if not isinstance(s, CustomSampler)], ids=lambda s: type(s).__name__
    )
    def test_one_that_was_left_behind(self, storage, sampler):
        """By more than all its steps: it forgets them and has the newest."""
        options = {"num_envs": 2, "sampler": sampler, "transforms": (NStep(2), FrameStack(2))}
        one = ReplayBuffer(20, FIELDS, **options, storage=storage(headroom=4))
        two = one.handle().open()
        rng = np.random.default_rng(0)
        for turns in (8, 100, 5, 12, 11, 10, 9):
            for _ in range(turns):
                one.add(**step(rng, (2,)))
            for buffer in (one, two):
                batch = buffer.sample(4, progress=0.5)
                assert set(batch.id) <= set(range(buffer._core.counts()[1][0] - 20, buffer._core.counts()[1][0]))
                stored = buffer.get(batch.id)
                np.testing.assert_array_equal(batch.obs[:, -1], stored["obs"])
                every = np.arange(buffer._core.counts()[1][0])[-20:]
                if sampler.has_law:
                    assert buffer.probabilities(every, batch_size=4, progress=0.5).sum() == pytest.approx(1.0)
                buffer.update_priorities(batch.id, rng.standard_normal(batch.id.shape))

    def test_episodes_are_each_environments_of_each_process(self, storage):
        one = ReplayBuffer(50, FIELDS, transforms=(NStep(9, 1.0),), storage=storage())
        two = one.handle().open()
        plain = {"obs": [0, 0], "next_obs": [0, 0], "terminated": False, "truncated": False}
        for k in range(4):
            one.add(**plain, reward=1.0)
            two.add(**{**plain, "terminated": k == 1}, reward=100.0)
        for buffer in (one, two):
            steps = buffer._core.gather(np.arange(8), True)
            assert steps["reward"].tolist() == [4, 200, 3, 100, 2, 200, 1, 100]

    def test_a_new_process_begins_new_episodes(self, storage):
        """Its environments are not where those of the old one stopped."""
        options = {"transforms": (NStep(9, 1.0),)}
        plain = {"obs": [0, 0], "next_obs": [0, 0], "terminated": False, "truncated": False, "reward": 1.0}
        one = ReplayBuffer(50, FIELDS, **options, storage=storage())
        one.add(**plain)
        one.close()
        two = ReplayBuffer(50, FIELDS, **options, storage=storage())
        two.add(**plain)
        two.add(**plain)
        assert two._core.gather(np.arange(3), True)["n_steps"].tolist() == [1, 2, 1]

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


def child_adds(buffer, value, times, together):
    for _ in range(times):
        buffer.add(x=value)
        together.wait(60)


class TestProcesses:
    @pytest.mark.parametrize("method", ["spawn", "fork"])
    @pytest.mark.parametrize("before", [0, 1])
    def test_a_buffer_is_sent_to_children(self, storage, method, before):
        """A forked child shares its parent's open files, and must not share its place."""
        buffer = ReplayBuffer(100, {"x": Field()}, storage=storage())
        buffer.extend(x=np.zeros(before))
        context = multiprocessing.get_context(method)
        together = context.Barrier(3)
        children = [context.Process(target=child_adds, args=(buffer, float(k + 1), 10, together)) for k in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        buffer.add(x=9.0)
        values = buffer.get(range(len(buffer)))["x"]
        assert sorted(values) == [0.0] * before + [1.0] * 10 + [2.0] * 10 + [3.0] * 10 + [9.0]

    def test_a_file_outlives_its_process(self, tmp_path):
        path = tmp_path / "rows"
        code = (
            "import sys, numpy as np\nfrom replaylab.replay import *\n"
            "buffer = ReplayBuffer(10, {'x': Field()}, storage=MemoryMap(sys.argv[1]))\n"
            "buffer.extend(x=np.arange(12.0))\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(path, create=False))
        assert buffer.get(range(2, 12))["x"].tolist() == list(range(2, 12))
        assert buffer.add(x=12.0) == 12

    def test_pickle(self, storage):
        one = ReplayBuffer(10, {"x": Field()}, num_envs=2, sampler=Prioritized(beta=0.4), storage=storage())
        two = pickle.loads(pickle.dumps(one))
        two.add(x=[1.0, 2.0])
        assert one.size == 2
        assert (two.sampler, two.num_envs, two.capacity) == (one.sampler, 2, 10)

    def test_no_handle_of_ones_own_memory(self):
        buffer = ReplayBuffer(10, {"x": Field()})
        with pytest.raises(ConfigError, match="where no other can see them; make it with storage=SharedMemory"):
            buffer.handle()
        with pytest.raises(ConfigError, match="where no other can see them"):
            pickle.dumps(buffer)


class TestSnapshots:
    def test_a_restored_buffer_goes_on_exactly(self, storage, tmp_path):
        options = {"sampler": Prioritized(beta=0.4), "transforms": (NStep(3),), "seed": 2, "num_envs": 2}
        buffer = ReplayBuffer(50, FIELDS, **options, storage=storage())
        rng = np.random.default_rng(0)
        for _ in range(60):
            buffer.add(**step(rng, (2,)))
            batch = buffer.sample(4)
            buffer.update_priorities(batch.id, rng.standard_normal(batch.id.shape))
        buffer.save(tmp_path / "saved")
        assert not list((tmp_path / "saved").glob("rows*"))
        twin = ReplayBuffer.load(tmp_path / "saved")
        for _ in range(30):
            batch = buffer.sample(4)
            assert_same(dict(batch), dict(twin.sample(4)))
            for one in (buffer, twin):
                one.update_priorities(batch.id, batch.reward)

    @pytest.mark.parametrize("later", [3, 30, 90])
    def test_what_was_added_since_comes_in(self, storage, tmp_path, later):
        buffer = ReplayBuffer(20, {"x": Field()}, sampler=Prioritized(beta=0.4), storage=storage(headroom=5))
        buffer.extend(x=np.arange(25.0))
        buffer.update_priorities(np.arange(25), priority=np.full(25, 3.0))
        buffer.save(tmp_path / "saved")
        buffer.extend(x=np.arange(25.0, 25.0 + later))
        twin = ReplayBuffer.load(tmp_path / "saved")
        ids = np.arange(25 + later)
        np.testing.assert_array_equal(twin.probabilities(ids), buffer.probabilities(ids))
        np.testing.assert_array_equal(twin.get(ids[-20:])["x"], ids[-20:])

    def test_rows_made_anew_do_not_belong_to_it(self, storage, tmp_path):
        buffer = ReplayBuffer(20, {"x": Field()}, storage=storage())
        buffer.extend(x=np.arange(25.0))
        buffer.save(tmp_path / "saved")
        buffer.storage.unlink()
        with pytest.raises(StorageError, match="the process that makes it must come first"):
            ReplayBuffer.load(tmp_path / "saved")
        ReplayBuffer(20, {"x": Field()}, storage=storage()).extend(x=np.arange(25.0))
        with pytest.raises(SnapshotError, match="was made anew since"):
            ReplayBuffer.load(tmp_path / "saved")

    def test_a_file_that_moved(self, tmp_path):
        buffer = ReplayBuffer(20, {"x": Field()}, storage=MemoryMap(tmp_path / "a"))
        buffer.add(x=1.0)
        buffer.save(tmp_path / "saved")
        buffer.close()
        (tmp_path / "a").rename(tmp_path / "b")
        twin = ReplayBuffer.load(tmp_path / "saved", storage=MemoryMap(tmp_path / "b"))
        assert twin.get(0)["x"] == 1.0


class TestRefusals:
    def test_another_declaration(self, storage):
        ReplayBuffer(10, {"x": Field(), "y": Field()}, num_envs=2, storage=storage())
        with pytest.raises(StorageError) as caught:
            ReplayBuffer(20, {"x": Field((3,), np.uint8), "z": Field()}, storage=storage())
        for words in (
            "`capacity` is 10 there and 20 here",
            "`num_envs` is 2 there and None here",
            "field `y` is only there",
            "field `z` is only here",
            "field `x` is <f4 () there and |u1 (3,) here",
        ):
            assert words in str(caught.value)

    def test_another_order_of_the_fields(self, storage):
        ReplayBuffer(10, {"x": Field(), "y": Field()}, storage=storage())
        with pytest.raises(StorageError, match="holds rows declared otherwise"):
            ReplayBuffer(10, {"y": Field(), "x": Field()}, storage=storage())

    def test_headroom_and_writers_are_the_files_own(self, storage):
        ReplayBuffer(10, {"x": Field()}, storage=storage(headroom=5, writers=3))
        ReplayBuffer(10, {"x": Field()}, storage=storage()).add(x=0.0)

    def test_create(self, storage):
        with pytest.raises(StorageError, match="must come first"):
            ReplayBuffer(10, {"x": Field()}, storage=storage(create=False))
        ReplayBuffer(10, {"x": Field()}, storage=storage(create=True))
        with pytest.raises(StorageError, match="is there already"):
            ReplayBuffer(10, {"x": Field()}, storage=storage(create=True))

    @pytest.mark.parametrize("content", [b"x", b"something else" * 1000])
    def test_a_foreign_file(self, storage, content):
        storage().file.write_bytes(content)
        with pytest.raises(StorageError, match="is no file of replaylab rows"):
            ReplayBuffer(10, {"x": Field()}, storage=storage())
        assert storage().file.read_bytes() == content

    def test_a_file_cut_short(self, storage):
        ReplayBuffer(10, {"x": Field()}, storage=storage())
        os.truncate(storage().file, storage().file.stat().st_size - 1)
        with pytest.raises(StorageError, match="is damaged: its header or its length"):
            ReplayBuffer(10, {"x": Field()}, storage=storage())

    def test_a_damaged_log(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows", headroom=2, writers=1))
        buffer.extend(x=np.arange(9.0))
        content = bytearray((tmp_path / "rows").read_bytes())
        at = content.index((1 << 32 | 12).to_bytes(8, "little"))  # the first step lies in the writer's row
        content[at : at + 4] = (999).to_bytes(4, "little")
        (tmp_path / "rows").write_bytes(content)
        with pytest.raises(StorageError, match="its log names a row it has not"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows")).sample(1)

    @pytest.mark.parametrize("length", [None, 8, 4096])
    def test_a_maker_that_was_killed_is_no_obstacle(self, storage, length):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=storage())
        buffer.close()
        content = bytearray(storage().file.read_bytes())
        content[168] = 0  # not ready
        storage().file.write_bytes(content[:length] if length else content)
        ReplayBuffer(20, {"y": Field()}, storage=storage()).add(y=1.0)

    def test_no_room(self, tmp_path):
        with pytest.raises(StorageError, match=r"needs \d+ bytes, but its file system has \d+ free"):
            ReplayBuffer(2**22, {"x": Field((2**20,))}, storage=MemoryMap(tmp_path / "rows"))
        assert (tmp_path / "rows").stat().st_size == 0
        for capacity in (2**31, 2**40):
            with pytest.raises((StorageError, MemoryError)):
                ReplayBuffer(capacity, {"x": Field((2**30,))}, storage=MemoryMap(tmp_path / "rows"))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"fields": FIELDS, "next_obs": "derived"}, "derived"),
            ({"retention": Reservoir()}, "Reservoir"),
            ({"sampler": Oracle(lambda ids: np.ones(len(ids)))}, "written in Python"),
        ],
    )
    def test_what_it_cannot_be_put_together_with(self, storage, options, words):
        with pytest.raises(ConfigError, match=words):
            ReplayBuffer(**{"capacity": 10, "fields": {"x": Field()}, "storage": storage(), **options})
        assert not storage().file.exists()

    def test_options(self, tmp_path):
        with pytest.raises(ConfigError, match="`writers` must be at least 1"):
            MemoryMap(tmp_path, writers=0)
        with pytest.raises(ConfigError, match="`headroom` must be at least 1"):
            SharedMemory("x", headroom=0)
        with pytest.raises(ConfigError, match="a file name without slashes"):
            SharedMemory("a/b")
        with pytest.raises(ConfigError, match="`storage` must be a SharedMemory, a MemoryMap or None"):
            ReplayBuffer(10, {"x": Field()}, storage=tmp_path)

    def test_a_machine_without_shared_memory(self, monkeypatch, tmp_path):
        monkeypatch.setattr("replaylab.replay.storage.SHARED_FOLDER", tmp_path / "none")
        with pytest.raises(StorageError, match=r"which this machine does not have; use MemoryMap\(path\)"):
            ReplayBuffer(10, {"x": Field()}, storage=SharedMemory("x"))

    def test_too_many_environments_for_so_many_writers(self, tmp_path):
        with pytest.raises(StorageError, match=r"writers × num_envs must be below 2\^31"):
            ReplayBuffer(2**31, {"x": Field()}, num_envs=2**30, storage=MemoryMap(tmp_path / "rows"))

    def test_no_columns(self, storage):
        with pytest.raises(ConfigError, match=r"use get\(ids\), which copies"):
            ReplayBuffer(10, {"x": Field()}, storage=storage()).columns  # noqa: B018

    def test_a_closed_buffer(self, storage):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=storage())
        buffer.add(x=0.0)
        buffer.close()
        for call in (lambda: buffer.add(x=0.0), lambda: buffer.sample(1), lambda: buffer.get(0)):
            with pytest.raises(StorageError, match="the buffer was closed"):
                call()
        assert "ReplayBuffer" in repr(buffer)


class TestPowerCuts:
    """What a machine that stopped leaves behind: a file last written to in another run of it."""

    def crashed(self, path):
        """Pretend that the file was written to before the machine last started."""
        content = bytearray(path.read_bytes())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().encode()
        at = content.index(boot)
        content[at : at + 36] = b"0" * 36
        path.write_bytes(content)

    def filled(self, path, **options):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(path, **options))
        buffer.extend(x=np.arange(25.0))
        return buffer

    def test_what_was_not_flushed_is_not_trusted(self, tmp_path):
        self.filled(tmp_path / "rows")
        self.crashed(tmp_path / "rows")
        with pytest.raises(StorageError, match=r"had steps that no flush\(\) followed.*after_crash=True"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows", after_crash=True))
        assert buffer.get(range(15, 25))["x"].tolist() == list(range(15, 25))
        assert len(ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))) == 10, "it is settled"

    @pytest.mark.parametrize("how", ["flush", "close"])
    def test_what_was_flushed_is(self, tmp_path, how):
        buffer = self.filled(tmp_path / "rows")
        getattr(buffer, how)()
        self.crashed(tmp_path / "rows")
        assert len(ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))) == 10

    def test_a_step_after_the_flush_is_not(self, tmp_path):
        buffer = self.filled(tmp_path / "rows")
        buffer.flush()
        buffer.add(x=0.0)
        self.crashed(tmp_path / "rows")
        with pytest.raises(StorageError, match="had steps that no flush"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))

    def test_a_log_that_contradicts_itself_is_refused_even_so(self, tmp_path):
        self.filled(tmp_path / "rows", headroom=2, writers=1)
        content = bytearray((tmp_path / "rows").read_bytes())
        at = content.index((3 << 32 | 10).to_bytes(8, "little"))
        content[at] = 11  # a row that another word names as well
        (tmp_path / "rows").write_bytes(content)
        self.crashed(tmp_path / "rows")
        with pytest.raises(StorageError, match="was damaged when the machine stopped"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows", after_crash=True))


class TestTheFile:
    """Its format is open: NumPy alone reads it, as docs/storage.md says."""

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
                "formats": [(one["dtype"], tuple(one["shape"])) for one in declared["fields"].values()],
                "offsets": [one["offset"] for one in declared["fields"].values()],
                "itemsize": stride,
            }
        )
        replica = content[section : section + section_bytes]
        head = int(replica[:8].view("<i8")[0])
        log = replica[128 + 64 * writers :].view("<u8")[: capacity + headroom]
        held = -(-(capacity + headroom + writers + 1) * stride // 4096) * 4096
        stored = replica[section_bytes - held :][: (capacity + headroom + writers) * stride].view(rows)
        newest = [stored[int(log[id_ % len(log)] & 0xFFFFFFFF)] for id_ in range(head - capacity, head)]
        assert [int(one["y"]) for one in newest] == list(range(2, 12))
        assert newest[0]["x"].tolist() == [4.0, 5.0]

    def test_bytes_that_are_stated(self, tmp_path):
        buffer = ReplayBuffer(1000, {"x": Field((1000,))}, storage=MemoryMap(tmp_path / "rows"))
        assert buffer.nbytes < 2**20, "rows on disk are no memory"
        assert (tmp_path / "rows").stat().st_size > 4_000_000

    def test_uniform_is_the_default(self, storage):
        assert ReplayBuffer(10, {"x": Field()}, storage=storage()).sampler == Uniform()
