"""Laws 4 and 6: what happens when shards die."""

from dataclasses import replace
from threading import Event
from time import sleep

import numpy as np
import pytest
from scipy import stats

from replaylab.distributed.replay import Snapshots
from replaylab.distributed.replay.supervisor import PERIOD
from replaylab.errors import ConfigError, OverSizeError, StorageError
from replaylab.replay import Field, FrameStack, Hindsight, Uniform
from tests.distributed.replay.conftest import replay, steps
from tests.distributed.replay.in_process import InProcess, unable


def test_a_batch_is_topped_up_from_live_shards_in_the_same_call():
    made, transport = replay(shards=4, prefetch=2)
    ids = made.extend(**steps(0, 400))
    made.update_priorities(ids, priority=1 + np.arange(400.0))
    made.sample(64)
    transport.shard(2).die()
    counts = np.zeros(400)
    for _ in range(200):
        batch = made.sample(64)
        assert batch.id.shape == batch.weight.shape == batch.x.shape == (64,)
        assert not (batch.id >> 40 == 2).any()
        counts += np.bincount(batch.x.astype(int), minlength=400)
    law = (1 + np.arange(400.0)) * (ids >> 40 != 2)
    assert batch.probability == pytest.approx((law / law.sum())[batch.x.astype(int)], rel=1e-4)
    live = law > 0
    assert stats.chisquare(counts[live], law[live] / law.sum() * counts.sum()).pvalue > 1e-7
    told = made.stats()
    assert (told.losses, told.lost_steps, told.size, told.added) == (1, 100, 300, 400)
    assert 0 < told.topped_up <= 3 * 64
    assert [one.epoch for one in told.shards] == [0, 0, 1, 0]


def test_the_learner_does_not_wait_for_the_shard_that_takes_the_place():
    class Slow(InProcess):
        def start(self, declaration):
            assert declaration.epoch == 0 or may_start.wait(20)
            return super().start(declaration)

    may_start = Event()
    made, transport = replay(shards=2, prefetch=3, transport=Slow(background=True))
    with made:
        made.extend(**steps(0, 100))
        made.sample(32)
        transport.shard(1).die()
        for _ in range(6):
            assert not (made.sample(32).id >> 40 == 1).any()
        may_start.set()
        made._fleet.places[1].begun.result()
        assert [one.epoch for one in made.stats().shards if one.live] == [0]
        made.tend()
        assert [one.epoch for one in made.stats().shards if one.live] == [0, 1]


def test_a_replay_that_is_closed_while_a_shard_starts_leaves_none():
    made, transport = replay(shards=2, transport=InProcess(background=True))
    transport.shard(0).die()
    made.stats()
    made.close()
    assert all(client.dead for client in transport.clients)
    assert len(transport.clients) == 3


def test_answers_of_a_shard_that_was_given_up_are_refused():
    """It was only cut off, and goes on running: what it answers is of a former epoch."""
    made, transport = replay(shards=2, prefetch=1)
    made.extend(**steps(0, 100))
    made.sample(32)
    old = transport.shard(0)
    made._fleet.lose(made._fleet.places[0], old, OSError("cut off"))
    old.dead = False
    batch = made.sample(32)  # asked of the old one among others
    assert not ((batch.id >> 40) == 0).any()
    assert old.shard._drawn > 0
    assert made.update_priorities([0, 5], [1.0, 1.0]) == 0


def test_all_shards_die_at_once(monkeypatch):
    made, transport = replay(shards=2)
    made.extend(**steps(0, 50))
    for number in range(2):
        transport.shard(number).die()
    with pytest.raises(LookupError, match="0 steps are stored in all shards"):
        made.sample(8)
    made.extend(**steps(0, 50))
    assert len(made.sample(8).id) == 8


def test_a_lost_shard_begins_again_from_its_snapshot(tmp_path):
    made, transport = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    ids = made.extend(**steps(0, 100))
    made.update_priorities(ids, priority=1 + np.arange(100.0))
    for _ in range(8):
        made.tend()
    before = made.probabilities(ids)
    late = made.extend(**steps(100, 5)) if made._own._routes._home[0] == 1 else made.extend(**steps(95, 10))[5:]
    transport.shard(1).die()
    made.stats(), made.tend()
    told = made.stats()
    assert told.shards[1].epoch == 1
    assert told.size >= 100
    assert made.probabilities(ids)[ids >> 40 == 1].sum() == 0  # ids of the former epoch
    now = ids + (1 << 51) * (ids >> 40 == 1)
    law = made.probabilities(now)
    assert law / law.sum() == pytest.approx(before, rel=1e-5)
    assert told.added == 105 or len(late) == 5


def _costs(achieved, desired, info):
    return -np.ones(len(achieved))


def _never(achieved, desired, info):
    return np.zeros(len(achieved), bool)


def test_a_lost_shard_with_functions_begins_again_from_its_snapshot(tmp_path, monkeypatch):
    """No snapshot holds them: they come with what the shard is made from."""
    monkeypatch.setattr("replaylab.distributed.replay.shards.fleet.PAUSE", 0.0)
    goals = {name: Field((1,)) for name in ("observation", "achieved_goal", "desired_goal")}
    flag = Field((), bool)
    fields = {"obs": goals, "reward": Field(), "next_obs": goals, "terminated": flag, "truncated": flag}
    hindsight = Hindsight(_costs, _never)
    keeping = Snapshots(tmp_path, period=1e-9)
    made, transport = replay(400, fields, transforms=[hindsight], sampler=Uniform(), shards=2, snapshot=keeping)
    seen, ends = {name: np.ones((100, 1)) for name in goals}, np.arange(100) % 5 == 4
    made.extend(obs=seen, reward=np.ones(100), next_obs=seen, terminated=ends, truncated=np.zeros(100, bool))
    for _ in range(8):
        made.tend()
    before = made.stats().shards[1].size
    transport.shard(1).die()
    for _ in range(3):
        made.stats(), made.tend()
    told = made.stats()
    assert (told.shards[1].epoch, told.shards[1].size) == (1, before)
    assert before > 0
    assert made.sample(64).reward.shape == (64,)


def test_a_snapshot_that_is_damaged_costs_the_shard_and_no_more(tmp_path, monkeypatch):
    made, transport = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    made.extend(**steps(0, 100))
    for _ in range(8):
        made.tend()
    for file in tmp_path.glob("run-*/shard-0/state-*"):
        file.write_bytes(b"")
    monkeypatch.setattr("replaylab.distributed.replay.shards.fleet.PAUSE", 0.0)
    transport.shard(0).die()
    for _ in range(3):
        made.stats(), made.tend()
    told = made.stats()
    assert told.shards[0].live
    assert (told.size, told.lost_steps) == (50, 50)
    assert len(made.sample(10).id) == 10


@pytest.mark.parametrize("error", [StorageError("no answer of the disk"), OSError("stale file handle"), MemoryError()])
def test_what_passes_costs_no_snapshot(tmp_path, monkeypatch, error):
    made, transport = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    made.extend(**steps(0, 100))
    for _ in range(8):
        made.tend()
    monkeypatch.setattr("replaylab.distributed.replay.shards.fleet.PAUSE", 0.0)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(transport, "start", unable(transport.start, error))
        transport.shard(0).die()
        for _ in range(5):
            made.stats(), made.tend()
        assert not made.stats().shards[0].live
    for _ in range(3):
        made.tend()
    assert (made.stats().size, made.stats().lost_steps) == (100, 0)


def test_a_shard_that_can_never_begin_from_its_snapshot_begins_empty(tmp_path, monkeypatch):
    made, transport = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    made.extend(**steps(0, 100))
    for _ in range(8):
        made.tend()
    monkeypatch.setattr("replaylab.distributed.replay.shards.fleet.PAUSE", 0.0)
    monkeypatch.setattr("replaylab.distributed.replay.shards.fleet.MOST_FAILURES", 3)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("replaylab.replay.ReplayBuffer.load", unreadable)
        transport.shard(0).die()
        for _ in range(6):
            made.stats(), made.tend()
    assert made.stats().shards[0].live
    assert (made.stats().size, made.stats().lost_steps) == (50, 50)


def unreadable(*_arguments, **_options):
    raise StorageError("no answer of the disk")


def test_a_shard_of_another_version_is_refused(monkeypatch):
    transport = InProcess()
    begin = transport.start

    def older(declaration):
        return begin(replace(declaration, version="0.0.1"))

    monkeypatch.setattr(transport, "start", older)
    with pytest.raises(ConfigError, match=r"^Node .* has replaylab .*, but 0\.0\.1 asks it for work; install that"):
        replay(transport=transport)


def test_wrong_options():
    wrong = {
        "`shards` must be at most the capacity": {"capacity": 3, "shards": 4},
        "every shard must hold one step of every environment": {"capacity": 10, "shards": 4, "num_envs": 3},
        "neither replicas nor a storage": {"replicas": 2},
        "`prefetch` must be": {"prefetch": -1},
        "`limiter` must be a Limiter": {"limiter": 3.0},
        "`snapshot` must be Snapshots": {"snapshot": "folder"},
        "`shards` must be a whole number": {"shards": "x"},
    }
    for message, options in wrong.items():
        with pytest.raises(ConfigError, match=message):
            replay(**options)


def test_an_object_store_that_is_too_small():
    made, transport = replay(shards=2, prefetch=3)
    made.extend(**steps(0, 50))
    transport.room = 4096
    with pytest.raises(OverSizeError, match=r"4 batches of 256 rows need .* the object store has 0.0 MiB"):
        made.sample(256)
    assert len(made.sample(16).id) == 16


def test_a_shard_that_cannot_be_made_says_why():
    class Broken(InProcess):
        def start(self, declaration):
            client = super().start(declaration)
            client.dead = True
            return client

    with pytest.raises(StorageError, match="a shard ended before it had begun"):
        replay(transport=Broken())


def test_a_replay_that_was_closed_says_so():
    made, _ = replay()
    made.extend(**steps(0, 5))
    with made:
        made.sample(2)
    with pytest.raises(StorageError, match="the shards of this replay have ended"):
        made.sample(2)


def test_shards_that_were_closed_are_not_told_as_lost(caplog):
    """Not by the supervisor, which came to the lock while they were, nor by calls that come too late."""
    made, _ = replay(transport=InProcess(background=True))
    made.extend(**steps(0, 5))
    with made._lock:
        sleep(2 * PERIOD)  # the supervisor waits for the lock now
        made.close()
    made._supervisor._thread.join(10)
    for call in (
        made.stats,
        made.__len__,
        lambda: made.extend(**steps(0, 5)),
        lambda: made.update_priorities([0], [1.0]),
    ):
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()
    made.close()
    assert caplog.records == []
    assert [place.losses for place in made._fleet.places] == [0, 0]


@pytest.mark.parametrize("num_envs", [None, 2])
def test_a_loss_within_an_episode_of_stacks_cuts_its_rest(num_envs):
    """The frames before are gone, so that no stack of what follows is whole; the next episode is stored again."""
    fields = {name: Field() for name in ("obs", "next_obs")} | {
        name: Field((), np.bool_) for name in ("terminated", "truncated")
    }
    stack = FrameStack(2, padding="repeat", stacked_input=True)
    options = {"sampler": Uniform(), "transforms": [stack], "next_obs": "derived", "num_envs": num_envs, "shards": 1}
    made, transport = replay(fields=fields | {"reward": Field()}, **options)
    envs = [] if num_envs is None else [num_envs]
    for start in (0, 100, 200):
        for t in range(10):
            if (start, t) == (100, 4):
                transport.shard(0).die()
                made.tend()
                made.tend()
            seen = [start + max(t - 1, 0), start + t, start + t + 1]
            obs, after = (np.broadcast_to(np.float32(one), (*envs, 2)) for one in (seen[:2], seen[1:]))
            flags = {"terminated": np.full(envs, t == 9), "truncated": np.zeros(envs, bool)}
            made.add(obs=obs, next_obs=after, reward=np.zeros(envs, np.float32), **flags)
    assert made.size == 10 * (num_envs or 1)
    batch = made.sample(200)
    assert set(batch.obs[:, 1].tolist()) == set(map(float, range(200, 210)))
    np.testing.assert_array_equal(batch.obs[:, 0], np.maximum(batch.obs[:, 1] - 1, 200))
