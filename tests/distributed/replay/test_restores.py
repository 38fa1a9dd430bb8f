"""Guarantee 7: what comes back from snapshots, onto as many shards and onto others."""

from weakref import ref

import numpy as np
import pytest

from replaylab.distributed.replay import Snapshots
from replaylab.distributed.replay.shards.transport import ShardLost
from replaylab.errors import SnapshotError, StorageError
from replaylab.replay import NStep, Prioritized, Replay, ReplayBuffer, Reservoir, Uniform
from tests.distributed.replay.conftest import EPISODES, episode, load, look, lose, replay, steps
from tests.distributed.replay.in_process import InProcess, unable


def filled(shards, **options):
    options = {"fields": EPISODES, "transforms": [NStep(3, gamma=0.9)], "next_obs": "derived"} | options
    made, transport = replay(400, shards=shards, sampler=Prioritized(alpha=0.5, beta=1.0), **options)
    rng = np.random.default_rng(0)
    for k in range(20):
        ids = made.extend(**episode(100 * k, 3 + k % 7))
        made.update_priorities(ids, rng.uniform(0.1, 4, len(ids)))
    made.stats()
    return made, transport


def rows(made):
    """By first observation: everything a batch shows of a step, and its probability."""
    found = {}
    for _ in range(60):
        batch = made.sample(200)
        for k, first in enumerate(batch.obs[:, 0].tolist()):
            shown = [batch.reward[k], *batch.next_obs[k], batch.discount[k]]
            found[first] = ([float(value) for value in shown], float(batch.probability[k]))
    return found


@pytest.mark.parametrize("shards", [3, 1, 2, 5])
def test_onto_as_many_shards_and_onto_others(tmp_path, shards):
    made, _ = filled(3)
    want = rows(made)
    made.save(tmp_path)
    loaded = load(tmp_path, shards=shards)
    assert isinstance(loaded, Replay)
    got = rows(loaded)
    assert got.keys() == want.keys()
    assert loaded.size == made.size == len(want)
    for first, (shown, probability) in want.items():
        assert got[first][0] == shown
        assert got[first][1] == pytest.approx(probability, rel=1e-4)
    sizes = [one.size for one in loaded.stats().shards]
    assert max(sizes) - min(sizes) <= 9 or shards == 3
    assert all(one.epoch > 0 for one in loaded.stats().shards)
    assert (loaded.stats().added, loaded.capacity, loaded.sampler) == (made.stats().added, 400, made.sampler)
    again = tmp_path / "again"
    loaded.save(again)
    assert rows(load(again, shards=2)).keys() == want.keys()


@pytest.mark.parametrize("episodes", [True, False])
def test_a_new_shard_holds_one_old_one_at_a_time(tmp_path, monkeypatch, episodes):
    made, _ = filled(4) if episodes else replay(400, shards=4)
    if not episodes:
        made.extend(**steps(0, 100))
    made.save(tmp_path)
    held = []

    class Loaded(ReplayBuffer):
        @classmethod
        def load(cls, folder, **given):
            assert not any(one() for one in held)
            loaded = ReplayBuffer.load(folder, **given)
            held.append(ref(loaded))
            return loaded

    monkeypatch.setattr("replaylab.distributed.replay.shards.reinsertion.ReplayBuffer", Loaded)
    loaded = load(tmp_path, shards=3)
    assert loaded.size == made.size
    assert len(held) == 2 * 4 * 3


def test_saving_again_onto_another_number_leaves_nothing_of_the_former(tmp_path):
    made, _ = filled(3)
    made.save(tmp_path)
    loaded = load(tmp_path, shards=2)
    loaded.save(tmp_path)
    run, manifest = sorted(tmp_path.iterdir(), key=lambda one: one.suffix)
    assert manifest.name == "replay.json"
    assert sorted(one.name for one in run.iterdir()) == ["shard-0", "shard-1", "template"]


def test_a_folder_that_is_used_again_never_mixes_two_replays(tmp_path):
    """The former one's is there until the next one's is whole, and what begins with it is kept."""
    former, _ = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e9))
    former.extend(**steps(0, 100))
    former.save(tmp_path)
    made, _ = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    made.extend(**steps(1000, 100))
    made.tend(), made.tend()
    assert len(list(tmp_path.glob("run-*/shard-0"))) == 2

    def stored(loaded):
        return set(loaded.sample(2000).x.tolist())

    loaded = load(tmp_path)
    assert stored(loaded) == set(range(100))
    elsewhere = Snapshots(tmp_path / "elsewhere")
    loaded = load(tmp_path, transport=(dies := InProcess()), snapshot=elsewhere)
    for number in range(2):
        dies.shard(number).die()
    loaded.stats(), loaded.tend()
    assert stored(loaded) == set(range(100))
    look(made, 3)
    assert len(list(tmp_path.glob("run-*"))) == 1
    assert stored(load(tmp_path)) == set(range(1000, 1100))


@pytest.mark.parametrize("shards", [2, 3])
def test_ids_from_before_a_restore_are_of_lost_shards(tmp_path, shards):
    """Of shards that were lost after the snapshot, too, and of what was loaded from the same one before."""
    made, transport = replay(shards=2)
    ids = [made.extend(**steps(0, 100))]
    made.save(tmp_path)
    for _ in range(12):
        lose(made, transport, 0)
        ids.append(made.extend(**steps(0, 100)))
    assert made._pool.slots[0].epoch == 12
    for _ in range(3):
        loaded = load(tmp_path, shards=shards)
        for before in ids:
            assert loaded.update_priorities(before, np.ones(100)) == 0
            assert not loaded.probabilities(before).any()
        assert loaded.stats().stale_updates == 100 * len(ids)
        ids.append(loaded.extend(**steps(0, 100)))


def test_a_snapshot_that_cannot_be_written_to_is_loaded_with_a_warning(tmp_path, monkeypatch, caplog):
    made, _ = replay(shards=2)
    made.extend(**steps(0, 100))
    made.save(tmp_path)

    def refused(*_):
        raise StorageError("read only")

    monkeypatch.setattr("replaylab.distributed.replay.snapshots._write_manifest", refused)
    loaded = load(tmp_path)
    loaded.tend()
    assert loaded.size == 100
    assert caplog.messages == [f"what is loaded from {tmp_path} again may give out the same ids: read only"]


def test_a_shard_that_is_missing_is_no_empty_one(tmp_path):
    made, _ = replay(shards=2)
    made.extend(**steps(0, 20))
    made.save(tmp_path)
    (missing,) = tmp_path.glob("run-*/shard-1/manifest.json")
    missing.unlink()
    with pytest.raises(SnapshotError, match="is not complete: it lacks shard 1;"):
        load(tmp_path)


def test_environments_keep_their_episodes(tmp_path):
    made, _ = filled(2, num_envs=None)
    made.save(tmp_path)
    envs, _ = replay(400, EPISODES, num_envs=3, transforms=[NStep(2, gamma=1.0)], shards=2, sampler=Uniform())
    for k in range(5):
        parts = [episode(100 * k + 1000 * e, 6) for e in range(3)]
        envs.extend(**{name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]})
    want = rows(envs)
    envs.save(tmp_path)
    assert (
        rows(load(tmp_path, shards=3)).items()
        >= {first: (shown, pytest.approx(p)) for first, (shown, p) in want.items()}.items()
    )


def test_a_lost_shard_begins_from_what_was_saved_over_the_snapshot_it_was_loaded_from(tmp_path):
    made, _ = replay(200, shards=2)
    made.extend(**steps(0, 60))
    made.save(tmp_path / "a")
    made.close()
    transport = InProcess()
    loaded = load(tmp_path / "a", transport=transport, snapshot=Snapshots(tmp_path / "b", period=1_000.0))
    loaded.save(tmp_path / "a")
    transport.shard(0).die()
    for _ in range(5):
        loaded.sample(4), loaded.tend()
    assert loaded.size == 60
    assert loaded.stats().lost_steps == 0


def test_a_reservoir_and_others(tmp_path):
    made, _ = replay(30, shards=3, retention=Reservoir(), sampler=Uniform())
    made.extend(**steps(0, 200))
    made.save(tmp_path)
    loaded = load(tmp_path, shards=2)
    assert loaded.size == 30
    assert loaded.stats().added == 200


def test_a_shard_that_dies_while_it_is_saved(tmp_path):
    """The one that comes in its place is saved."""
    made, transport = replay(shards=2)
    made.extend(**steps(0, 20))
    call = transport.shard(1).call

    def dies(method, *arguments):
        if method == "save":
            transport.shard(1).die()
        return call(method, *arguments)

    transport.shard(1).call = dies
    made.save(tmp_path)
    assert made.stats().lost_steps == 10
    assert load(tmp_path).size == 10


def test_a_shard_in_whose_place_none_comes_cannot_be_saved(tmp_path, monkeypatch):
    made, transport = replay(shards=2)
    made.extend(**steps(0, 20))
    monkeypatch.setattr("replaylab.distributed.replay.snapshots.SECONDS_TO_COME", 0.1)
    monkeypatch.setattr(transport, "start", unable(transport.start, ShardLost("no room")))
    transport.shard(1).die()
    with pytest.raises(StorageError, match=r"was lost while it was to be saved to .*, and none has come in its place"):
        made.save(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("replaylab.distributed.replay.shards.shard_pool.PAUSE", 0.0)
    made.save(tmp_path)
    assert load(tmp_path).size == 10
