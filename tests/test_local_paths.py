"""Paths of this machine, wherever one is taken: URLs are refused before anything is written, and ~ is expanded."""

from pathlib import Path

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.arguments import checked, place
from replaylab.errors import ConfigError
from replaylab.replay import MemoryMap, ReplayStream
from replaylab.research import Tape, TapeWriter

URLS = ["s3://bucket/ck", "gs://bucket/ck", "hf://datasets/x", "file:///tmp/ck", Path("s3://bucket/ck"), "az+b.c://x"]
REFUSED = "not supported yet; pass a local path"


def make():
    buffer = ReplayBuffer(10, {"x": Field()}, seed=0)
    buffer.extend(x=np.arange(5.0))
    return buffer


def takers():
    """Everything that takes a path, by name."""
    stream = ReplayStream([{"x": 1.0}], 2, batch_size=1)
    yield "save", lambda path: make().save(path)
    yield "load", ReplayBuffer.load
    yield "restore", lambda path: make().restore(path)
    yield "MemoryMap", lambda path: ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(path))
    yield "stream", stream.state
    yield "tape", lambda path: ReplayBuffer(10, {"x": Field()}, sampler=Tape(path))
    yield "tape writer", lambda path: TapeWriter().write(path)


def lab_takers():
    from replaylab.learners import Checkpoints, TapeRecorder
    from replaylab.learners.training.saved_agents import load_agents, save_agents
    from replaylab.research.tape_file import TapeReader
    from replaylab.study import Spec, Study
    from replaylab.watch import TensorBoard, write_video

    yield "checkpoints", Checkpoints
    yield "save_agents", lambda path: save_agents(path, None, [0])
    yield "load_agents", lambda path: load_agents(path, None, 0)
    yield "recorder", TapeRecorder
    yield "reader", TapeReader
    yield "study file", Spec.from_toml
    yield "study", Study.from_toml
    yield "results", lambda path: Study.from_toml("quick", path)
    yield "folder", Study.from_folder
    yield "report", lambda path: Study.from_toml("quick").report(path)
    yield "tensorboard", lambda path: TensorBoard(path, [0])
    yield "video", lambda path: write_video(path, [np.zeros((8, 8, 3), np.uint8)])


def distributed_takers():
    from replaylab.distributed.replay import RemoteReplay, Snapshots

    yield "snapshots", Snapshots
    yield "remote load", RemoteReplay.load


@pytest.mark.parametrize("url", URLS, ids=str)
@pytest.mark.parametrize("some", [takers, lab_takers, distributed_takers])
def test_urls_are_refused_and_nothing_is_written(tmp_path, monkeypatch, some, url):
    monkeypatch.chdir(tmp_path)
    for name, take in some():
        with pytest.raises(ConfigError, match=REFUSED):
            take(url)
        assert not list(tmp_path.iterdir()), name


@pytest.mark.parametrize(
    "command",
    [
        ["study", "run", "s3://bucket/study.toml"],
        ["study", "run", "quick", "--out", "s3://bucket/out"],
        ["study", "report", "s3://bucket/out"],
        ["train", "--save", "s3://bucket/run"],
        ["train", "--tensorboard", "gs://bucket/run"],
        ["train", "--resume", "s3://bucket/run"],
        ["watch", "s3://bucket/run"],
    ],
    ids=" ".join,
)
def test_commands_refuse_them(tmp_path, monkeypatch, capsys, command):
    from replaylab.commands.main import main

    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert REFUSED in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_command_expands_the_home_directory(tmp_path, monkeypatch, capsys):
    from replaylab.commands.main import main

    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["study", "report", "~/none"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_the_home_directory(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    for path in ("~/saved", Path("~/saved")):
        make().save(path)
        assert ReplayBuffer.load(path).size == 5
    assert (home / "saved" / "manifest.json").is_file()
    with_rows = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap("~/rows"))
    with_rows.close()
    assert (home / "rows").exists()
    writer = TapeWriter()
    writer.append(np.arange(4))
    writer.write("~/drawn.tape")
    assert Tape("~/drawn.tape").path == str(home / "drawn.tape")
    assert checked("x", "~/y", place("a file")) == str(home / "y")
    assert checked("x", Path("~/y"), place("a file")) == home / "y"
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("path", ["a:b", "C:/rows", "x/s3://y", "./s3:/y", "c:/x"])
def test_what_only_resembles_a_url_is_a_path(path):
    assert checked("x", path, place("a file")) == path
