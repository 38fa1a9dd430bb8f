"""Rows outside the process that cannot be made, opened or used so: every refusal and its message."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, StorageError
from replaylab.replay import Field, LaBER, MemoryMap, Oracle, ReplayBuffer, Reservoir, SharedMemory
from replaylab.research import ByStepsToEnd, Tape
from tests.replay.storage.storage_worlds import FIELDS, NEEDS_LINUX

pytestmark = NEEDS_LINUX


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
        ReplayBuffer(10, {"x": Field()}, storage=storage(headroom=7)).add(x=0.0)

    def test_more_writers_have_more_room(self, tmp_path):
        """16 steps of each, at least 1,024 and a 64th of the capacity."""
        for capacity, writers, room in ((10, 1, 1024), (10, 64, 1024), (10, 100, 1600), (128_000, 100, 2000)):
            file = tmp_path / f"{capacity}.{writers}"
            ReplayBuffer(capacity, {"x": Field()}, storage=MemoryMap(file, writers=writers))
            header = np.frombuffer(file.read_bytes()[16:32], "<i8")
            assert header.tolist() == [capacity, room]

    def test_create(self, storage):
        with pytest.raises(StorageError, match="must come first"):
            ReplayBuffer(10, {"x": Field()}, storage=storage(create=False))
        ReplayBuffer(10, {"x": Field()}, storage=storage(create=True))
        with pytest.raises(StorageError, match="is there already"):
            ReplayBuffer(10, {"x": Field()}, storage=storage(create=True))

    @pytest.mark.parametrize("content", [b"x", b"something else" * 1000])
    def test_a_foreign_file(self, storage, content):
        storage().file.write_bytes(content)
        with pytest.raises(StorageError, match="is not a file of replaylab rows"):
            ReplayBuffer(10, {"x": Field()}, storage=storage())
        assert storage().file.read_bytes() == content

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
            ({"sampler": LaBER(lambda pool: pool.x)}, "written in Python"),
            ({"sampler": Tape("a.tape")}, "written in Python"),
            ({"sampler": ByStepsToEnd("a.tape"), "episodes": "manual"}, "written in Python"),
        ],
    )
    def test_what_it_cannot_be_put_together_with(self, storage, options, words):
        with pytest.raises(ConfigError, match=words):
            ReplayBuffer(**{"capacity": 10, "fields": {"x": Field()}, "storage": storage(), **options})
        assert not storage().file.exists()

    def test_options(self, tmp_path):
        with pytest.raises(ConfigError, match="`writers` of MemoryMap must be at least 1"):
            MemoryMap(tmp_path, writers=0)
        with pytest.raises(ConfigError, match="a file name without slashes"):
            SharedMemory("a/b")
        with pytest.raises(
            ConfigError, match="`storage` must be a SharedMemory, a MemoryMap, your own Storage or None"
        ):
            ReplayBuffer(10, {"x": Field()}, storage=tmp_path)

    def test_a_machine_without_shared_memory(self, monkeypatch, tmp_path):
        monkeypatch.setattr("replaylab.replay.storage.storage.SHARED_FOLDER", tmp_path / "none")
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
