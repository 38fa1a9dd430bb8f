"""Snapshots that `save` writes can be loaded, for any names of fields and any options.

A failing `save` leaves nothing behind.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay
from replaylab.errors import ConfigError, OverSizeError, SnapshotError
from replaylab.files.bundle import seal
from replaylab.replay.data.schedules import Linear


def files(folder):
    return sorted(file.name for file in Path(folder).rglob("*"))


def rewritten(folder, **members):
    """Put members of a manifest right, or wrong, and seal it."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text()) | members
    file.write_text(json.dumps(manifest | {"crc32": seal(manifest)}))


class TestWhatIsSavedCanBeLoaded:
    @pytest.mark.parametrize("keys", [(0, 1), (10, 9), ("a", 3), (np.int64(4), np.str_("b"))], ids=str)
    def test_keys_of_nested_fields(self, tmp_path, keys):
        buffer = ReplayBuffer(4, {"obs": {key: Field() for key in keys}})
        buffer.extend(obs={key: [1.0 + i, 2.0] for i, key in enumerate(keys)})
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        assert list(twin.fields["obs"]) == list(keys)
        assert [twin.get(0)["obs"][key] for key in keys] == [1.0 + i for i in range(len(keys))]
        twin.add(obs=dict.fromkeys(keys, 3.0))

    @pytest.mark.parametrize("count", [280, 3000])
    def test_many_fields(self, tmp_path, count):
        """NumPy's own reader refuses heads above 10,000 bytes, and the first version of its format ends at 65,535."""
        buffer = ReplayBuffer(3, {f"field_{i}": Field((2,), np.int16) for i in range(count)})
        buffer.add(**{f"field_{i}": [i, -i] for i in range(count)})
        buffer.save(tmp_path)
        assert ReplayBuffer.load(tmp_path).get(0)[f"field_{count - 1}"].tolist() == [count - 1, 1 - count]
        with next(tmp_path.glob("rows-*")).open("rb") as file:
            rows = np.lib.format.read_array(file, allow_pickle=False, max_header_size=10**7)
        assert rows["field_7"].tolist() == [[7, -7]]

    @pytest.mark.parametrize("name", ["π", "ü", "名"])
    @pytest.mark.parametrize("compressed", [False, True])
    def test_names_outside_latin_1(self, tmp_path, name, compressed):
        buffer = ReplayBuffer(3, {name: Field((64,), compressed=compressed)})
        buffer.add(**{name: np.arange(64)})
        buffer.save(tmp_path)
        assert ReplayBuffer.load(tmp_path).get(0)[name][5] == 5.0
        if not compressed:
            assert np.load(next(tmp_path.glob("rows-*")))[name][0, 5] == 5.0

    @pytest.mark.parametrize(
        "sampler",
        [
            replay.Prioritized(alpha=np.float32(0.6), beta=np.float64(0.4)),
            replay.Prioritized(beta=Linear(np.float32(0.4), 1, until=np.float16(0.5))),
            replay.Recency(np.float32(0.9), burst=np.int64(4)),
            replay.Mixture([replay.Uniform(), replay.Recency(0.9)], shares=[0.25, 0.75]),
            replay.Uniform(replace=np.True_),
        ],
        ids=repr,
    )
    def test_options_from_numpy_and_lists(self, tmp_path, sampler):
        buffer = ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=1)
        buffer.extend(x=np.arange(10.0))
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        np.testing.assert_array_equal(buffer.sample(8, progress=0.3).id, twin.sample(8, progress=0.3).id)
        distributions = [each.probabilities(range(10), batch_size=8, progress=0.3) for each in (buffer, twin)]
        np.testing.assert_array_equal(*distributions)

    def test_transforms_with_numpy_options(self, tmp_path):
        fields = {name: Field() for name in ("obs", "reward", "next_obs", "terminated", "truncated")}
        fields |= {name: Field((), bool) for name in ("terminated", "truncated")}
        transforms = [replay.NStep(3, gamma=np.float32(0.5)), replay.FrameStack(2, fields=("obs", "next_obs"))]
        ReplayBuffer(10, fields, transforms=transforms).save(tmp_path)
        assert ReplayBuffer.load(tmp_path).transforms[0] == replay.NStep(3, gamma=0.5)

    def test_a_streams_state_with_such_options(self, tmp_path):
        def stream():
            sampler = replay.Mixture([replay.Uniform(), replay.Recency(0.9)], shares=[0.25, np.float32(0.75)])
            return replay.ReplayStream([], ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=1), batch_size=2)

        original, two = stream(), stream()
        for x in range(5):
            original.push({"x": x})
        two.restore(original.state(tmp_path / "s"))
        assert two.buffer.get(4)["x"] == 4.0

    def test_what_was_written_is_read_back_before_it_takes_its_place(self, tmp_path, monkeypatch):
        """A writer that writes something else is found out, and the snapshot before stays."""
        buffer = ReplayBuffer(10, {"x": Field()})
        buffer.save(tmp_path)
        before = files(tmp_path)
        buffer.add(x=1.0)
        monkeypatch.setattr("replaylab.files.npy.head_of", lambda dtype, count: b"\x93NUMPY nonsense")
        with pytest.raises(SnapshotError, match="is not a snapshot that this library wrote"):
            buffer.save(tmp_path)
        assert files(tmp_path) == before
        monkeypatch.undo()
        assert len(ReplayBuffer.load(tmp_path)) == 0


class TestFilesThatWent:
    """The memory holds everything: what is missing in the folder is written again."""

    @pytest.fixture
    def saved(self, tmp_path, monkeypatch):
        monkeypatch.setattr("replaylab.replay.snapshot.STRETCH", 40)
        fields = {"x": Field(), "y": Field((64,), compressed=True)}
        buffer = ReplayBuffer(100, fields)
        buffer.extend(x=np.arange(60.0), y=np.random.default_rng(0).standard_normal((60, 64)))
        buffer.save(tmp_path)
        return buffer, tmp_path

    @pytest.mark.parametrize("kind", ["rows", "packed", "state"])
    @pytest.mark.parametrize("damage", ["removed", "cut short", "another head", "written over", "a folder"])
    def test_what_is_not_there_is_written_again(self, saved, kind, damage):
        buffer, folder = saved
        file = sorted(folder.glob(f"{kind}-*"))[0]
        content = file.read_bytes()
        file.unlink()
        if damage == "a folder":
            file.mkdir()
        if damage == "cut short":
            file.write_bytes(content[:-1])
        if damage == "another head":
            file.write_bytes(b"x" * 40 + content[40:])
        if damage == "written over":  # nothing that its length or its head would tell
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            later = (folder / "manifest.json").stat().st_mtime_ns + 10**9
            os.utime(file, ns=(later, later))
        buffer.add(x=60.0, y=np.zeros(64))
        buffer.save(folder)
        np.testing.assert_array_equal(ReplayBuffer.load(folder).get(range(61))["y"], buffer.get(range(61))["y"])

    def test_what_is_there_is_not_written_again(self, saved):
        buffer, folder = saved
        before = set(files(folder))
        buffer.add(x=60.0, y=np.zeros(64))
        buffer.save(folder)
        assert len({name for name in before & set(files(folder)) if name.startswith("rows")}) >= 5


class TestFailures:
    """A save that fails leaves the folder as it was."""

    @pytest.mark.skipif(os.name != "posix", reason="limits a process's files")
    def test_files_that_grow_too_large(self, tmp_path):
        """A real failing write: the operating system's, half-way through a file."""
        script = (
            "import resource, signal, sys, numpy as np; from replaylab import Field, ReplayBuffer, errors\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "buffer = ReplayBuffer(200_000, {'x': Field((16,))}); buffer.extend(x=np.ones((200_000, 16)))\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))\n"
            "for _ in range(3):\n"
            "    try: buffer.save(sys.argv[1])\n"
            "    except errors.StorageError as error: assert 'too large' in str(error), error\n"
            "    else: raise SystemExit('saved')\n"
        )
        subprocess.run([sys.executable, "-c", script, tmp_path / "s"], check=True, timeout=60)
        assert files(tmp_path) == []


class TestPaths:
    @pytest.mark.parametrize("path", [None, 3, "", b"x", "a\0b", [], "\ud800"], ids=repr)
    def test_no_path(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="`path` of `save` must be the path of a folder"):
            ReplayBuffer(10, {"x": Field()}).save(path)
        with pytest.raises(ConfigError, match="`path` of `load` must be the path of a folder"):
            ReplayBuffer.load(path)
        assert files(tmp_path) == []


class TestEditedManifests:
    """Sealed, as anybody can seal one, but not as this library writes them."""

    @pytest.fixture
    def saved(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field()}, sampler=replay.Prioritized(beta=0.4))
        buffer.extend(x=np.arange(7.0))
        buffer.save(tmp_path / "s")
        return tmp_path / "s"

    @pytest.mark.parametrize(
        "change", [{"stretch": 1}, {"stretch": 6}, {"next_ids": [6]}, {"next_ids": [8]}, {"next_ids": [17]}], ids=str
    )
    def test_rows_that_are_not_the_steps_of_the_state(self, saved, change):
        rewritten(saved, **change)
        with pytest.raises(SnapshotError):
            ReplayBuffer.load(saved)

    @pytest.mark.parametrize("next_ids", [[], [7, 7]])
    def test_rows_of_other_replicas(self, saved, next_ids):
        buffer = ReplayBuffer.load(saved)
        rewritten(saved, next_ids=next_ids)
        with pytest.raises(SnapshotError, match=r"has rows of . replicas, but is of 1"):
            ReplayBuffer.load(saved)
        buffer.save(saved)
        assert len(ReplayBuffer.load(saved)) == 7


def test_a_batch_beyond_the_memory_is_refused(tmp_path):
    """As a snapshot may say that stacks are so long."""
    fields = {"obs": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
    buffer = ReplayBuffer(4, fields, transforms=(replay.FrameStack(2**31),))
    buffer.add(obs=1.0, terminated=False, truncated=False)
    for call in (lambda: buffer.sample(400), lambda: buffer.as_batch([0] * 400)):
        with pytest.raises(OverSizeError, match="a batch of 400 rows needs"):
            call()
