"""Shards that die: draws continue, lost steps are counted, and the rest follows the exact distribution."""

import re
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
from scipy import stats

from replaylab.distributed.replay import Snapshots, reader
from replaylab.distributed.replay.ids import shard_of
from replaylab.errors import ConfigError, OverSizeError, ReplayError, StorageError
from replaylab.replay import Field, Hindsight, NStep, ReplayBuffer, Uniform
from tests.distributed.replay.conftest import EPISODES, FLAG, replay, save, spread, steps
from tests.study.execution.test_study_run import wait_for


def test_a_batch_is_drawn_from_the_live_shards(local):
    remote = replay(shards=4)
    ids = spread(remote, 0, 400, 8)
    remote.update_priorities(ids, priority=1 + np.arange(400.0))
    remote.sample(64)
    local.clients[2].die()
    local.clients[2].held = True
    counts = np.zeros(400)
    for _ in range(200):
        batch = remote.sample(64)
        assert batch.id.shape == batch.weight.shape == batch.x.shape == (64,)
        if not (shard_of(batch.id) == 2).any():
            counts += np.bincount(batch.x.astype(int), minlength=400)
    distribution = (1 + np.arange(400.0)) * (shard_of(ids) != 2)
    assert batch.probability == pytest.approx((distribution / distribution.sum())[batch.x.astype(int)], rel=1e-4)
    live = distribution > 0
    assert stats.chisquare(counts[live], distribution[live] / distribution.sum() * counts.sum()).pvalue > 1e-7
    reported = remote.stats()
    assert [shard.live for shard in reported.shards] == [True, True, False, True]
    assert reported.losses == 1
    local.clients[2].held = False
    for _ in range(2):
        reported = remote.stats()
    lost = int((shard_of(ids) == 2).sum())
    assert (reported.losses, reported.lost_steps, reported.size, reported.added) == (1, lost, 400 - lost, 400)
    assert [shard.epoch for shard in reported.shards] == [0, 0, 1, 0]
    again = spread(remote, 0, 100)
    remote.refresh()
    assert remote.update_priorities(again, priority=np.full(100, 400.0)) == 100
    remote.refresh()
    assert any((shard_of(remote.sample(64).id) == 2).any() for _ in range(80))


def test_losses_are_counted_once_with_what_was_stored_since(local):
    """The restarted shard is heard of before the call that draws the next batches fails."""
    remote = replay(shards=1)
    spread(remote, 0, 100)
    remote.sample(8)
    local.clients[0].die()
    writer = remote.writer()
    writer.extend(**steps(0, 50)), writer.flush()
    for _ in range(2):
        reported = remote.stats()
        assert (reported.size, reported.losses, reported.lost_steps, reported.added) == (50, 1, 100, 150)
        remote.sample(8)


def test_answers_of_a_replaced_shard_are_refused(local):
    """It was cut off and replaced, and its late answer is of the earlier epoch."""
    remote = replay(shards=2)
    spread(remote, 0, 100)
    remote.refresh()
    slot = remote._slots[0]
    old = slot.tally
    assert slot.hear(old._replace(epoch=1, serial=1, next_id=0))
    assert not slot.hear(old._replace(serial=old.serial + 5))
    assert (slot.lost_steps, slot.tally.epoch) == (50, 1)
    assert slot.hear(old._replace(epoch=1, serial=0, size=77))  # late, but of this shard
    assert slot.tally.serial == 1


def test_all_shards_die_at_once(local, monkeypatch):
    remote = replay(shards=2)
    spread(remote, 0, 48)
    for client in local.clients:
        client.die()
    with pytest.raises(LookupError, match="0 steps are stored in all shards"):
        remote.sample(8)
    spread(remote, 0, 48)
    assert len(remote.sample(8).id) == 8
    monkeypatch.setattr(reader, "PATIENCE", 0.05)
    for client in local.clients:
        client.die()
        client.held = True
    remote._group = remote._ahead = None
    with pytest.raises(StorageError, match="no shard was restarted within"):
        remote.sample(8)


def test_a_lost_shard_restarts_from_its_snapshot(tmp_path, local, caplog):
    remote = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e6))
    ids = spread(remote, 0, 100)
    remote.update_priorities(ids, priority=1 + np.arange(100.0))
    remote.refresh()
    save(local)
    before = remote.probabilities(ids)
    remote._own_writer._turn = 1
    remote.extend(**steps(100, 5)), remote.refresh()
    local.clients[1].die()
    remote.stats()
    reported = remote.stats()
    assert (reported.shards[1].epoch, reported.size, reported.lost_steps, reported.added) == (1, 100, 5, 105)
    assert remote.probabilities(ids)[shard_of(ids) == 1].sum() == 0  # ids of the earlier epoch
    now = ids + (1 << 45) * (shard_of(ids) == 1)
    assert remote.probabilities(now) == pytest.approx(before, rel=1e-5)
    for file in tmp_path.glob("run-*/shard-0/state-*"):
        file.write_bytes(b"")
    local.clients[0].die()
    remote.refresh()
    reported = remote.stats()
    assert reported.shards[0].live
    assert (reported.size, reported.lost_steps) == (50, 55)
    assert "shard 0 starts empty, since its snapshot cannot be read" in caplog.text


def _costs(achieved, desired, info):
    return -np.ones(len(achieved))


def _never(achieved, desired, info):
    return np.zeros(len(achieved), bool)


def test_functions_of_transforms_survive_a_restart(tmp_path, local):
    """No snapshot holds them: the declaration of the shard does."""
    goals = {name: Field((1,)) for name in ("observation", "achieved_goal", "desired_goal")}
    fields = {"obs": goals, "reward": Field(), "next_obs": goals, "terminated": FLAG, "truncated": FLAG}
    options = {"transforms": [Hindsight(_costs, _never)], "sampler": Uniform(), "num_envs": 2}
    remote = replay(400, fields, shards=2, snapshot=Snapshots(tmp_path, period=1e6), **options)
    seen, ends = {name: np.ones((50, 2, 1)) for name in goals}, np.arange(100).reshape(50, 2) % 5 == 4
    remote.extend(obs=seen, reward=np.ones((50, 2)), next_obs=seen, terminated=ends, truncated=np.zeros((50, 2), bool))
    save(local)
    local.clients[1].die()
    remote.refresh()
    assert (remote.stats().shards[1].epoch, remote.stats().shards[1].size) == (1, 50)
    assert remote.sample(64).reward.shape == (64,)


def size_in(folder):
    try:
        return ReplayBuffer.load(folder).size
    except ReplayError:  # it is being written
        return 0


def test_shards_save_themselves_in_the_background(tmp_path, local):
    remote = replay(shards=2, snapshot=Snapshots(tmp_path / "there", period=0.05))
    spread(remote, 0, 100)
    wait_for(lambda: (tmp_path / "there" / "replay.json").exists())
    saving = local.clients[0].declaration.saving
    wait_for(lambda: sum(size_in(saving.folder_of(number)) for number in range(2)) == 100)
    for client in local.clients:
        client.die()
    remote.refresh()
    assert remote.size == 100
    (tmp_path / "there").rename(tmp_path / "moved")
    (tmp_path / "there").touch()
    wait_for(lambda: any(shard.snapshot_error for shard in remote.stats().shards))
    errors = [shard.snapshot_error for shard in remote.stats().shards if shard.snapshot_error]
    assert re.search(r"cannot be (written|read|looked up)", errors[0])
    (tmp_path / "there").unlink()
    wait_for(lambda: not any(shard.snapshot_error for shard in remote.stats().shards))
    remote.close()


def test_wrong_options():
    wrong = {
        "`shards` must be": {"shards": 2000},
        "every shard must hold one step of every environment": {"capacity": 10, "shards": 4, "num_envs": 3},
        "`shards` must be at most `num_envs` if transforms": {"shards": 2, "transforms": [NStep(3)]},
        "`snapshot` must be Snapshots": {"snapshot": "folder"},
        "`shards` must be a whole number": {"shards": "x"},
        "`min_size` must be at most the capacity": {"min_size": 2000},
    }
    for message, options in wrong.items():
        with pytest.raises(ConfigError, match=message):
            replay(fields=EPISODES, **options)


def test_the_shards_of_a_node_need_memory_together(local, monkeypatch):
    nbytes = replay(shards=2).stats().shards[0].nbytes
    monkeypatch.setattr("replaylab.distributed.replay.shard.machine_memory", lambda: int(1.5 * nbytes))
    replay(shards=1, capacity=500)
    with pytest.raises(OverSizeError, match=r"^2 shards on node \S+ need \S+ MiB together, but it has \S+ MiB; use a "):
        replay(shards=2)
    assert all(client.closed for client in local.clients[-2:])


def test_a_folder_for_snapshots_must_be_writable_and_shared(tmp_path, local):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/there/\S+ cannot be written: .*[Nn]ot a directory"):
        replay(snapshot=Snapshots(tmp_path / "file" / "there"))
    assert local.clients == []
    elsewhere = {"folder": tmp_path / "local"}  # as on a node on which the folder is another one
    local.declare = lambda declared: replace(declared, saving=replace(declared.saving, **elsewhere))
    with pytest.raises(StorageError, match=r"^`snapshot` must name a folder that all nodes share, but node \S+ does"):
        replay(snapshot=Snapshots(tmp_path / "shared"))


def test_a_draw_that_waits_ends_with_the_replay(local):
    remote, raised = replay(shards=1), []
    local.clients[0].die()
    local.clients[0].held = True

    def draw():
        try:
            remote.sample(8)
        except StorageError as error:
            raised.append(str(error))

    thread = Thread(target=draw)
    thread.start()
    wait_for(lambda: remote._slots[0].lost)
    remote.close()
    thread.join(10)
    assert raised == ["the shards of this replay have ended; create it again, or load a snapshot"]
