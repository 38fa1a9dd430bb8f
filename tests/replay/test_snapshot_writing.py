"""What `save` writes can be loaded, whatever the fields are called and the options are; what it cannot write leaves
nothing behind."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import ConfigError, OverSizeError, SnapshotError, StorageError
from replaylab.files import manifest as manifest_file
from replaylab.replay import (
    Field,
    FrameStack,
    Mixture,
    NStep,
    Prioritized,
    Recency,
    ReplayBuffer,
    ReplayStream,
    Uniform,
)
from replaylab.replay.data.schedules import Linear


def files(folder):
    return sorted(one.name for one in Path(folder).rglob("*"))


def rewritten(folder, **members):
    """Put members of a manifest right, or wrong, and seal it."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text()) | members
    file.write_text(json.dumps(manifest | {"crc32": manifest_file.seal(manifest)}))


def test_an_interrupt_right_after_the_rename_keeps_the_new_snapshot(tmp_path, monkeypatch):
    replace = Path.replace

    def interrupted(self, target):
        replace(self, target)
        raise KeyboardInterrupt

    buffer = ReplayBuffer(4, {"x": Field()})
    buffer.add(x=1.0)
    buffer.save(tmp_path)
    buffer.add(x=2.0)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            buffer.save(tmp_path)
    assert ReplayBuffer.load(tmp_path).get([0, 1])["x"].tolist() == [1.0, 2.0]


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
            Prioritized(alpha=np.float32(0.6), beta=np.float64(0.4)),
            Prioritized(beta=Linear(np.float32(0.4), 1, until=np.float16(0.5))),
            Recency(np.float32(0.9), burst=np.int64(4)),
            Mixture([Uniform(), Recency(0.9)], shares=[0.25, 0.75]),
            Uniform(replace=np.True_),
        ],
        ids=repr,
    )
    def test_options_from_numpy_and_lists(self, tmp_path, sampler):
        buffer = ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=1)
        buffer.extend(x=np.arange(10.0))
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        np.testing.assert_array_equal(buffer.sample(8, progress=0.3).id, twin.sample(8, progress=0.3).id)
        laws = [one.probabilities(range(10), batch_size=8, progress=0.3) for one in (buffer, twin)]
        np.testing.assert_array_equal(*laws)

    def test_transforms_with_numpy_options(self, tmp_path):
        fields = {name: Field() for name in ("obs", "reward", "next_obs", "terminated", "truncated")}
        fields |= {name: Field((), bool) for name in ("terminated", "truncated")}
        transforms = [NStep(3, gamma=np.float32(0.5)), FrameStack(2, fields=("obs", "next_obs"))]
        ReplayBuffer(10, fields, transforms=transforms).save(tmp_path)
        assert ReplayBuffer.load(tmp_path).transforms[0] == NStep(3, gamma=0.5)

    def test_a_streams_state_with_such_options(self, tmp_path):
        def stream():
            sampler = Mixture([Uniform(), Recency(0.9)], shares=[0.25, np.float32(0.75)])
            return ReplayStream([], ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=1), batch_size=2)

        one, two = stream(), stream()
        for x in range(5):
            one.push({"x": x})
        two.restore(one.state(tmp_path / "s"))
        assert two.buffer.get(4)["x"] == 4.0

    def test_what_was_written_is_read_back_before_it_takes_its_place(self, tmp_path, monkeypatch):
        """A writer that writes something else is found out, and the snapshot before stays."""
        buffer = ReplayBuffer(10, {"x": Field()})
        buffer.save(tmp_path)
        before = files(tmp_path)
        buffer.add(x=1.0)
        monkeypatch.setattr("replaylab.replay.snapshot.npy.head_of", lambda dtype, count: b"\x93NUMPY nonsense")
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


class HaltError(Exception):
    """Not even an OSError."""


class TestFailures:
    """A save that fails leaves the folder as it was."""

    @pytest.mark.parametrize("before", ["nothing", "a folder", "a snapshot"])
    @pytest.mark.parametrize("at", ["rows", "state", "manifest", "check", "rename"])
    @pytest.mark.parametrize(
        "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), HaltError()]
    )
    def test_nothing_is_left(self, tmp_path, monkeypatch, before, at, error):
        folder = tmp_path / "a" / "b"
        buffer = ReplayBuffer(100, {"x": Field()})
        buffer.extend(x=np.arange(50.0))
        if before == "a folder":
            folder.mkdir(parents=True)
        if before == "a snapshot":
            buffer.save(folder)
        there = files(tmp_path)

        def fail(*args, **options):
            raise error

        places = {
            "rows": "replaylab.files.npy.head_of",
            "state": "numpy.savez",
            "manifest": "json.dump",
            "check": "replaylab.replay.buffer_config.BufferConfig.check_json",
            "rename": "pathlib.Path.replace",
        }
        buffer.extend(x=np.arange(50.0))
        monkeypatch.setattr(places[at], fail)
        expected = StorageError if isinstance(error, OSError) else type(error)
        for _ in range(3):
            with pytest.raises(expected):
                buffer.save(folder)
            assert files(tmp_path) == there
        monkeypatch.undo()
        if before == "a snapshot":
            assert len(ReplayBuffer.load(folder)) == 50
        buffer.save(folder)
        assert len(ReplayBuffer.load(folder)) == 100

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

    def test_what_a_kill_left_goes_before_new_files_come(self, tmp_path, monkeypatch):
        """They take the room that the next snapshot needs."""
        buffer = ReplayBuffer(10, {"x": Field()})
        buffer.save(tmp_path)
        left = [tmp_path / f"rows-0-0-{'a' * 32}.npy", tmp_path / f"state-{'b' * 32}.npz"]
        others = [tmp_path / "rows-of-mine.npy", tmp_path / "state-of-mine.npz"]
        for file in left + others:
            file.write_bytes(b"x")
        seen = []
        savez = np.savez
        monkeypatch.setattr("numpy.savez", lambda *args, **named: (seen.extend(files(tmp_path)), savez(*args, **named)))
        buffer.save(tmp_path)
        assert not {file.name for file in left} & set(seen)
        assert {file.name for file in others} <= set(files(tmp_path))

    @pytest.mark.skipif(os.name != "posix", reason="asks the kernel which files were brought to disk")
    def test_the_folders_that_are_made_are_brought_to_disk(self, tmp_path, monkeypatch):
        settled, fsync = [], os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (settled.append(os.fstat(fd).st_ino), fsync(fd))[1])
        ReplayBuffer(10, {"x": Field()}).save(tmp_path / "a" / "b")
        for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
            assert folder.stat().st_ino in settled, folder


class TestPaths:
    @pytest.mark.parametrize("path", [None, 3, "", b"x", "a\0b", [], "\ud800"], ids=repr)
    def test_no_path(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="`path` of `save` must be the path of a folder"):
            ReplayBuffer(10, {"x": Field()}).save(path)
        with pytest.raises(ConfigError, match="`path` of `load` must be the path of a folder"):
            ReplayBuffer.load(path)
        assert files(tmp_path) == []

    @pytest.mark.parametrize("name", ["manifest.json", "rows", "state"])
    def test_files_that_cannot_be_read(self, tmp_path, monkeypatch, name):
        buffer = ReplayBuffer(10, {"x": Field()})
        buffer.add(x=1.0)
        buffer.save(tmp_path)

        def refuse(self, *args, **options):
            if self.name.startswith(name):
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return opening(self, *args, **options)

        opening = Path.open
        monkeypatch.setattr(Path, "open", refuse)
        if name == "manifest.json":
            monkeypatch.setattr(Path, "read_text", refuse)
        with pytest.raises(StorageError, match=r"cannot be read.*Permission denied"):
            ReplayBuffer.load(tmp_path)

    def test_a_folder_that_is_none(self, tmp_path):
        (tmp_path / "file").write_text("x")
        for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
            with pytest.raises((SnapshotError, StorageError)):
                ReplayBuffer.load(path)
            with pytest.raises(StorageError):
                ReplayBuffer(10, {"x": Field()}).save(path)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
    @pytest.mark.parametrize("kind", ["manifest.json", "rows-*", "state-*"])
    def test_a_pipe_does_not_hang(self, tmp_path, kind):
        buffer = ReplayBuffer(10, {"x": Field()})
        buffer.add(x=1.0)
        buffer.save(tmp_path)
        (file,) = tmp_path.glob(kind)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(SnapshotError):
            ReplayBuffer.load(tmp_path)


class TestEditedManifests:
    """Sealed, as anybody can seal one, but not as this library writes them."""

    @pytest.fixture
    def saved(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field()}, sampler=Prioritized(beta=0.4))
        buffer.extend(x=np.arange(7.0))
        buffer.save(tmp_path / "s")
        return tmp_path / "s"

    @pytest.mark.parametrize("where", ["rows", "state"])
    @pytest.mark.parametrize("name", ["../outside.npy", "{absolute}", "./{name}", "..", "", ".hidden.npy", 3, None])
    def test_no_file_outside_the_folder_is_read(self, saved, where, name):
        manifest = json.loads((saved / "manifest.json").read_text())
        one = manifest["rows"][0] if where == "rows" else manifest["state"]
        for outside in ("outside.npy", "outside.npz"):
            shutil.copy(saved / one["file"], saved.parent / outside)
        if isinstance(name, str):
            name = name.format(absolute=saved.parent / f"outside{Path(one['file']).suffix}", name=one["file"])
        one["file"] = name
        rewritten(saved, **{where: manifest[where]})
        with pytest.raises(SnapshotError, match="is not a snapshot that this library wrote"):
            ReplayBuffer.load(saved)

    @pytest.mark.parametrize("member", ["token", "next_ids", "rows", "moves", "state", "about", "packed"])
    @pytest.mark.parametrize("value", [3, -1, None, "x", [None], [3.5], {"a": 1}, [[]], 10**30], ids=repr)
    def test_members_of_another_type(self, saved, member, value):
        buffer = ReplayBuffer.load(saved)
        rewritten(saved, **{member: value})
        if (member, value) not in (("token", "x"), ("moves", 3)):
            with pytest.raises(SnapshotError):
                ReplayBuffer.load(saved)
        if (member, value) not in (("token", "x"), ("moves", 3), ("about", {"a": 1})):
            with pytest.raises(SnapshotError):
                buffer.save(saved)

    def test_a_manifest_without_a_token(self, saved):
        buffer = ReplayBuffer.load(saved)
        manifest = json.loads((saved / "manifest.json").read_text())
        del manifest["token"]
        (saved / "manifest.json").write_text(json.dumps(manifest | {"crc32": manifest_file.seal(manifest)}))
        for call in (lambda: ReplayBuffer.load(saved), lambda: buffer.save(saved)):
            with pytest.raises(SnapshotError, match="KeyError"):
                call()

    @pytest.mark.parametrize(
        "change",
        [
            {"slots": [0, 6]},
            {"slots": [1, 7]},
            {"slots": [-7, 7]},
            {"slots": [0, 7, 2]},
            {"replica": -1},
            {"replica": 1},
        ],
        ids=str,
    )
    def test_rows_that_do_not_cover_the_slots(self, saved, change):
        manifest = json.loads((saved / "manifest.json").read_text())
        manifest["rows"][0] |= change
        rewritten(saved, rows=manifest["rows"])
        with pytest.raises(SnapshotError):
            ReplayBuffer.load(saved)

    def test_rows_left_out_or_twice(self, saved):
        rows = json.loads((saved / "manifest.json").read_text())["rows"]
        for wrong in ([], rows * 2):
            rewritten(saved, rows=wrong)
            with pytest.raises(SnapshotError):
                ReplayBuffer.load(saved)

    def test_other_steps_than_the_states(self, saved):
        rows = json.loads((saved / "manifest.json").read_text())["rows"]
        for n in (6, 8, 17):
            rewritten(saved, next_ids=[n], rows=rows)
            with pytest.raises(SnapshotError):
                ReplayBuffer.load(saved)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' + "[" * 100_000, "\xff", "null", '"x"', "NaN", ""])
    def test_no_json(self, saved, text):
        (saved / "manifest.json").write_bytes(text.encode("latin1"))
        for call in (ReplayBuffer.load, ReplayBuffer(10, {"x": Field()}).save):
            with pytest.raises(SnapshotError):
                call(saved)

    def test_a_link_in_place_of_the_new_manifest_is_not_followed(self, saved):
        (saved.parent / "precious").write_text("mine")
        (saved / "manifest.json.new").symlink_to(saved.parent / "precious")
        buffer = ReplayBuffer.load(saved)
        buffer.save(saved)
        assert (saved.parent / "precious").read_text() == "mine"
        assert len(ReplayBuffer.load(saved)) == 7


def test_a_batch_beyond_the_memory_is_refused_however_it_is_asked_for(tmp_path):
    """As a snapshot may say that stacks are so long."""
    fields = {"obs": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
    buffer = ReplayBuffer(4, fields, transforms=(FrameStack(2**31),))
    buffer.add(obs=1.0, terminated=False, truncated=False)
    for call in (lambda: buffer.sample(400), lambda: buffer.as_batch([0] * 400)):
        with pytest.raises(OverSizeError, match="a batch of 400 rows needs"):
            call()
