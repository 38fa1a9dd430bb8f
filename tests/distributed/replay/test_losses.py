"""Guarantee 4 and 6: what happens when shards die."""

import re
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
from tests.distributed.replay.conftest import look, lose, replay, saved, steps
from tests.distributed.replay.in_process import InProcess, unable

pytestmark = pytest.mark.usefixtures("at_once")


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
    distribution = (1 + np.arange(400.0)) * (ids >> 40 != 2)
    assert batch.probability == pytest.approx((distribution / distribution.sum())[batch.x.astype(int)], rel=1e-4)
    live = distribution > 0
    assert stats.chisquare(counts[live], distribution[live] / distribution.sum() * counts.sum()).pvalue > 1e-7
    reported = made.stats()
    assert (reported.losses, reported.lost_steps, reported.size, reported.added) == (1, 100, 300, 400)
    assert 0 < reported.topped_up <= 3 * 64
    assert [one.epoch for one in reported.shards] == [0, 0, 1, 0]


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
        made._pool.slots[1].begun.surveyed()
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
    """It was only cut off, and continues running: what it answers is of a former epoch."""
    made, transport = replay(shards=2, prefetch=1)
    made.extend(**steps(0, 100))
    made.sample(32)
    old = transport.shard(0)
    made._pool.lose(made._pool.slots[0], old, OSError("cut off"))
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
    look(made, 8)
    before = made.probabilities(ids)
    late = made.extend(**steps(100, 5)) if made._own_writer._routes._home[0] == 1 else made.extend(**steps(95, 10))[5:]
    lose(made, transport, 1)
    reported = made.stats()
    assert reported.shards[1].epoch == 1
    assert reported.size >= 100
    assert made.probabilities(ids)[ids >> 40 == 1].sum() == 0  # ids of the former epoch
    now = ids + (1 << 51) * (ids >> 40 == 1)
    distribution = made.probabilities(now)
    assert distribution / distribution.sum() == pytest.approx(before, rel=1e-5)
    assert reported.added == 105 or len(late) == 5


def test_a_snapshot_that_a_shard_finished_before_it_died_is_used(tmp_path):
    made, transport = replay(shards=2, snapshot=Snapshots(tmp_path, period=1e-9))
    made.extend(**steps(0, 100))
    made.tend()  # asks shard 0 to save itself
    transport.shard(0).die(answered=1)
    made.stats(), made.tend()  # finds it lost before the answer is read
    assert (made.stats().losses, made.stats().size, made.stats().lost_steps) == (1, 100, 0)


def _costs(achieved, desired, info):
    return -np.ones(len(achieved))


def _never(achieved, desired, info):
    return np.zeros(len(achieved), bool)


def test_a_lost_shard_with_functions_begins_again_from_its_snapshot(tmp_path):
    """No snapshot holds them: they come with what the shard is made from."""
    goals = {name: Field((1,)) for name in ("observation", "achieved_goal", "desired_goal")}
    flag = Field((), bool)
    fields = {"obs": goals, "reward": Field(), "next_obs": goals, "terminated": flag, "truncated": flag}
    hindsight = Hindsight(_costs, _never)
    keeping = Snapshots(tmp_path, period=1e-9)
    made, transport = replay(400, fields, transforms=[hindsight], sampler=Uniform(), shards=2, snapshot=keeping)
    seen, ends = {name: np.ones((100, 1)) for name in goals}, np.arange(100) % 5 == 4
    made.extend(obs=seen, reward=np.ones(100), next_obs=seen, terminated=ends, truncated=np.zeros(100, bool))
    look(made, 8)
    before = made.stats().shards[1].size
    lose(made, transport, 1, 3)
    reported = made.stats()
    assert (reported.shards[1].epoch, reported.shards[1].size) == (1, before)
    assert before > 0
    assert made.sample(64).reward.shape == (64,)


def test_a_snapshot_that_is_damaged_costs_the_shard_and_no_more(tmp_path):
    made, transport = saved(tmp_path)
    for file in tmp_path.glob("run-*/shard-0/state-*"):
        file.write_bytes(b"")
    lose(made, transport, 0, 3)
    reported = made.stats()
    assert reported.shards[0].live
    assert (reported.size, reported.lost_steps) == (50, 50)
    assert len(made.sample(10).id) == 10


@pytest.mark.parametrize("error", [StorageError("no answer of the disk"), OSError("stale file handle"), MemoryError()])
def test_what_passes_costs_no_snapshot(tmp_path, monkeypatch, error):
    made, transport = saved(tmp_path)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(transport, "start", unable(transport.start, error))
        lose(made, transport, 0, 5)
        assert not made.stats().shards[0].live
    look(made, 3)
    assert (made.stats().size, made.stats().lost_steps) == (100, 0)


def test_a_shard_that_can_never_begin_from_its_snapshot_begins_empty(tmp_path, monkeypatch):
    made, transport = saved(tmp_path)
    monkeypatch.setattr("replaylab.distributed.replay.shards.shard_pool.MOST_FAILURES", 3)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("replaylab.replay.ReplayBuffer.load", unreadable)
        lose(made, transport, 0, 6)
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


@pytest.fixture
def small_machine(monkeypatch):
    """Every node has room for one shard of a replay of 1,000 steps, and less than two."""
    made, _ = replay(shards=2)
    nbytes = made.stats().shards[0].nbytes
    monkeypatch.setattr("replaylab.distributed.replay.shards.shard.machine_memory", lambda: int(1.5 * nbytes))


class TwoNodes(InProcess):
    """Puts each shard on the node of its number, as long as that node is there."""

    gone = ()

    def start(self, declaration):
        client = super().start(declaration)
        client.shard.node = lambda: "node 0" if declaration.number in self.gone else f"node {declaration.number}"
        return client


def test_the_shards_of_a_node_need_memory_together(small_machine):
    replay(shards=1, capacity=500)
    transport = InProcess()
    with pytest.raises(OverSizeError, match=r"^2 shards on node \S+ need \S+ MiB together, but it has \S+ MiB; use a "):
        replay(shards=2, transport=transport)
    assert all(client.dead for client in transport.clients)
    replay(shards=2, transport=TwoNodes())


def test_a_shard_does_not_begin_again_where_its_node_has_no_memory_left(small_machine, monkeypatch, caplog):
    monkeypatch.setattr("replaylab.distributed.replay.shards.shard_pool.MOST_FAILURES", 1)
    made, transport = replay(shards=2, transport=TwoNodes())
    made.extend(**steps(0, 20))
    transport.gone = (1,)
    lose(made, transport, 1, 3)
    assert [one.live for one in made.stats().shards] == [True, False]
    assert len(made.sample(8).id) == 8
    assert "shard 1 (epoch 1) could not begin: 2 shards on node node 0 need" in caplog.text
    transport.gone = ()
    look(made, 2)
    assert [one.live for one in made.stats().shards] == [True, True]


def test_a_folder_for_snapshots_that_cannot_be_written_is_refused_at_the_start(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    transport = InProcess()
    with pytest.raises(StorageError, match=r"file/there cannot be written: .*[Nn]ot a directory"):
        replay(snapshot=Snapshots(tmp_path / "file" / "there"), transport=transport)
    assert transport.clients == []

    def local(declaration, start=transport.start):
        client = start(declaration)
        survey = client.shard.survey
        client.shard.survey = lambda probe: survey(probe.replace("shared", "local"))
        return client

    monkeypatch.setattr(transport, "start", local)  # a node on which the folder is another one
    (tmp_path / "local").mkdir()
    with pytest.raises(
        StorageError, match=r"^`snapshot` must name a folder that all nodes share, but node \S+ does not"
    ):
        replay(snapshot=Snapshots(tmp_path / "shared"), transport=transport)
    assert list((tmp_path / "shared").iterdir()) == list((tmp_path / "local").iterdir()) == []


def test_snapshots_that_fail_are_in_stats(tmp_path):
    made, _ = replay(shards=2, snapshot=Snapshots(tmp_path / "folder", period=1e-9))
    made.extend(**steps(0, 20))
    look(made, 6)
    assert made.stats().snapshot_error is None
    (tmp_path / "folder").rename(tmp_path / "moved")
    (tmp_path / "folder").touch()
    look(made, 6)
    assert re.match(r"shard [01]: .* cannot be written: ", made.stats().snapshot_error)
    (tmp_path / "folder").unlink()
    look(made, 6)
    assert made.stats().snapshot_error is None


def test_a_shard_that_cannot_be_made_says_why():
    class Broken(InProcess):
        def start(self, declaration):
            client = super().start(declaration)
            client.dead = True
            return client

    with pytest.raises(StorageError, match="a shard ended before it had begun"):
        replay(transport=Broken())


def test_a_closed_replay_raises():
    made, _ = replay()
    made.extend(**steps(0, 5))
    with made:
        made.sample(2)
    with pytest.raises(StorageError, match="the shards of this replay have ended"):
        made.sample(2)


def test_writers_of_a_replay_that_was_closed_raise(monkeypatch):
    made, _ = replay()
    before, busy = made.writer(), made.writer()
    busy.add(x=0.0, terminated=False, truncated=False)
    made.close()
    for call in (
        made.writer,
        busy.flush,
        lambda: before.add(x=1.0, terminated=False, truncated=False),
        lambda: before.extend(**steps(0, 5)),
        before.end_episode,
    ):
        with pytest.raises(StorageError, match="the shards of this replay have ended"):
            call()


def test_shards_that_were_closed_are_not_reported_as_lost(caplog):
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
    assert [slot.losses for slot in made._pool.slots] == [0, 0]


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
