"""Storages of the user's own: one on the library's base, in a folder of its choice, and one with no base at all."""

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import ConfigError, SnapshotError, StorageError
from replaylab.replay import Field, MappedStorage, NStep, Prioritized, ReplayBuffer, Storage
from tests.replay.storage.storage_worlds import FIELDS, NEEDS_LINUX, assert_same, drive, step

pytestmark = NEEDS_LINUX


@dataclass(frozen=True)
class RunStorage(MappedStorage):
    """Rows of a run, in a folder that the run picks."""

    folder: str
    run: str

    @property
    def file(self):
        return Path(self.folder) / f"{self.run}.rows"


@dataclass(frozen=True)
class BareStorage:
    """A file, told by the protocol's members alone."""

    file: Path
    on_disk: bool = False
    writers: int = 4
    create: bool | None = None

    def opened(self):
        return replace(self, create=False)

    def unlink(self):
        self.file.unlink(missing_ok=True)


@pytest.fixture(params=["on the base", "without a base"])
def custom(request, tmp_path):
    storage = RunStorage(str(tmp_path), "a") if request.param == "on the base" else BareStorage(tmp_path / "a")
    yield storage
    storage.unlink()


def test_they_are_storages(custom):
    assert isinstance(custom, Storage)


def test_batches_are_those_of_a_buffer_in_memory(custom):
    options = {"sampler": Prioritized(beta=0.4), "transforms": (NStep(3),), "num_envs": 2, "seed": 2}
    drive([ReplayBuffer(50, FIELDS, **options, storage=storage) for storage in (custom, None)], 80, lead=(2,))


def test_two_buffers_have_the_same_rows(custom):
    buffer = ReplayBuffer(20, {"x": Field()}, storage=custom)
    two = pickle.loads(pickle.dumps(buffer.handle())).open(seed=3)
    assert two.storage == custom.opened()
    ids = buffer.extend(x=np.arange(5.0)), two.extend(x=np.arange(5.0, 10.0))
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(10))
    np.testing.assert_array_equal(buffer.get(np.arange(10))["x"], np.arange(10))


def test_rows_declared_otherwise_are_refused(custom):
    ReplayBuffer(20, {"x": Field()}, storage=custom)
    with pytest.raises(StorageError, match="holds rows declared otherwise: `capacity` is 20 there and 30 here"):
        ReplayBuffer(30, {"x": Field()}, storage=custom)


def test_a_snapshot_names_it_and_takes_it_again(custom, tmp_path):
    buffer = ReplayBuffer(50, FIELDS, storage=custom, sampler=Prioritized(beta=0.4), seed=2)
    rng = np.random.default_rng(0)
    for _ in range(60):
        buffer.add(**step(rng))
    buffer.save(tmp_path / "saved")
    with pytest.raises(
        SnapshotError,
        match=rf"cannot store .*{type(custom).__name__}, which is not a replaylab class .*load\(path, storage=",
    ):
        ReplayBuffer.load(tmp_path / "saved")
    twin = ReplayBuffer.load(tmp_path / "saved", storage=custom)
    batch = buffer.sample(8)
    assert_same(dict(batch), dict(twin.sample(8)))
    buffer.restore(tmp_path / "saved")
    assert_same(dict(batch), dict(buffer.sample(8)))


def test_what_is_none_is_refused(tmp_path):
    class Half:
        file = tmp_path / "rows"

    for wrong in (Half(), RunStorage, "rows"):
        with pytest.raises(ConfigError, match="`storage` must be a SharedMemory, a MemoryMap, your own Storage"):
            ReplayBuffer(3, {"x": Field()}, storage=wrong)


MEMBERS = ("file", "on_disk", "writers", "create", "opened", "unlink")


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_is_missing_is_named(member, tmp_path):
    members = {name: getattr(BareStorage(tmp_path / "a"), name) for name in MEMBERS if name != member}
    with pytest.raises(ConfigError, match=f"^`storage` must be .* which has no `{member}`$"):
        ReplayBuffer(4, FIELDS, storage=type("Half", (), members)())


NONE = {
    "file": [3, None, ""],
    "on_disk": ["yes", None],
    "writers": [0, -1, None, 1.5, 10**6],
    "create": ["x", 2],
}


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, values in NONE.items() for value in values])
def test_a_senseless_member_is_refused(member, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^`{member}` of BareStorage must be "):
        ReplayBuffer(4, FIELDS, storage=replace(BareStorage(tmp_path / "a"), **{member: value}))
    assert not list(tmp_path.iterdir())
