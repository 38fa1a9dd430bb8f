"""Writers store every step once, in the right shard and episode, unless a shard is lost."""

import pickle

import numpy as np
import pytest

from replaylab import Field
from replaylab.distributed.replay import writer as writer_module
from replaylab.distributed.replay.ids import shard_of
from replaylab.errors import ConfigError, FieldError, PriorityError, ShapeError, StorageError
from replaylab.replay import NStep, ReplayBuffer, Uniform
from tests.distributed.replay.conftest import EPISODES, FLAG, episode, replay, steps, stored

THREE = {"fields": EPISODES, "transforms": [NStep(3, gamma=1.0)], "sampler": Uniform()}


def step(k):
    """One step of `FIELDS`."""
    return {name: value[0] for name, value in steps(k, 1).items()}


def unrolls(length, each=4):
    """An episode of one environment that does not end, in unrolls."""
    columns = {name: value[:, None] for name, value in episode(0, length, ends=False).items()}
    return [{name: value[k : k + each] for name, value in columns.items()} for k in range(0, length, each)]


def looked_ahead(client):
    """Of each step in a shard, the observation three steps on, or that at the end of its episode."""
    buffer = client.shard.buffer
    return buffer.as_batch(buffer.stored_ids()[0]).next_obs[:, 0].tolist()


def test_unrolls_go_to_the_shards_in_turn(local):
    remote = replay(shards=3)
    ids = np.concatenate([remote.extend(**steps(5 * k, 5)) for k in range(4)])
    assert shard_of(ids).tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [0] * 5
    assert stored(local, 3) == [[0, 1, 2, 3, 4, 15, 16, 17, 18, 19], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    remote = replay(64, shards=4)  # many steps at once
    remote.extend(**steps(0, 64))
    assert [len(values) for values in stored(local, 4)] == [16] * 4


@pytest.mark.parametrize(("envs", "shards"), [(4, 2), (5, 3), (8, 8), (3, 1)])
def test_an_environment_stores_in_one_shard(local, envs, shards):
    remote = replay(shards=shards, num_envs=envs, **THREE)
    writers = [remote.writer(part) for part in np.array_split(np.arange(envs), 2)]
    for writer, part in zip(writers, np.array_split(np.arange(envs), 2), strict=True):
        parts = [episode(1000 * int(e), 20) for e in part]
        writer.extend(**{name: np.stack([p[name] for p in parts], axis=1) for name in parts[0]})
        writer.flush()
    homes = [sorted({int(x[0]) // 1000 for x in values}) for values in stored(local, shards, "obs")]
    assert homes == [[e for e in range(envs) if e * shards // envs == shard] for shard in range(shards)]
    with pytest.raises(ConfigError, match=f"`envs` must be different numbers from 0 to {envs - 1}"):
        remote.writer([1, 1])


def test_wrong_steps_are_refused_at_once():
    remote = replay(shards=2)
    writer = remote.writer()
    with pytest.raises(FieldError, match="terminated"):
        writer.add(x=1.0)
    with pytest.raises(ShapeError):
        writer.extend(**steps(0, 5) | {"x": np.zeros(4)})
    with pytest.raises(FieldError):
        remote.add(x=1.0)
    assert writer.unacknowledged == len(remote) == 0


@pytest.mark.parametrize(("linger", "sent"), [(60.0, 2), (0.0, 10)])
def test_single_steps_travel_together(local, monkeypatch, linger, sent):
    monkeypatch.setattr(writer_module, "LINGER", linger)
    remote = replay(shards=1)
    writer = remote.writer(unroll=4)
    for k in range(10):
        writer.add(**step(k))
    assert 2 <= local.clients[0].calls.count("add") <= sent
    writer.flush()
    assert stored(local) == [list(range(10))]
    assert (writer.stored, writer.lost_steps, writer.unacknowledged) == (10, 0, 0)


def test_a_writer_waits_for_the_oldest_of_its_window():
    remote = replay(shards=2)
    writer, given = remote.writer(window=3), steps(0, 5)
    for _ in range(10):
        writer.extend(**given)
        assert writer.unacknowledged <= 3
    given["x"][:] = -1  # given arrays may be overwritten at once
    with pytest.raises(ConfigError, match="call its flush"):
        pickle.dumps(writer)
    with pytest.raises(ConfigError, match=r"send its reader\(\) or its writer\(\)"):
        pickle.dumps(remote)
    writer.flush()
    assert len(remote) == 50
    assert set(remote.sample(100).x) == {0, 1, 2, 3, 4}


def test_initial_td_errors():
    remote = replay(shards=2)
    writer, errors = remote.writer(), np.arange(1.0, 21.0)
    writer.extend(**steps(0, 20), td_error=errors)
    writer.flush()
    batch = remote.sample(400)
    assert batch.probability == pytest.approx(errors[batch.x.astype(int)] / errors.sum(), rel=1e-4)
    with pytest.raises(PriorityError):
        writer.extend(**steps(0, 2), td_error=[1.0, np.nan])
    with pytest.raises(ShapeError):
        writer.extend(**steps(0, 2), td_error=[1.0])


def test_a_copy_of_a_writer_begins_new_episodes(local):
    remote = replay(shards=1, num_envs=1, **THREE)
    first, second = unrolls(8)
    writer = remote.writer()
    writer.extend(**first), writer.flush()
    copy = pickle.loads(pickle.dumps(writer))
    copy.extend(**second), copy.flush()
    assert looked_ahead(local.clients[0]) == [3, 4, 4, 4, 7, 8, 8, 8]


def test_lost_unrolls_are_counted_and_cut_episodes(local):
    """Two of five unrolls are lost with the shard: no n-step return spans the gap."""
    remote = replay(shards=1, num_envs=1, **THREE)
    writer, parts = remote.writer(), unrolls(20)
    for part in parts[:4]:
        writer.extend(**part)
    local.clients[0].die(answered=2)
    writer.extend(**parts[4]), writer.flush()
    assert (writer.stored, writer.lost_steps) == (12, 8)
    assert looked_ahead(local.clients[0]) == [19, 20, 20, 20]
    assert remote.stats().size == 4


def test_an_unroll_lost_on_its_way_cuts_the_episode(local):
    """The shard lives, and misses one of three unrolls."""
    writer = replay(shards=1, num_envs=1, **THREE).writer()
    for part in unrolls(12):
        writer.extend(**part)
    local.clients[0].queue.pop(1).done = True
    writer._sent.clear()
    local.clients[0].work()
    assert looked_ahead(local.clients[0]) == [3, 4, 4, 4, 11, 12, 12, 12]


def test_a_writer_waits_for_a_lost_shard_and_gives_up(local, monkeypatch):
    remote = replay(shards=1)
    writer, other = remote.writer(), remote.writer()
    client = local.clients[0]
    writer.extend(**steps(0, 5))
    client.die()
    client.held = True
    monkeypatch.setattr(writer_module, "PATIENCE", 0.05)
    with pytest.raises(StorageError, match="shard 0 was lost and not restarted within"):
        writer.flush()
    client.held = False
    writer.extend(**steps(5, 5)), writer.flush()
    assert (writer.stored, writer.lost_steps) == (5, 5)
    remote.close()
    for call in (lambda: writer.extend(**steps(0, 5)), lambda: (other.add(**step(0)), other.flush())):
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_masks_and_ends_are_those_of_one_buffer(local, shards):
    """Writers of three environments and of one take turns with another writer of the last one."""
    random = np.random.default_rng(shards)
    for _ in range(8):
        remote = replay(shards=shards, num_envs=4, **THREE)
        single = ReplayBuffer(1000, EPISODES, num_envs=4, transforms=THREE["transforms"])
        writers = [remote.writer([0, 1, 2]), remote.writer([3])]
        for k in range(8):
            shape = (random.integers(1, 6), 4)
            obs = (100 * k + np.arange(4 * shape[0]).reshape(shape))[..., None] + np.zeros(2)
            given = {"obs": obs, "next_obs": obs + 0.5, "reward": obs[..., 0], "where": random.random(shape) < 0.7}
            given |= {"terminated": random.random(shape) < 0.2, "truncated": random.random(shape) < 0.1}
            left = random.random(4) < 0.1
            if k == 4:
                writers[1] = remote.writer([3])
                single.end_episode(np.arange(4) == 3)
            single.extend(**given), single.end_episode(left)
            for writer, envs in zip(writers, (slice(0, 3), slice(3, 4)), strict=True):
                writer.extend(**{name: value[:, envs] for name, value in given.items()})
                writer.end_episode(left[envs]), writer.flush()
        rows = {}
        for client in local.clients[-shards:]:
            rows |= rows_of(client.shard.buffer)
        assert rows == rows_of(single)


def rows_of(buffer):
    batch = buffer.as_batch(buffer.stored_ids()[0].reshape(-1))
    return {x: (y, r) for x, y, r in zip(batch.obs[:, 0], batch.next_obs[:, 0], batch.reward, strict=True)}


@pytest.mark.parametrize("derived", ["stored", "derived"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled", None])
def test_autoreset_modes_are_those_of_one_buffer(local, mode, derived):
    fields = {"obs": Field(), "next_obs": Field(), "terminated": FLAG, "truncated": FLAG}
    options = {"num_envs": 1, "autoreset": mode, "next_obs": derived}
    remote = replay(fields=fields, shards=1, sampler=Uniform(), **options)
    single = ReplayBuffer(1000, fields, **options)
    x = np.arange(9.0)[:, None]
    over = {"terminated": np.isin(np.arange(9), [2, 6])[:, None], "truncated": np.zeros((9, 1), bool)}
    given = {"obs": x, "next_obs": x + 1} | over
    final = {"final_obs": np.where(over["terminated"], x + 100, 0)} if mode == "same_step" else {}
    assert np.array_equal(remote.extend(**given, **final), single.extend(**given, **final))
    nothing = {name: column[:0] for name, column in (given | final).items()}
    assert remote.extend(**nothing).shape == single.extend(**nothing).shape == (0, 1)
    buffer = local.clients[0].shard.buffer
    for name in ("obs", "next_obs"):
        assert np.array_equal(buffer.get(buffer.stored_ids()[0])[name], single.get(single.stored_ids()[0])[name])


def test_nested_fields():
    fields = {"obs": {"a": Field((2,)), "b": (Field(), Field((), int))}, "terminated": FLAG, "truncated": FLAG}
    remote = replay(fields=fields, shards=2, num_envs=2, sampler=Uniform())
    for k in range(3):
        obs = {"a": np.ones((2, 2)), "b": (np.zeros(2), np.arange(2) + 2 * k)}
        remote.add(obs=obs, terminated=np.zeros(2, bool), truncated=np.zeros(2, bool))
    batch = remote.sample(50)
    assert batch.obs["a"].shape == (50, 2)
    assert sorted(set(batch.obs["b"][1].tolist())) == [0, 1, 2, 3, 4, 5]
