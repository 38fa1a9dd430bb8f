"""Shards as Ray actors: the same as in this process, with processes that really die."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from replaylab import Field
from replaylab.distributed.replay import Limiter, RemoteOptions, RemoteReplay, Snapshots
from replaylab.errors import ConfigError, OverSizeError, StorageError
from replaylab.replay import Prioritized, Replay, Uniform
from tests.distributed.replay.conftest import FIELDS, steps
from tests.study.execution.test_study_run import wait_for

pytestmark = pytest.mark.no_sanitizer


def write(writer, first, count, episode=5):
    """Task of an environment worker, in its own process."""
    for start in range(first, first + count, episode):
        writer.extend(**steps(start, episode, length=episode))
    writer.flush()
    return os.getpid()


def test_writers_elsewhere_a_learner_here_and_shards_that_are_killed(ray_here, tmp_path):
    """By `ray.kill`, and by kill -9 of the process: every batch is whole, every step of a live shard is there."""
    snapshot = Snapshots(tmp_path / "snapshots", period=0.2)
    sampler, options = Prioritized(alpha=1.0, beta=1.0), RemoteOptions(prefetch=2, snapshot=snapshot)
    with RemoteReplay(2000, FIELDS, shards=2, sampler=sampler, seed=0, options=options) as made:
        assert isinstance(made, Replay)
        task = ray_here.remote(num_cpus=0)(write)
        assert ray_here.get(task.remote(made.writer(), 0, 200)) != os.getpid()
        assert made.size == 200
        batch = made.sample(64)
        assert all(column.flags.owndata or column.base is not None for column in batch.values())
        assert all(column.flags.writeable for column in batch.values())  # nothing is a view of the object store
        assert made.update_priorities(batch.id, batch.x) == 64
        assert made.probabilities(batch.id).sum() > 0
        wait_for(lambda: (tmp_path / "snapshots" / "replay.json").exists())
        old = [slot.client.actor for slot in made._pool.slots]
        epoch_before = batch.id[batch.id >> 40 == 1]
        pid = ray_here.get(old[0].__ray_call__.remote(lambda _: os.getpid()))
        for number, kill in enumerate((lambda: os.kill(pid, signal.SIGKILL), lambda: ray_here.kill(old[1]))):
            kill()
            for _ in range(20):
                assert len(made.sample(64).id) == 64
            writing = task.remote(made.writer(), 1000 * (number + 1), 50)
            wait_for(lambda number=number: made.stats().shards[number].live and made.stats().losses == number + 1)
            ray_here.get(writing)
        reported = made.stats()
        assert [one.epoch for one in reported.shards] == [1, 1]
        assert reported.size + reported.lost_steps >= 300
        assert made.update_priorities(epoch_before, np.ones(len(epoch_before))) == 0
        made.save(tmp_path / "saved")
        size = made.size
    with RemoteReplay.load(tmp_path / "saved", shards=1, options=RemoteOptions(strict=True)) as loaded:
        assert loaded.size == size
        assert len(np.unique(loaded.sample(2000, progress=1.0).x)) > size / 3


def test_what_ray_cannot_do_is_said_in_one_line(ray_here):
    with pytest.raises(ConfigError, match="names nodes that the cluster has not: ab"):
        RemoteReplay(10, FIELDS, shards=1, options=RemoteOptions(placement=["ab"]))
    with pytest.raises(ConfigError, match="`placement` must be None"):
        RemoteReplay(10, FIELDS, shards=2, options=RemoteOptions(placement="nowhere"))
    big = {"x": Field((1024, 1024))}
    here = RemoteOptions(placement=[ray_here.nodes()[0]["NodeID"]])
    with RemoteReplay(4, big, shards=1, options=here, sampler=Uniform()) as made:
        made.add(x=np.ones((1024, 1024), np.float32))
        with pytest.raises(OverSizeError, match="use a smaller batch_size or prefetch, or start Ray with a larger"):
            made.sample(16)
        assert made.stats().shards[0].node == ray_here.nodes()[0]["NodeID"]


CLOSED = """
import ray
from replaylab import Field
from replaylab.distributed.replay import RemoteReplay
from replaylab.errors import StorageError

with RemoteReplay(100, {"x": Field()}, shards=1, seed=0) as made:
    for x in range(5):
        made.add(x=x)
calls = (made.stats, lambda: made.add(x=1), lambda: made.update_priorities([0], [1.0]), lambda: made.sample(2))
for call in calls:
    try:
        call()
    except StorageError as error:
        assert "the shards of this replay have ended" in str(error)
        print("told")
assert not ray.is_initialized()
"""


def test_what_was_closed_asks_for_no_cluster(ray_here, monkeypatch):
    """Ray starts one for any call of an actor while there is none."""
    with RemoteReplay(100, {"x": Field()}, shards=1, seed=0) as made:
        made.extend(x=np.arange(5.0))
    started = []
    monkeypatch.setattr(ray_here, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_here, "init", lambda *_args, **_options: started.append(None))
    calls = (made.stats, lambda: made.add(x=1), lambda: made.update_priorities([0], [1.0]), lambda: made.sample(2))
    for call in calls:
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()
    assert not started


@pytest.mark.slow
def test_what_was_closed_starts_no_cluster_again():
    """In its own process, whose Ray the replay has started and stopped."""
    ended = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, check=False, timeout=200)
    assert ended.stdout.split().count("told") == 4, ended.stderr


def test_without_a_cluster(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    ended = []
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(None))
    with pytest.raises(ConfigError, match=r"No Ray cluster answered at 127\.0\.0\.1:1"):
        RemoteReplay(10, FIELDS, options=RemoteOptions(address="127.0.0.1:1"))
    opened = []
    monkeypatch.setattr(ray, "init", lambda address, **_: opened.append(address) or ray_fails())
    with pytest.raises(ConfigError, match="Ray cannot be started on this machine: no room"):
        RemoteReplay(10, FIELDS)
    assert opened == ["local"]
    assert len(ended) == 2


def ray_fails():
    raise OSError("no room")


@pytest.mark.slow
def test_nothing_grows(ray_here):
    """Resident memory and shared memory after a minute of adds, draws and feedback, beside those after ten seconds."""
    pixels = {"obs": Field((4, 84, 84), np.uint8), "reward": Field()}

    def memory():
        """This process's own bytes, and those of the object store that it has touched."""
        lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        return [int(lines[kind].split()[0]) * 1024 for kind in ("RssAnon", "RssShmem")]

    options = RemoteOptions(prefetch=2, limiter=Limiter(1e6))
    with RemoteReplay(2000, pixels, shards=2, sampler=Prioritized(beta=0.5), options=options) as made:
        writer = made.writer()
        rows = {"obs": np.zeros((32, 4, 84, 84), np.uint8), "reward": np.zeros(32)}
        before = None
        begun = time.monotonic()
        while time.monotonic() - begun < 60:
            writer.extend(**rows)
            batch = made.sample(32)
            made.update_priorities(batch.id, batch.reward)
            if before is None and time.monotonic() - begun > 10:
                before = memory()
        writer.flush()
        assert before is not None
        assert all(now < 1.2 * then + 2**25 for now, then in zip(memory(), before, strict=True))
