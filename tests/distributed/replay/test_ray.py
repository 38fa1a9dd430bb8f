"""Shards as Ray actors: the same as in this process, with processes that really die."""

import os
import pickle
import signal
import time

import numpy as np
import pytest

from replaylab import Field
from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.distributed.replay.ids import shard_of
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import FrameStack, Prioritized, Replay
from tests.distributed.replay.conftest import FIELDS, FLAG, steps
from tests.study.execution.test_study_run import wait_for

pytestmark = pytest.mark.no_sanitizer


def write(writer, first, count):
    """An environment worker in its own process."""
    for start in range(first, first + count, 5):
        writer.extend(**steps(start, 5))
    writer.flush()
    return os.getpid(), writer.stored, writer.lost_steps


def learn(reader, batches):
    """A learner in its own process."""
    counts = np.zeros(200)
    for _ in range(batches):
        batch = reader.sample(50)
        counts += np.bincount(batch.x.astype(int), minlength=200)
        reader.update_priorities(batch.id, priority=1.0 + batch.x % 2)
    reader.refresh()
    return os.getpid(), counts


def test_other_processes_write_and_learn_and_a_shard_is_killed(ray_here, tmp_path):
    options = RemoteOptions(snapshot=Snapshots(tmp_path / "snapshots", period=0.3))
    sampler = Prioritized(alpha=1.0, beta=1.0)
    with RemoteReplay(2000, FIELDS, shards=2, sampler=sampler, seed=0, options=options) as replay:
        assert isinstance(replay, Replay)
        worker, learner = (ray_here.remote(num_cpus=0)(task) for task in (write, learn))
        pid, stored, lost = ray_here.get(worker.remote(replay.writer(), 0, 200))
        assert (pid != os.getpid(), stored, lost, replay.size) == (True, 200, 0, 200)
        answers = ray_here.get([learner.remote(replay.reader(rank, 2), 40) for rank in range(2)])
        assert os.getpid() not in {pid for pid, _ in answers}
        batch = replay.sample(64)
        assert all(column.flags.writeable for column in batch.values())  # nothing is a view of the object store
        assert replay.probabilities(batch.id) == pytest.approx((1.0 + batch.x % 2) / 300, rel=1e-4)
        wait_for(lambda: (tmp_path / "snapshots" / "replay.json").exists())
        time.sleep(0.7)  # so that both shards save what they hold
        earlier = batch.id[shard_of(batch.id) == 1]
        actor = replay._clients[1].actor
        os.kill(ray_here.get(actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        writing = worker.remote(replay.writer(), 1000, 50)
        for _ in range(20):
            assert len(replay.sample(64).id) == 64
        _, stored, lost = ray_here.get(writing)
        assert stored + lost == 50
        wait_for(lambda: replay.stats().shards[1].live and replay.stats().losses == 1)
        reported = replay.stats()
        assert [shard.epoch for shard in reported.shards] == [0, 1]
        assert reported.size + reported.lost_steps >= 200 + stored
        assert replay.update_priorities(earlier, np.ones(len(earlier))) == 0
        replay.save(tmp_path / "saved")
        size = replay.size
    with RemoteReplay.load(tmp_path / "saved", shards=1) as loaded:
        assert loaded.size == size
        assert len(np.unique(loaded.sample(2000).x)) > size / 3
    with pytest.raises(StorageError, match="the shards of this replay have ended"):
        loaded.sample(2)


def test_large_rows_are_copied_out_of_shared_memory(ray_here):
    frame = Field((84, 84), np.uint8)
    fields = {"obs": frame, "reward": Field(), "next_obs": frame, "terminated": FLAG, "truncated": FLAG}
    options = {"transforms": [FrameStack(4)], "next_obs": "derived", "num_envs": 2, "shards": 2}
    with RemoteReplay(400, fields, **options) as replay:
        writer = replay.writer()
        for t in range(60):
            obs = np.full((2, 84, 84), t, np.uint8)
            flags = {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
            writer.add(obs=obs, next_obs=obs + 1, reward=np.full(2, t), **flags)
        writer.flush()
        batches = [replay.sample(rows) for rows in (32, 32, 32, 128, 128, 128, 128, 256, 256, 256)]
        for batch in batches:
            age = np.minimum(batch.reward[:, None], np.arange(3, -1, -1))
            assert np.array_equal(batch.obs[:, :, 0, 0], batch.reward[:, None] - age)
            assert np.array_equal(batch.next_obs[:, -1, 5, 5], batch.reward + 1)
            assert batch.obs.flags.writeable


def test_wrong_placements_and_versions(ray_here, monkeypatch):
    with pytest.raises(ConfigError, match='`placement` must be "spread", but got'):
        RemoteOptions(placement=["ab"])
    monkeypatch.setattr("replaylab.__version__", "0.0.1")
    with pytest.raises(ConfigError, match=r"^Node .* has replaylab .*, but 0\.0\.1 asks it for work; install that"):
        RemoteReplay(10, FIELDS, options=RemoteOptions(placement="spread"))


def test_a_closed_replay_starts_no_cluster(ray_here, monkeypatch):
    """Ray starts one for any call of an actor while there is none."""
    with RemoteReplay(100, {"x": Field()}, shards=1, seed=0) as replay:
        ids = replay.extend(x=np.arange(5.0))
        assert pickle.loads(pickle.dumps(replay.reader())).sample(2).id.shape == (2,)
        replay.sample(2)
    # Ray ends the shards a little later
    writer, reader = (pickle.loads(pickle.dumps(part)) for part in (replay.writer(), replay.reader()))
    refused = [lambda: replay.extend(x=np.arange(5.0)), lambda: replay.update_priorities(ids, ids), replay.stats]
    for call in (*refused, lambda: writer.extend(x=np.arange(5.0)), lambda: reader.sample(2)):
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()
    started = []
    monkeypatch.setattr(ray_here, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_here, "init", lambda *_args, **_options: started.append(None))
    for call in (replay.stats, lambda: replay.add(x=1), lambda: replay.probabilities([0]), lambda: replay.sample(2)):
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()
    assert not started
