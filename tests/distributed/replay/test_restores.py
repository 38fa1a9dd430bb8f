"""Replays come back from snapshots, onto as many shards and onto others."""

from unittest.mock import Mock

import numpy as np
import pytest

from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots, remote_replay
from replaylab.distributed.replay.shard import ActorLost, Shard
from replaylab.errors import SnapshotError, StorageError
from replaylab.replay import NStep, Prioritized, Replay, ReplayBuffer, Reservoir, Uniform
from tests.distributed.replay.conftest import EPISODES, episode, replay, spread
from tests.study.execution.test_study_run import wait_for

load = RemoteReplay.load


def filled(shards):
    """Six environments' episodes with random priorities."""
    options = {"fields": EPISODES, "transforms": [NStep(3, gamma=0.9)], "next_obs": "derived", "num_envs": 6}
    remote = replay(1200, shards=shards, sampler=Prioritized(alpha=0.5, beta=1.0), **options)
    rng = np.random.default_rng(0)
    for k in range(6):
        parts = [episode(100 * k + 1000 * e, 9) for e in range(6)]
        where = np.arange(9)[:, None] < 3 + np.arange(6)  # unequal lengths
        columns = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
        columns["truncated"] = np.arange(9)[:, None] == 2 + np.arange(6)
        ids = remote.extend(**columns, where=where)[where]
        remote.update_priorities(ids, rng.uniform(0.1, 4, len(ids)))
    remote.refresh()
    return remote


def rows(remote):
    """By first observation: what a batch shows of a step, and its probability."""
    shown = {}
    for _ in range(60):
        batch = remote.sample(200)
        for k, first in enumerate(batch.obs[:, 0].tolist()):
            values = [batch.reward[k], *batch.next_obs[k], batch.discount[k]]
            shown[first] = ([float(value) for value in values], float(batch.probability[k]))
    return shown


@pytest.mark.parametrize(("shards", "at_once"), [(3, 4096), (1, 4096), (2, 16), (5, 4096)])
def test_onto_as_many_shards_and_onto_others(tmp_path, local, shards, at_once, monkeypatch):
    monkeypatch.setattr(remote_replay, "ROWS_AT_ONCE", at_once)
    remote = filled(3)
    want, before = rows(remote), len(local.clients)
    remote.save(tmp_path)
    loaded = load(tmp_path, shards=shards)
    assert isinstance(loaded, Replay)
    got = rows(loaded)
    assert got.keys() == want.keys()
    assert loaded.size == remote.size == len(want)
    for first, (values, probability) in want.items():
        assert got[first][0] == values
        assert got[first][1] == pytest.approx(probability, rel=1e-4)
    sizes = [shard.size for shard in loaded.stats().shards]
    assert max(sizes) - min(sizes) <= 3 * 9 or shards == 3
    for client in loaded._clients:  # episodes stay complete, in order
        numbers = client.shard.buffer.columns["_episode"][: client.shard.buffer.size]
        assert (np.diff(np.flatnonzero(np.diff(numbers))) <= 9).all()
    assert all(shard.epoch == 64 for shard in loaded.stats().shards)
    assert (loaded.stats().added, loaded.capacity, loaded.sampler) == (0, 1200, remote.sampler)
    temporary = [client for client in local.clients[before:] if client.closed]
    assert len(temporary) == (0 if shards == 3 else 3)
    loaded.save(tmp_path)
    run, manifest = sorted(tmp_path.iterdir(), key=lambda path: path.suffix)  # nothing is left of the earlier one
    assert (run.name, manifest.name) == (f"run-{loaded.run}", "replay.json")
    assert rows(load(tmp_path, shards=2)).keys() == want.keys()


@pytest.mark.parametrize("options", [{}, {"retention": Reservoir(), "sampler": Uniform()}], ids=["fifo", "reservoir"])
def test_each_snapshot_is_read_once(tmp_path, monkeypatch, options):
    remote = replay(40, shards=4, **options)
    spread(remote, 0, 120, 12)
    remote.save(tmp_path)
    read, load_buffer = [], ReplayBuffer.load

    def loading(folder, **options):
        read.append(str(folder))
        return load_buffer(folder, **options)

    monkeypatch.setattr("replaylab.distributed.replay.shard.ReplayBuffer.load", loading)
    loaded = load(tmp_path, shards=3)
    assert sorted(folder[-7:] for folder in read if "shard" in folder) == [f"shard-{k}" for k in range(4)]
    assert set(loaded.sample(2000).x) == set(remote.sample(2000).x)


def test_a_folder_never_mixes_two_replays(tmp_path):
    """The earlier replay's snapshot stays until that of the later one is complete."""
    earlier = replay(shards=2)
    spread(earlier, 0, 100)
    earlier.save(tmp_path)
    remote = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e6))
    spread(remote, 1000, 100)
    remote._clients[0].shard.save(remote._clients[0].declaration.saving)
    assert len(list(tmp_path.glob("run-*/shard-0"))) == 2
    assert set(load(tmp_path).sample(2000).x.tolist()) == set(range(100))
    remote.save(tmp_path)
    assert len(list(tmp_path.glob("run-*"))) == 1
    assert set(load(tmp_path).sample(2000).x.tolist()) == set(range(1000, 1100))
    (missing,) = tmp_path.glob("run-*/shard-1/manifest.json")
    missing.unlink()
    with pytest.raises(SnapshotError, match="is not complete: it lacks a shard;"):
        load(tmp_path)


@pytest.mark.parametrize("shards", [2, 3])
def test_ids_from_before_a_restore_are_those_of_lost_shards(tmp_path, local, shards):
    remote = replay(shards=2)
    ids = [spread(remote, 0, 100)]
    remote.save(tmp_path)
    for _ in range(5):
        local.clients[0].die()
        ids.append(spread(remote, 0, 100))
    for _ in range(3):
        loaded = load(tmp_path, shards=shards)
        for before in ids:
            assert loaded.update_priorities(before, np.ones(100)) == 0
            assert not loaded.probabilities(before).any()
        assert loaded.stats().stale_updates == 100 * len(ids)
        ids.append(spread(loaded, 0, 100))


def test_nothing_is_saved_before_all_is_loaded(tmp_path, local, monkeypatch):
    """A snapshot in the same folder would remove the one that is being loaded."""
    filled(2).save(tmp_path)
    (earlier,) = tmp_path.glob("run-*")
    take_over, complete = Shard.take_over, []

    def taking_over(shard, *given):
        complete.append(earlier.exists())
        return take_over(shard, *given)

    monkeypatch.setattr(Shard, "take_over", taking_over)
    loaded = load(tmp_path, shards=3, options=RemoteOptions(snapshot=Snapshots(tmp_path, period=0.001)))
    assert all(complete)
    wait_for(lambda: list(tmp_path.glob("run-*")) == [tmp_path / f"run-{loaded.run}"])
    local.clients[-1].die()
    loaded.refresh(), loaded.refresh()
    assert loaded.stats().lost_steps == 0
    loaded.close()


def test_a_shard_that_dies_while_steps_move_or_are_saved(tmp_path, local, monkeypatch):
    remote = replay(shards=2)
    spread(remote, 0, 20)
    client = local.clients[1]
    call = client.call

    def dies(method, *arguments):
        if method == "save":
            client.die()
            client.call = call
        return call(method, *arguments)

    client.call = dies
    remote.save(tmp_path)  # the restarted one
    assert remote.stats().lost_steps == 10
    assert load(tmp_path).size == 10
    monkeypatch.setattr(remote_replay, "SECONDS_TO_SAVE", 0.05)
    client.die()
    client.held = True
    with pytest.raises(StorageError, match=r"a shard was lost while it was to be saved to .*, and was not restarted"):
        remote.save(tmp_path)
    monkeypatch.setattr(Shard, "export", Mock(side_effect=ActorLost("killed")))
    before = len(local.clients)
    with pytest.raises(StorageError, match="a shard ended before all had begun: killed"):
        load(tmp_path, shards=3)
    assert all(client.closed for client in local.clients[before:])
