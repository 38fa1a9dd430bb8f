"""Rules for every format that is stored in a bundle: complete or absent, checked when it is read."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from replaylab.errors import SnapshotError, StorageError
from replaylab.files.bundle import seal
from tests.files.formats import FILES, FORMATS

EVERY = pytest.mark.parametrize("name", FORMATS)
ALONE = pytest.mark.parametrize(
    "name", [name for name in FORMATS if name != "shards"]
)  # all files are the bundle's own
WITH_FILES = pytest.mark.parametrize(
    ("name", "file"),
    [
        *(("snapshot", file) for file in ("rows-0-0", "packed-0-1-0", "state")),
        *(("run", "state"), ("distributed run", "learner")),
    ],
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A bundle of every format."""
    folder = tmp_path_factory.mktemp("examples")
    for name, format_ in FORMATS.items():
        format_.write(folder / name, 2)
    return folder


@pytest.fixture
def saved(examples, name, tmp_path):
    return Path(shutil.copytree(examples / name, tmp_path / "saved"))


def files(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


def rewritten(folder, format_, **members):
    """Put members of a manifest right, or wrong, and seal it."""
    file = folder / format_.schema.manifest
    manifest = json.loads(file.read_text()) | members
    file.write_text(json.dumps(manifest | {"crc32": seal(manifest)}))


def both_refuse(format_, folder, match=None):
    """Neither is a damaged bundle read nor is it written over."""
    with pytest.raises(SnapshotError, match=match):
        format_.read(folder)
    with pytest.raises(SnapshotError, match=match), format_.bundle(folder).replacing():
        pass


def members(value, path=()):
    """The paths of all members of nested JSON objects."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield (*path, name)
            yield from members(child, (*path, name))


def changed(value, path, change):
    """A copy of nested JSON with the member at this path another, or left out where `change` is None."""
    copy = json.loads(json.dumps(value))
    inside = copy
    for name in path[:-1]:
        inside = inside[name]
    if change is None:
        del inside[path[-1]]
    else:
        inside[path[-1]] = change
    return copy


class TestWriting:
    @EVERY
    def test_the_new_file_replaces_the_old_and_nothing_else_stays(self, name, tmp_path):
        format_ = FORMATS[name]
        for number in (3, 4, 2):
            format_.write(tmp_path, number)
            assert format_.read(tmp_path) == number
        listed = {file["file"] for file in format_.bundle(tmp_path).read().files.values()}
        assert {file.name for file in tmp_path.iterdir() if format_.schema.owns(file.name)} == listed
        assert not list(tmp_path.rglob("*.unfinished"))

    @ALONE
    @pytest.mark.parametrize("before", ["nothing", "a folder", "a bundle"])
    @pytest.mark.parametrize(
        "at",
        ["Folder.create", "Folder.settle", "Folder.replace", "Draft.describe", "numpy.savez", "pathlib.Path.replace"],
    )
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
    def test_a_save_that_fails_leaves_nothing(self, name, tmp_path, monkeypatch, before, at, error):
        format_, folder = FORMATS[name], tmp_path / "a" / "b"
        if before == "a folder":
            folder.mkdir(parents=True)
        if before == "a bundle":
            format_.write(folder, 2)
        before_save = files(tmp_path)

        def fail(*args, **options):
            raise error

        modules = {"Folder": "replaylab.files.folder.", "Draft": "replaylab.files.bundle."}
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(modules.get(at.partition(".")[0], "") + at, fail)
                with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
                    format_.write(folder, 3)
            assert files(tmp_path) == before_save
        if before == "a bundle":
            assert format_.read(folder) == 2
        format_.write(folder, 3)
        assert format_.read(folder) == 3

    @EVERY
    def test_an_interrupt_right_after_the_rename_keeps_the_new_one(self, name, saved, monkeypatch):
        format_, replace = FORMATS[name], Path.replace

        def interrupted(self, target):
            replace(self, target)
            if Path(target) == saved / format_.schema.manifest:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                format_.write(saved, 4)
        assert format_.read(saved) == 4

    @ALONE
    def test_what_a_kill_left_goes_before_new_files_come(self, name, saved, monkeypatch):
        """It takes the room that the next one needs. Files of other names stay."""
        format_ = FORMATS[name]
        (listed, *_) = format_.bundle(saved).read().files.values()
        left = saved / listed["file"].replace(listed["file"][-36:-4], "a" * 32)
        others = [saved / "rows-of-mine.npy", saved / "state-of-mine.npz", saved / f"mine-{'a' * 32}.npy"]
        for file in (left, saved / ".half-1x.unfinished", *others):
            file.write_bytes(b"x")
        seen = []
        monkeypatch.setattr(
            "replaylab.files.bundle.Draft.arrays", lambda *_: (seen.extend(files(saved)), 1 / 0), raising=True
        )
        with pytest.raises(ZeroDivisionError):
            format_.write(saved, 3)
        assert not {left.name, ".half-1x.unfinished"} & set(seen)
        assert {file.name for file in others} <= set(seen) & set(files(saved))

    @EVERY
    @pytest.mark.skipif(os.name != "posix", reason="asks the kernel which files were brought to disk")
    def test_the_folders_that_are_made_are_brought_to_disk(self, name, tmp_path, monkeypatch):
        settled, fsync = [], os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (settled.append(os.fstat(fd).st_ino), fsync(fd))[1])
        FORMATS[name].write(tmp_path / "a" / "b", 2)
        for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
            assert folder.stat().st_ino in settled, folder

    @EVERY
    def test_a_folder_that_cannot_be_made(self, name, tmp_path):
        (tmp_path / "file").write_text("x")
        for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
            with pytest.raises((SnapshotError, StorageError)):
                FORMATS[name].read(path)
            with pytest.raises(StorageError, match="cannot be written"):
                FORMATS[name].write(path, 2)


class TestReading:
    @EVERY
    def test_nothing_there(self, name, tmp_path):
        schema = FORMATS[name].schema
        with pytest.raises(SnapshotError, match=f"holds no {schema.noun}: there is no {schema.manifest} in it"):
            FORMATS[name].read(tmp_path)

    @EVERY
    def test_a_file_in_place_of_a_folder_is_named(self, name, tmp_path):
        (tmp_path / "experience.pkl").write_bytes(b"x")
        with pytest.raises(SnapshotError, match=rf"experience\.pkl is a file, but a {FORMATS[name].schema.noun} is a"):
            FORMATS[name].read(tmp_path / "experience.pkl")

    @WITH_FILES
    @pytest.mark.parametrize("damage", ["missing", "cut short", "longer", "another byte", "a folder", "a pipe"])
    def test_a_damaged_file(self, name, file, saved, damage):
        format_ = FORMATS[name]
        path = saved / format_.bundle(saved).read().files[file]["file"]
        content = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        elif damage == "a pipe":
            getattr(os, "mkfifo", Path.mkdir)(path)
        elif damage != "missing":
            last = bytes([content[-7] ^ 1])
            path.write_bytes(
                {
                    "cut short": content[:-1],
                    "longer": content + b"x",
                    "another byte": content[:-7] + last + content[-6:],
                }[damage]
            )
        gone = damage in ("missing", "a folder", "a pipe")
        words = "is not complete: .* is missing" if gone else "is damaged: .* is not what was written"
        with pytest.raises(SnapshotError, match=f"{words}; use another copy"):
            format_.read(saved)

    @EVERY
    def test_a_file_that_cannot_be_read(self, name, saved, monkeypatch):
        def refuse(self, *args, **options):
            if self.parent == saved:
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return opening(self, *args, **options)

        opening = Path.open
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(StorageError, match=r"cannot be read.*Permission denied"):
            FORMATS[name].read(saved)

    @EVERY
    @pytest.mark.parametrize(
        "text", ["[" * 100_000, '{"format": ' + "[" * 100_000, "\xff", "null", '"x"', "NaN", "{", ""]
    )
    def test_no_json(self, name, saved, text):
        (saved / FORMATS[name].schema.manifest).write_bytes(text.encode("latin1"))
        both_refuse(FORMATS[name], saved)

    @EVERY
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"format": "other"}, "is not part of a replaylab-"),
            ({"version": 99}, "has version 99, but this release reads"),
        ],
    )
    def test_a_foreign_manifest(self, name, saved, change, words):
        rewritten(saved, FORMATS[name], **change)
        both_refuse(FORMATS[name], saved, words)

    @EVERY
    def test_a_manifest_with_any_other_value(self, name, saved):
        """Each member in turn is left out, or is another: never is half a bundle read for a complete one."""
        format_ = FORMATS[name]
        file = saved / format_.schema.manifest
        manifest = json.loads(file.read_text())
        for path in members(manifest):
            for change in (None, 7, "x"):
                file.write_text(json.dumps(changed(manifest, path, change)))
                with pytest.raises(SnapshotError):
                    format_.bundle(saved).read()
        file.write_text(json.dumps(manifest, indent=4))  # the same in other words
        assert format_.read(saved) == 2

    @EVERY
    @pytest.mark.parametrize("value", [-1, None, 3.5, [None], [3.5], [[]], 10**30, {"a": 1}, {"a": None}], ids=repr)
    def test_members_of_another_type(self, name, saved, value):
        """Well sealed, as anybody can seal one, but not as this library writes them."""
        format_ = FORMATS[name]
        text = (saved / format_.schema.manifest).read_text()
        for member in ("token", "files", *format_.schema.members):
            if isinstance(value, dict) and isinstance(json.loads(text)[member], dict) and member != "files":
                continue
            (saved / format_.schema.manifest).write_text(text)
            rewritten(saved, format_, **{member: value})
            both_refuse(format_, saved, f"that this library wrote: `{member}` must be .*; use another copy")

    @WITH_FILES
    @pytest.mark.parametrize(
        "change",
        [{"bytes": -1}, {"bytes": "x"}, {"crc32": None}, {"crc32": 2.5}]
        + [{"file": file} for file in ("../{}", "{folder}/{}", "./{}", "..", "", ".{}", "x{}", 3, None)],
        ids=str,
    )
    def test_no_file_outside_the_folder_is_read(self, name, file, saved, change):
        format_ = FORMATS[name]
        listed = format_.bundle(saved).read().files
        shutil.copy(saved / listed[file]["file"], saved.parent)
        if isinstance(change.get("file"), str):
            change = {"file": change["file"].format(listed[file]["file"], folder=saved.parent)}
        rewritten(saved, format_, files=listed | {file: listed[file] | change})
        both_refuse(format_, saved, "`files` must be files in the folder by name, with lengths and checksums")

    @WITH_FILES
    def test_a_file_that_is_not_listed(self, name, file, saved):
        format_ = FORMATS[name]
        listed = format_.bundle(saved).read().files
        rewritten(saved, format_, files={other: listed[other] for other in listed if other != file})
        with pytest.raises(SnapshotError, match=f"is not complete: .* lists no file of {file}"):
            format_.read(saved)


@pytest.mark.parametrize("name", FILES)
class TestSingleFiles:
    """An archive's directory has bytes that mean nothing; each other one that is changed is an error."""

    def test_changed_bytes_and_lost_ends_are_seen_or_do_no_harm(self, name, tmp_path):
        content, read = FILES[name]()
        file = tmp_path / name
        file.write_bytes(content)
        expected, seen = read(file), []
        for at in range(0, len(content), 31):
            for changed in (content[:at], content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]):
                file.write_bytes(changed)
                try:
                    assert read(file) == expected
                except (SnapshotError, StorageError) as error:
                    seen.append(str(error))
        assert len(seen) > len(content) // 31
        assert all(str(file) in message for message in seen)

    def test_other_files(self, name, tmp_path):
        read = FILES[name]()[1]
        with pytest.raises((SnapshotError, StorageError)):
            read(tmp_path / name)
        for content in (b"", b"text", b"[]"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(SnapshotError, match="that this library wrote"):
                read(tmp_path / name)
