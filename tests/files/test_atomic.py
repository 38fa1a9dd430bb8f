"""A file is whole or not there, and what was there before stays until the new one is."""

import errno
import os

import pytest

from replaylab.errors import StorageError
from replaylab.files.atomic import make_folder, replacing, whole_file, write_text, writing


def test_a_file_whose_writer_fails_is_not_there(tmp_path):
    target = tmp_path / "sub" / "file.txt"
    write_text(target, "old")

    def fail_half_way():
        with whole_file(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert target.read_text() == "old"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]


class TestReplacing:
    def test_the_new_takes_the_place_of_the_old(self, tmp_path):
        file = tmp_path / "file"
        file.write_text("old")
        with replacing(file, tmp_path / "file.new") as new:
            new.write_text("new")
            assert file.read_text() == "old"
        assert file.read_text() == "new"
        assert [p.name for p in tmp_path.iterdir()] == ["file"]

    def test_its_bytes_are_on_disk_before_the_rename(self, tmp_path, monkeypatch):
        done, fsync, replace = [], os.fsync, type(tmp_path).replace
        monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), fsync(fd))[1])
        monkeypatch.setattr(type(tmp_path), "replace", lambda *args: (done.append("rename"), replace(*args))[1])
        with replacing(tmp_path / "file", tmp_path / "file.new") as new:
            new.write_text("new")
        assert done == ["sync", "rename"]

    @pytest.mark.parametrize("at", ["block", "rename"])
    def test_after_an_exception_all_is_as_it_was(self, tmp_path, monkeypatch, at):
        (tmp_path / "file").write_text("old")

        def fail(*args):
            raise KeyboardInterrupt

        def write():
            with replacing(tmp_path / "file", tmp_path / "file.new") as new:
                new.write_text("new")
                if at == "block":
                    fail()
                monkeypatch.setattr(type(tmp_path), "replace", fail)

        with pytest.raises(KeyboardInterrupt):
            write()
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "old"}

    def test_a_link_that_was_left_there_is_not_followed(self, tmp_path):
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "file.new").symlink_to(tmp_path / "precious")
        with replacing(tmp_path / "file", tmp_path / "file.new") as new:
            new.write_text("new")
        assert (tmp_path / "precious").read_text() == "mine"
        assert not (tmp_path / "file").is_symlink()


def test_make_folder_tells_which_it_made(tmp_path):
    assert make_folder(tmp_path / "a" / "b") == [tmp_path / "a" / "b", tmp_path / "a"]
    assert make_folder(tmp_path / "a" / "b") == []


def test_a_refusal_names_path_reason_and_mend(tmp_path):
    def refuse():
        with writing(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        StorageError, match=rf"^{tmp_path} cannot be written: No space left on device\. Free some space"
    ):
        refuse()
