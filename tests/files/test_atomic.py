"""A file is complete or absent, and what was there before stays until the new one is."""

import errno
import os
import time
from pathlib import Path

import pytest

from replaylab.errors import StorageError
from replaylab.files.atomic import sweep, whole_file, write_text, writing


@pytest.mark.parametrize("at", ["block", "rename"])
def test_after_an_exception_all_is_as_it_was(tmp_path, monkeypatch, at):
    target = tmp_path / "sub" / "file.txt"
    write_text(target, "old")

    def fail(*args):
        raise KeyboardInterrupt

    def write():
        with whole_file(target) as temporary:
            temporary.write_text("half")
            if at == "block":
                fail()
            monkeypatch.setattr(Path, "replace", fail)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert {p.name: p.read_text() for p in target.parent.iterdir()} == {"file.txt": "old"}


def test_its_bytes_are_on_disk_before_its_name(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), fsync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda *args: (done.append("rename"), replace(*args))[1])
    write_text(tmp_path / "file", "new")
    assert done == ["sync", "rename", "sync"][: 3 if os.name == "posix" else 2]
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "new"}


def test_a_refusal_names_path_reason_and_fix(tmp_path):
    def refuse():
        with writing(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        StorageError, match=rf"^{tmp_path} cannot be written: No space left on device\. Free some space"
    ):
        refuse()


def test_a_file_that_is_being_written_is_no_leftover(tmp_path):
    with whole_file(tmp_path / "report.html") as temporary:
        temporary.write_text("page")
        sweep(tmp_path)
        old = temporary.with_name(f".old-{os.getpid()}.unfinished")
        old.touch()
        os.utime(old, (0, time.time() - 4_000))
        sweep(tmp_path)
        assert not old.exists()
    assert (tmp_path / "report.html").read_text() == "page"
