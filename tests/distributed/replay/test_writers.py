"""Guarantee 4: what is acknowledged is kept while the shard lives; the rest is sent again, and stored once."""

import gc
import weakref
from time import sleep
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from replaylab import Field
from replaylab.distributed.replay import Snapshots
from replaylab.distributed.replay import writer as writing
from replaylab.distributed.replay.shards import shard_pool
from replaylab.distributed.replay.shards.packing import packed, unpacked
from replaylab.distributed.replay.shards.shard import Shard
from replaylab.errors import ConfigError, FieldError, ReplayError, ShapeError
from replaylab.replay import NStep, ReplayBuffer, Uniform
from tests.distributed.replay.conftest import EPISODES, FLAG, episode, lose, replay, step, steps
from tests.study.execution.test_study_run import wait_for


def held(transport, shards):
    """The values of x in each live shard, oldest first."""
    found = []
    for number in range(shards):
        buffer = transport.shard(number).shard.buffer
        found.append(buffer.get(buffer.stored_ids()[0])["x"].tolist())
    return found


def test_an_episode_lives_in_one_shard_and_the_next_in_the_next():
    made, transport = replay(shards=3)
    ids = made.extend(**steps(0, 20, length=5))
    made.stats()
    assert held(transport, 3) == [[0, 1, 2, 3, 4, 15, 16, 17, 18, 19], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    assert (ids >> 40).tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [0] * 5


def test_an_episode_that_is_left_ends_too():
    made, transport = replay(shards=2)
    for first in (0, 3, 6):
        made.extend(**steps(first, 3, length=10**9))
        made.end_episode()
    assert held(transport, 2) == [[0, 1, 2, 6, 7, 8], [3, 4, 5]]


def test_steps_that_say_nothing_of_episodes_are_dealt_out():
    """In runs: of at most an eighth of a shard."""
    made, transport = replay(50, fields={"x": Field()}, shards=2)
    made.extend(x=np.arange(5.0))
    made.add(x=5.0)
    made.extend(x=np.arange(6.0, 16.0))
    assert held(transport, 2) == [[0, 1, 2, 6, 7, 8, 12, 13, 14], [3, 4, 5, 9, 10, 11, 15]]


def test_each_writer_has_its_environments():
    made, transport = replay(shards=2, num_envs=4)
    one, other = made.writer([0, 3]), made.writer([1, 2])
    flags = {"terminated": [False, False], "truncated": [False, False]}
    for t in range(3):
        one.add(x=[10 + t, 40 + t], **flags)
        other.add(x=[20 + t, 30 + t], **flags, where=[True, t < 2])
    one.flush(), other.flush()
    assert [sorted(x) for x in held(transport, 2)] == [[10, 11, 12, 30, 31], [20, 21, 22, 40, 41, 42]]
    with pytest.raises(ConfigError, match="`envs` must be different numbers from 0 to 3"):
        made.writer([1, 1])


def test_a_wrong_step_is_refused_at_once_and_nothing_is_stored():
    made, _ = replay(shards=2)
    writer = made.writer()
    with pytest.raises(FieldError, match="terminated"):
        writer.add(x=1.0)
    with pytest.raises(ShapeError):
        writer.extend(**steps(0, 5) | {"x": np.zeros(4)})
    assert writer.unacknowledged == len(made) == 0


def test_a_writer_waits_where_too_much_is_unacknowledged():
    made, _ = replay(shards=2)
    writer = made.writer(window=3)
    for k in range(10):
        writer.add(**step(k))
        assert writer.unacknowledged <= 3
    with pytest.raises(ConfigError, match="call its flush"):
        writer.__reduce__()
    writer.flush()
    assert len(made) == 10


def test_steps_that_come_while_others_are_on_their_way_go_together():
    made, transport = replay(shards=1)
    writer = made.writer(window=8)
    with patch.object(writing, "LINGER", 60.0):
        for k in range(8):
            writer.extend(**steps(2 * k, 2, length=100))
    names = [unpacked(one.message)[0] for one in transport.shard(0).queue]
    assert names == ["add", "several"]  # one at once, then four; three are held
    assert writer.unacknowledged == 8
    writer.flush()
    assert held(transport, 1) == [list(range(16))]


def test_what_is_held_is_sent_though_the_writer_says_nothing_more():
    made, transport = replay(shards=1)
    writer = made.writer()
    for k in range(3):
        writer.add(**step(k))
    line = writer._outboxes[0]
    wait_for(lambda: not line.held)
    shard = transport.shard(0)
    shard.work()
    assert len(shard.shard.buffer) == 3
    reminder = weakref.ref(writer._reminder)
    del writer
    gc.collect()
    wait_for(lambda: reminder() is None or not reminder().is_alive())


def test_large_steps_go_alone():
    made, transport = replay(fields={"x": Field((100_000,), np.uint8)}, capacity=100, shards=1, sampler=Uniform())
    writer = made.writer()
    for k in range(3):
        writer.add(x=np.full(100_000, k))
    assert len(transport.shard(0).queue) == 3
    writer.flush()
    assert transport.shard(0).shard.buffer.get([0, 1, 2])["x"][:, 0].tolist() == [0, 1, 2]


def refuse(monkeypatch, refused, error):
    """Let shards refuse rows that hold this x."""
    store = Shard._store

    def refusing(self, envs, steps, where, final_obs):
        if refused in steps["x"]:
            raise error
        return store(self, envs, steps, where, final_obs)

    monkeypatch.setattr(Shard, "_store", refusing)


@pytest.mark.parametrize("error", [ShapeError("refused"), RuntimeError("refused")], ids=["told", "odd"])
def test_of_steps_that_go_together_those_that_the_shard_refuses_are_left_out(monkeypatch, error):
    """An error that the template cannot know: here, the third message's rows are refused."""
    made, transport = replay(shards=1, sampler=Uniform())
    refuse(monkeypatch, 4.0, error)
    writer = made.writer(window=10)
    for k in range(6):
        writer.extend(**steps(2 * k, 2, length=100))
    with pytest.raises(type(error), match="refused"):
        writer.flush()
    assert writer.unacknowledged == 0
    writer.flush()
    assert held(transport, 1) == [[0, 1, 2, 3, 6, 7, 8, 9, 10, 11]]


def test_an_add_that_tells_of_an_earlier_refusal_stores_its_own_steps(monkeypatch):
    made, transport = replay(shards=1, sampler=Uniform())
    refuse(monkeypatch, 4.0, ShapeError("refused"))
    writer = made.writer(window=4)
    reported = 0
    for k in range(20):
        try:
            writer.add(**step(k, length=100))
        except ShapeError:
            reported += 1
    writer.flush()
    assert reported == 1
    assert held(transport, 1) == [[k for k in range(20) if k != 4]]


def test_a_refusal_whose_answer_was_lost_is_reported_and_ids_stay(monkeypatch, tmp_path):
    """The shard's snapshot knows all that was applied and what was refused."""
    refuse(monkeypatch, 6.0, ShapeError("refused"))
    with patch.object(writing, "LINGER", 60.0), patch.object(shard_pool, "PAUSE", 0.0):
        made, transport = replay(shards=1, sampler=Uniform(), snapshot=Snapshots(tmp_path, period=0.001))
        shard, writer = transport.shard(0), made._own_writer
        reported = [writer.put(steps(2 * k, 2, length=100), None, None, True) for k in range(5)]  # the first one alone
        sent = list(shard.queue)
        made.tend(), made.tend()  # saved
        for pending in sent:
            pending.made = False  # answered, and nobody heard it
        shard.die()
        with pytest.raises(ReplayError, match="refused"):
            writer.flush()
    stored = transport.shard(0).shard.buffer
    assert stored.get(stored.stored_ids()[0])["x"].tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    assert (reported[3] == -1).all()
    assert all((ids >= 0).all() for k, ids in enumerate(reported) if k != 3)


def broken_once(shard):
    """Let the next call of a shard raise, on its way."""
    call = shard.call

    def broken(*arguments, **options):
        shard.call = call
        raise MemoryError("once")

    shard.call = broken


def test_a_call_that_could_not_be_sent_costs_no_number():
    """The caller is reported, and tries again; what was held before goes with it, once."""
    made, transport = replay(fields={"x": Field((60_000,), np.uint8)}, capacity=100, shards=1, sampler=Uniform())
    shard = transport.shard(0)
    with patch.object(writing, "LINGER", 60.0):
        writer = made.writer()
        for k in range(2):
            writer.add(x=np.full(60_000, k))  # the second is held
        broken_once(shard)
        with pytest.raises(MemoryError):  # since it must go before the third
            writer.add(x=np.full(60_000, 2))
        writer.add(x=np.full(60_000, 2))
        writer.flush()
        broken_once(shard)
        with pytest.raises(MemoryError):  # itself
            writer.add(x=np.full(60_000, 3))
        writer.add(x=np.full(60_000, 3))
        writer.flush()
    buffer = shard.shard.buffer
    assert buffer.get(buffer.stored_ids()[0])["x"][:, 0].tolist() == [0, 1, 2, 3]


def one_held(made):
    """A writer that holds back one step, after one that is on its way."""
    writer = made.writer()
    for k in range(2):
        writer.add(**step(k))
    assert writer._outboxes[0].held
    return writer


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["at once", "in the midst of a pause"])
def test_what_a_writer_holds_that_is_dropped_is_sent(pause):
    made, transport = replay(shards=1)
    with patch.object(writing, "LINGER", 0.3):
        writer = one_held(made)
        reminder = writer._reminder
        sleep(pause)
        del writer
        gc.collect()
    reminder.join(30.0)
    assert not reminder.is_alive()
    transport.shard(0).work()
    assert len(transport.shard(0).shard.buffer) == 2


def test_a_reminder_that_could_not_send_tries_again():
    made, transport = replay(shards=1)
    with patch.object(writing, "LINGER", 0.05):
        writer = one_held(made)
        broken_once(transport.shard(0))
        wait_for(lambda: not writer._outboxes[0].held)
    transport.shard(0).work()
    assert len(transport.shard(0).shard.buffer) == 2


def test_what_is_given_may_be_overwritten_at_once():
    made, transport = replay(shards=2)
    writer, given = made.writer(), steps(0, 5)
    writer.extend(**given)
    given["x"][:] = -1
    writer.flush()
    assert held(transport, 2)[0] == [0, 1, 2, 3, 4]


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["", "twice", "lost"]), st.integers(0, 3)), max_size=8))
def test_every_step_is_stored_once_whatever_is_sent_again(calls):
    """A shard dies with some calls applied, of which some answers came; one that lives gets calls twice."""
    made, transport = replay(shards=2, sampler=Uniform(), capacity=10_000)
    writer = made._own_writer  # which starts a shard in place of a lost one itself
    first, lost, reported = 0, 0, []
    with patch.object(shard_pool, "PAUSE", 0.0), patch.object(writing, "PATIENCE", 2.0):
        for count, event, answered in calls:
            reported.append(writer.put(steps(first, count, length=4), None, None, many=True))
            first += count
            shard = transport.shard(first % 2)  # None: dead, and the writer does not know it yet
            line = writer._outboxes[first % 2]
            if event == "twice":
                line.resend(line.client)
            if event == "lost" and shard is not None:
                shard.die(answered)
                lost += shard.shard.buffer.size
        writer.flush()
        made.stats(), made.tend()
    ids = np.concatenate([np.zeros(0, int), *(one[:, 0] for one in reported)])
    assert len(set(ids.tolist())) == len(ids) == first  # every step was acknowledged, under its own id
    kept = sorted(x for one in held(transport, 2) for x in one)
    assert len(kept) == len(set(kept))
    assert first - lost <= len(kept) <= first


def test_a_call_before_those_that_it_follows_is_refused():
    made, transport = replay(shards=1)
    writer = made.writer()
    for k in range(3):
        writer.extend(**steps(4 * k, 4))
        writer._outboxes[0].transmit()  # none together
    transport.shard(0).queue.reverse()  # as no carrier may do
    writer.flush()
    assert held(transport, 1) == [list(range(12))]


def test_unacknowledged_steps_are_sent_again_to_the_shard_that_takes_the_place():
    made, transport = replay(shards=2)
    writer = made.writer()
    writer.extend(**steps(0, 5))
    writer.flush()
    writer.extend(**steps(5, 10))
    lose(made, transport, 1)
    writer.flush()
    assert held(transport, 2) == [[0, 1, 2, 3, 4, 10, 11, 12, 13, 14], [5, 6, 7, 8, 9]]


def test_an_episode_that_a_loss_has_cut_is_not_looked_across():
    """Its first steps come back with the snapshot, the next are lost: no n-step return spans the gap."""
    made, transport = replay(fields=EPISODES, shards=1, transforms=[NStep(3, gamma=1.0)], sampler=Uniform())
    whole = episode(0, 12, ends=False)
    made.extend(**{name: value[:4] for name, value in whole.items()})
    shard = transport.shard(0).shard
    assert shard.buffer.as_batch([1]).reward == pytest.approx(0.5 * (1 + 2 + 3))
    shard.buffer.end_episode()  # as `begin` does after a snapshot
    made.extend(**{name: value[8:] for name, value in whole.items()})
    assert shard.buffer.as_batch([3]).next_obs[0, 0] == 4
    assert shard.buffer.as_batch([4]).next_obs[0, 0] == 11


def looked_back_on(transport, number=0):
    """Of each step in a shard the observation three steps on, or the last one where its episode was left before."""
    buffer = transport.shard(number).shard.buffer
    return buffer.as_batch(buffer.stored_ids()[0].reshape(-1)).next_obs[:, 0].tolist()


def within(columns, first, last):
    return {name: value[first:last] for name, value in columns.items()}


THREE = {"fields": EPISODES, "transforms": [NStep(3, gamma=1.0)], "sampler": Uniform()}


def test_a_writer_that_takes_over_an_environment_begins_an_episode():
    made, transport = replay(shards=2, **THREE)
    for first in (0, 100):
        writer = made.writer()
        writer.extend(**episode(first, 5, ends=False)), writer.flush()
    assert looked_back_on(transport) == [3, 4, 5, 5, 5, 103, 104, 105, 105, 105]
    writer.extend(**within(episode(100, 9), 5, 9)), writer.flush()  # which continues with its own
    assert looked_back_on(transport)[5:] == [103, 104, 105, 106, 107, 108, 109, 109, 109]


@pytest.mark.parametrize("others", [[0], [1], [0, 1]])
def test_of_the_environments_those_that_are_taken_over_are_cut(others):
    made, transport = replay(shards=1, num_envs=2, **THREE)
    both = [episode(0, 8, ends=False), episode(100, 8, ends=False)]
    columns = {name: np.stack([part[name] for part in both], axis=1) for name in both[0]}
    one, other = made.writer(), made.writer(others)
    one.extend(**within(columns, 0, 4)), one.flush()
    other.extend(**{name: value[4:8, others] for name, value in columns.items()}), other.flush()
    before, after = [3, 4, 4, 4], [7, 8, 8, 8]
    want = [100 * e + x for e in (0, 1) for x in (before + after if e in others else before)]
    assert sorted(looked_back_on(transport)) == want


def sent(writer):
    """A writer as another process gets it, with views of what was sent; the shards are the same."""
    make, given, state = writer.__reduce__()
    copy = make(*given)
    vars(copy).update(unpacked(packed(state)))
    return copy


def test_a_writer_that_is_sent_elsewhere_goes_on_with_its_episode():
    made, transport = replay(shards=3, **THREE)
    writer = made.writer()
    writer.extend(**episode(0, 4)), writer.flush()  # the next one is for shard 1
    for first, last in ((0, 3), (3, 5), (5, 9)):
        writer = sent(writer)
        writer.extend(**within(episode(100, 9), first, last)), writer.flush()
    assert looked_back_on(transport, 1) == [103, 104, 105, 106, 107, 108, 109, 109, 109]
    writer.extend(**episode(200, 2)), writer.flush()
    assert looked_back_on(transport, 2) == [202, 202]


def test_two_copies_of_a_writer_do_not_go_on_with_each_others_episodes():
    """As of a task with a writer that Ray runs again."""
    made, transport = replay(shards=1, **THREE)
    writer = made.writer()
    writer.extend(**episode(0, 2, ends=False)), writer.flush()
    one, other = sent(writer), sent(writer)
    one.extend(**within(episode(0, 4, ends=False), 2, 4)), one.flush()
    other.extend(**within(episode(100, 4, ends=False), 2, 4)), other.flush()
    other.extend(**within(episode(100, 6), 4, 6)), other.flush()
    assert looked_back_on(transport) == [3, 4, 4, 4, 105, 106, 106, 106]
    assert transport.shard(0).shard._notes.episodes[:8].tolist() == [0] * 4 + [4] * 4


def test_resets_are_left_out_by_a_writer_that_was_sent_before_them():
    fields = {"x": Field(), "terminated": FLAG, "truncated": FLAG}
    made, transport = replay(fields=fields, shards=1, num_envs=1, autoreset="next_step")
    writer = made.writer()
    for x, over in enumerate((False, True, False, False)):
        writer.add(x=[x], terminated=[over], truncated=[False]), writer.flush()
        writer = sent(writer)
    assert held(transport, 1) == [[0, 1, 3]]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_whatever_is_left_out_or_sent_elsewhere_episodes_are_those_of_one_buffer(shards):
    random = np.random.default_rng(shards)
    for _ in range(12):
        made, transport = replay(shards=shards, num_envs=2, **THREE)
        one, writer = ReplayBuffer(1000, EPISODES, num_envs=2, transforms=THREE["transforms"]), made.writer()
        for k in range(8):
            shape = (random.integers(1, 6), 2)
            obs = (100 * k + np.arange(2 * shape[0]).reshape(shape))[..., None] + np.zeros(2)
            given = {"obs": obs, "next_obs": obs + 0.5, "reward": obs[..., 0], "where": random.random(shape) < 0.8}
            given |= {"terminated": random.random(shape) < 0.2, "truncated": random.random(shape) < 0.1}
            writer.extend(**given), one.extend(**given)
            left = random.random(2) < 0.1
            writer.end_episode(left), one.end_episode(left), writer.flush()
            writer = sent(writer) if k % 3 else writer
        want, got = rows_of(one), {}
        for number in range(shards):
            got |= rows_of(transport.shard(number).shard.buffer)
        assert got == want


def rows_of(buffer):
    batch = buffer.as_batch(buffer.stored_ids()[0].reshape(-1))
    return {x: (y, r) for x, y, r in zip(batch.obs[:, 0], batch.next_obs[:, 0], batch.reward, strict=True)}


def test_no_steps_are_stored_as_by_one_buffer():
    made, _ = replay(shards=2)
    assert made.extend(**steps(0, 0)).tolist() == []
    made, _ = replay(shards=2, num_envs=2)
    nothing = {"x": np.zeros((0, 2)), "terminated": np.zeros((0, 2), bool), "truncated": np.zeros((0, 2), bool)}
    assert made.extend(**nothing).shape == ReplayBuffer(9, made.fields, num_envs=2).extend(**nothing).shape == (0, 2)


def flags(T, ended):
    return {"terminated": np.isin(np.arange(T), ended)[:, None], "truncated": np.zeros((T, 1), bool)}


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled", None])
def test_autoreset_modes_are_those_of_one_buffer(mode):
    fields = {"obs": Field(), "next_obs": Field(), "terminated": FLAG, "truncated": FLAG}
    made, transport = replay(fields=fields, shards=1, num_envs=1, autoreset=mode, sampler=Uniform())
    one = ReplayBuffer(1000, fields, num_envs=1, autoreset=mode)
    x = np.arange(9.0)[:, None]
    given = {"obs": x, "next_obs": x + 1} | flags(9, [2, 6])
    final = {"final_obs": np.where(given["terminated"], x + 100, 0)} if mode == "same_step" else {}
    assert np.array_equal(made.extend(**given, **final), one.extend(**given, **final))
    buffer = transport.shard(0).shard.buffer
    for name in ("obs", "next_obs"):
        assert np.array_equal(buffer.get(buffer.stored_ids()[0])[name], one.get(one.stored_ids()[0])[name])


def test_nested_fields():
    fields = {"obs": {"a": Field((2,)), "b": (Field(), Field((), int))}, "terminated": FLAG, "truncated": FLAG}
    made, _ = replay(fields=fields, shards=2, num_envs=2, sampler=Uniform())
    obs = {"a": np.ones((3, 2, 2)), "b": (np.zeros((3, 2)), np.arange(6).reshape(3, 2))}
    over = np.zeros((3, 2), bool)
    made.extend(obs=obs, terminated=over, truncated=over)
    batch = made.sample(50)
    assert batch.obs["a"].shape == (50, 2)
    assert sorted(set(batch.obs["b"][1].tolist())) == [0, 1, 2, 3, 4, 5]
