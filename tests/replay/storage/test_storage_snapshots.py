"""Snapshots of buffers whose rows are outside the process."""

import numpy as np
import pytest

from replaylab.errors import SnapshotError, StorageError
from replaylab.replay import Field, MemoryMap, NStep, Prioritized, ReplayBuffer
from tests.replay.storage.storage_worlds import FIELDS, NEEDS_LINUX, assert_same, step

pytestmark = NEEDS_LINUX


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
            for each in (buffer, twin):
                each.update_priorities(batch.id, batch.reward)

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

    def test_rows_made_again_do_not_belong_to_it(self, storage, tmp_path):
        buffer = ReplayBuffer(20, {"x": Field()}, storage=storage())
        buffer.extend(x=np.arange(25.0))
        buffer.save(tmp_path / "saved")
        buffer.storage.unlink()
        with pytest.raises(StorageError, match="the process that makes it must come first"):
            ReplayBuffer.load(tmp_path / "saved")
        ReplayBuffer(20, {"x": Field()}, storage=storage()).extend(x=np.arange(25.0))
        with pytest.raises(SnapshotError, match="was made again since"):
            ReplayBuffer.load(tmp_path / "saved")

    def test_a_file_that_moved(self, tmp_path):
        buffer = ReplayBuffer(20, {"x": Field()}, storage=MemoryMap(tmp_path / "a"))
        buffer.add(x=1.0)
        buffer.save(tmp_path / "saved")
        buffer.close()
        (tmp_path / "a").rename(tmp_path / "b")
        twin = ReplayBuffer.load(tmp_path / "saved", storage=MemoryMap(tmp_path / "b"))
        assert twin.get(0)["x"] == 1.0
