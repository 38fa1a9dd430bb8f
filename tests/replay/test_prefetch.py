"""Batches drawn ahead: the same function of seed and calls as a plain program that draws at the stated moments."""

import gc
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest.mock import Mock

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay
from replaylab.errors import ConfigError, EmptyBufferError

FIELDS = {"x": Field((), np.int64), "y": Field((2,))}
SAMPLERS = [replay.Uniform(), replay.Prioritized(beta=0.4), replay.ShuffledEpochs()]


class SlowBuffer(ReplayBuffer):
    """Draws take a random time, in whichever thread."""

    def sample(self, *args, **kwargs):
        time.sleep(SlowBuffer.jitter.exponential(5e-4))
        return super().sample(*args, **kwargs)

    jitter = np.random.default_rng()


def make(sampler=None, kind=ReplayBuffer, steps=30, **options):
    buffer = kind(20, FIELDS, sampler=replay.Prioritized(beta=0.4) if sampler is None else sampler, seed=3, **options)
    if steps:
        buffer.extend(x=np.arange(steps), y=np.ones((steps, 2)))
    return buffer


def plainly(buffer, batch_size, ahead, total=None, progress=lambda k: None):
    """The rule in plain Python: batch k is drawn when batch k − ahead is asked for."""
    drawn, k = deque(), 0
    while total is None or k < total:
        while len(drawn) <= ahead and (total is None or k + len(drawn) < total):
            drawn.append(buffer.sample(batch_size, progress=progress(k + len(drawn))))
        yield drawn.popleft()
        k += 1


def learn(buffer, batches, turns=60):
    """A training loop that adds, feeds back, saves nothing and draws in between; returns all it saw."""
    seen = []
    for turn, batch in enumerate(batches):
        seen.append({name: np.array(column) for name, column in batch.items()})
        buffer.add(x=100 + turn, y=np.zeros(2))
        seen.append({"found": buffer.update_priorities(batch.id, np.abs(np.sin(batch.id + turn)))})
        if turn % 7 == 0:
            buffer.extend(x=np.arange(3), y=np.ones((3, 2)))
        if turn % 5 == 0:
            seen.append(dict(buffer.sample(3)))
        newest = 30 + turn + 3 * (turn // 7)
        seen.append({"distribution": buffer.probabilities(np.arange(newest - 5, newest), batch_size=8)})
        if turn + 1 == turns:
            break
    return seen


def assert_same(batch, two):
    assert len(batch) == len(two)
    for mine, other in zip(batch, two, strict=True):
        assert mine.keys() == other.keys()
        for name, column in mine.items():
            np.testing.assert_array_equal(column, other[name], err_msg=name)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
class TestReproducible:
    def test_equal_to_the_rule_in_plain_python(self, ahead, sampler):
        expected = make(sampler)
        expected = learn(expected, plainly(expected, 8, ahead))
        for kind in (ReplayBuffer, SlowBuffer):
            buffer = make(sampler, kind)
            assert_same(learn(buffer, buffer.batches(8, prefetch=ahead)), expected)

    def test_what_was_asked_for_is_drawn_when_the_iterator_closes(self, ahead, sampler):
        plain, buffer = make(sampler), make(sampler, SlowBuffer)
        learn(plain, plainly(plain, 8, ahead), turns=3)
        learn(buffer, buffer.batches(8, prefetch=ahead), turns=3)
        np.testing.assert_array_equal(plain.sample(8).id, buffer.sample(8).id)


def test_without_the_gate_it_would_not_be(monkeypatch):
    """The comparison above can fail."""
    drawer = replay.prefetch.Drawer.__init__

    def untold(self, buffer):
        drawer(self, buffer)
        self._core = Mock(wraps=buffer._parts.core, **{"ask.return_value": Mock()})

    monkeypatch.setattr(replay.prefetch.Drawer, "__init__", untold)
    expected, buffer = make(), make(kind=SlowBuffer)
    with pytest.raises(AssertionError):
        assert_same(learn(buffer, buffer.batches(8, prefetch=2)), learn(expected, plainly(expected, 8, 2)))


GATED = {
    "add": lambda buffer: buffer.add(x=100, y=np.zeros(2)),
    "extend": lambda buffer: buffer.extend(x=[1, 2], y=np.zeros((2, 2))),
    "end_episode": lambda buffer: buffer.end_episode(),
    "sample": lambda buffer: buffer.sample(4).id,
    "update_priorities": lambda buffer: buffer.update_priorities([29], [9.0]),
    "probabilities": lambda buffer: buffer.probabilities([29], batch_size=4),
    "as_batch": lambda buffer: buffer.as_batch([29]).id,
    "stats": lambda buffer: buffer.stats().samples,
    "part": lambda buffer: buffer.part([0]).sample(4).id,
    "save": lambda buffer: buffer.save(FOLDER[0]),
}
FOLDER = [None]


class HeldBack(ReplayBuffer):
    """Draws in the background wait until they are let go."""

    def sample(self, *args, **kwargs):
        if threading.current_thread().name.startswith("replaylab-prefetch"):
            assert self.let_go.wait(20)
        return super().sample(*args, **kwargs)


@pytest.mark.parametrize("taken", ["before", "after"])
@pytest.mark.parametrize("name", GATED)
def test_every_call_waits_for_what_was_asked_for_before_it(tmp_path, name, taken):
    """As an attribute taken before `batches()`, too, such as ``add = buffer.add``; the core itself sees to it."""
    replicas = 1 if name == "part" else None
    buffer = HeldBack(20, FIELDS, sampler=replay.Prioritized(beta=0.4), seed=3, replicas=replicas)
    buffer.let_go = threading.Event()
    FOLDER[0] = tmp_path
    call, lead = GATED[name], () if replicas is None else (1,)
    buffer.extend(x=np.zeros((*lead, 30), np.int64), y=np.ones((*lead, 30, 2)))
    if taken == "before":
        methods = {name: getattr(buffer, name) for name in GATED}
        before = Mock(**{f"{method}.side_effect": function for method, function in methods.items()})
        call = lambda _: GATED[name](before)  # noqa: E731
    batches = buffer.batches(8, prefetch=2)
    done, asked = [], threading.Event()

    def ask_then_call():
        first = threading.Thread(target=lambda: next(batches))  # asks for three, and waits for the first
        first.start()
        while not (drawer := buffer._parts.drawer) or drawer._thread._work_queue.qsize() < 2:
            time.sleep(0.001)
        asked.set()
        call(buffer)
        done.append(buffer._parts.drawer._thread._work_queue.qsize())
        first.join()

    caller = threading.Thread(target=ask_then_call)
    caller.start()
    assert asked.wait(20)
    time.sleep(0.15)
    assert not done, "it did not wait"
    buffer.let_go.set()
    caller.join(20)
    assert done == [0]
    batches.close()


def test_two_iterators_share_one_thread_in_order():
    def run(buffer, make_batches):
        first, two = make_batches(buffer, 4, 2), make_batches(buffer, 6, 1)
        seen = []
        for turn in range(20):
            seen.append(dict(next(first)))
            if turn % 3 == 0:
                seen.append(dict(next(two)))
            buffer.add(x=turn, y=np.zeros(2))
        two.close()
        seen.append(dict(next(first)))
        first.close()
        return [*seen, dict(buffer.sample(4))]

    before = threading.active_count()
    mine = run(make(kind=SlowBuffer), lambda buffer, size, ahead: buffer.batches(size, prefetch=ahead))
    assert_same(mine, run(make(), plainly))
    assert threading.active_count() == before


def test_with_transforms_and_episodes_ended_by_hand():
    goal = {"achieved_goal": Field(), "desired_goal": Field()}
    fields = {"obs": goal, "next_obs": goal, "reward": Field()}
    fields |= {"terminated": Field((), bool), "truncated": Field((), bool)}
    goals = replay.Hindsight(lambda got, wanted, info: -np.abs(got - wanted), lambda got, wanted, info: got == wanted)
    step = {"reward": -1.0, "terminated": False, "truncated": False}

    def run(kind, iterate):
        buffer = kind(
            30,
            fields,
            next_obs="derived",
            transforms=[replay.NStep(3), goals],
            sampler=replay.Prioritized(beta=0.4),
            seed=2,
        )
        seen = []

        def act(t):
            obs, next_obs = ({"achieved_goal": float(at), "desired_goal": 50.0} for at in (t, t + 1))
            buffer.add(obs=obs, next_obs=next_obs, **step)
            if t % 9 == 8:
                buffer.end_episode()

        for t in range(20):
            act(t)
        for t, batch in zip(range(20, 60), iterate(buffer), strict=False):
            seen.append({name: np.array(batch[name]) for name in ("id", "reward", "relabelled", "discount", "weight")})
            act(t)
            buffer.update_priorities(batch.id, batch.reward)
        return seen

    expected = run(ReplayBuffer, lambda buffer: plainly(buffer, 8, 2))
    assert_same(run(SlowBuffer, lambda buffer: buffer.batches(8, prefetch=2)), expected)


def test_total_draws_no_batch_too_many():
    plain, buffer = make(), make()
    ids = [batch.id for batch in buffer.batches(4, prefetch=3, total=5)]
    np.testing.assert_array_equal(ids, [batch.id for batch in plainly(plain, 4, 3, total=5)])
    np.testing.assert_array_equal(buffer.sample(4).id, plain.sample(4).id)
    assert buffer._parts.drawer is None


@pytest.mark.parametrize("ahead", [0, 2])
def test_trap_14_an_update_under_prefetch_reaches_its_steps(ahead):
    """ "Update applies to the last sample" would feed batch k's errors to batch k + prefetch."""
    buffer = ReplayBuffer(50, FIELDS, sampler=replay.Prioritized(alpha=1.0, beta=1.0), seed=1)
    buffer.extend(x=np.arange(50), y=np.ones((50, 2)))
    priority = np.ones(50)
    for turn, batch in enumerate(buffer.batches(8, prefetch=ahead, total=40)):
        fresh = 1.0 + batch.id % 5 + turn % 3
        assert buffer.update_priorities(batch.id, priority=fresh) == 8
        priority[batch.id] = fresh
        np.testing.assert_allclose(buffer.probabilities(np.arange(50)), priority / priority.sum(), rtol=1e-6)


def test_trap_14_a_step_overwritten_since_changes_nothing():
    buffer = ReplayBuffer(10, FIELDS, sampler=replay.Prioritized(alpha=1.0, beta=1.0), seed=1)
    buffer.extend(x=np.arange(10), y=np.ones((10, 2)))
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    buffer.extend(x=np.arange(10), y=np.ones((10, 2)))
    for _ in range(2):  # both were drawn ahead, of steps that are gone
        batch = next(batches)
        assert batch.id.max() < 10
        assert buffer.update_priorities(batch.id, np.full(8, 1000.0)) == 0
    assert next(batches).id.min() >= 10
    np.testing.assert_allclose(buffer.probabilities(np.arange(10, 20)), 0.1, rtol=1e-12)


class TestProgress:
    def test_a_function_of_the_batch_s_number(self):
        sampler = replay.Prioritized(beta=replay.Linear(0.2, 1.0))
        plain, buffer = make(sampler), make(sampler)
        expected = [batch.weight for batch in plainly(plain, 8, 2, 10, lambda k: k / 10)]
        got = [batch.weight for batch in buffer.batches(8, prefetch=2, total=10, progress=lambda k: k / 10)]
        np.testing.assert_array_equal(got, expected)

    def test_it_is_called_by_the_caller_when_the_batch_is_asked_for(self):
        asked = []
        batches = make().batches(8, prefetch=2, progress=lambda k: asked.append((k, threading.current_thread())) or 0.5)
        assert asked == []
        next(batches)
        assert [k for k, _ in asked] == [0, 1, 2]
        next(batches)
        assert [k for k, _ in asked] == [0, 1, 2, 3]
        assert {thread for _, thread in asked} == {threading.current_thread()}

    def test_past_the_end_it_fails_only_where_the_batch_is_taken(self):
        """So progress=lambda k: k / (turns − 1) needs no total."""
        batches = make(replay.Prioritized(beta=replay.Linear(0.2, 1.0))).batches(
            8, prefetch=2, progress=lambda k: k / 4
        )
        for _ in range(5):
            next(batches)
        with pytest.raises(ConfigError, match="progress"):
            next(batches)

    def test_a_number(self):
        batch = next(make(replay.Prioritized(beta=replay.Linear(0.2, 1.0))).batches(8, prefetch=1, progress=0.5))
        np.testing.assert_array_equal(batch.weight, make(replay.Prioritized(beta=0.6)).sample(8).weight)


class TestEnding:
    @pytest.fixture(autouse=True)
    def _no_thread_is_left(self):
        before = threading.active_count()
        yield
        gc.collect()
        assert threading.active_count() == before

    def test_closing_ends_the_thread_and_leaves_the_buffer_as_it_was(self):
        buffer = make()
        attributes = dict(buffer.__dict__)
        batches = buffer.batches(8, prefetch=2)
        next(batches)
        assert buffer._parts.drawer is not None
        assert buffer.__dict__["add"] == buffer._parts.core.add_step  # as fast as ever, and after
        batches.close()
        assert buffer.__dict__ == attributes
        with pytest.raises(StopIteration):
            next(batches)

    def test_break(self):
        buffer = make()
        for _ in buffer.batches(8, prefetch=2):
            break
        assert buffer._parts.drawer is None

    def test_never_begun(self):
        buffer = make()
        buffer.batches(8, prefetch=2).close()
        buffer.batches(8, prefetch=2)
        assert buffer._parts.drawer is None

    def test_dropped_with_its_buffer(self):
        batches = make().batches(8, prefetch=2)
        next(batches)
        del batches

    def test_closed_by_garbage_collection_while_another_asks(self, monkeypatch):
        batches = make().batches(8, prefetch=2)
        next(batches)
        cycle = [batches]
        cycle.append(cycle)
        del batches, cycle
        start = ThreadPoolExecutor._adjust_thread_count
        monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", lambda pool: (gc.collect(), start(pool)))
        asker = threading.Thread(target=lambda: next(make().batches(8, prefetch=1)), daemon=True)
        asker.start()
        asker.join(20)
        assert not asker.is_alive(), "it waits for a lock that it holds itself"

    def test_a_draws_error_is_raised_in_place_of_the_batch(self):
        batches = make(steps=0).batches(8, prefetch=2)
        with pytest.raises(EmptyBufferError):
            next(batches)

    def test_an_error_of_the_users_sampler_too(self):
        @dataclass(frozen=True)
        class Failing(replay.CustomSampler):
            def distribution(self, view, batch_size):
                if view.replay_counts.sum() >= 12:
                    raise OverflowError("enough")
                return np.full(len(view), 1 / len(view))

        buffer = make(Failing())
        seen = []
        with pytest.raises(OverflowError, match="enough"):
            seen.extend(batch.id for batch in buffer.batches(4, prefetch=2))
        assert len(seen) == 3
        assert buffer._parts.drawer is None

    def test_a_sampler_may_ask_the_buffer_itself(self):
        """In the background thread nothing waits, for it would wait for itself."""
        holder = []

        @dataclass(frozen=True)
        class Asking(replay.CustomSampler):
            def distribution(self, view, batch_size):
                holder[0].get(view.ids)
                holder[0].stats()
                holder[0].update_priorities(view.ids[:1], [1.0])
                holder[0].as_batch(view.ids[:1])
                return np.full(len(view), 1 / len(view))

        buffer = make(Asking())
        holder.append(buffer)
        batches = buffer.batches(4, prefetch=1)
        next(batches)
        next(batches)
        batches.close()

    def test_at_the_end_of_the_program(self):
        code = (
            "from replaylab import Field, ReplayBuffer\n"
            "buffer = ReplayBuffer(10, {'x': Field()}, seed=0)\n"
            "buffer.extend(x=[1.0, 2.0])\n"
            "batches = buffer.batches(4, prefetch=3)\n"
            "next(batches)\n"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert (run.returncode, run.stderr) == (0, "")


def test_the_draw_happens_while_the_caller_is_busy():
    started = threading.Event()

    class Watched(ReplayBuffer):
        def sample(self, *args, **kwargs):
            if threading.current_thread() is not threading.main_thread():
                started.set()
            return super().sample(*args, **kwargs)

    batches = make(kind=Watched).batches(4, prefetch=1)
    next(batches)
    assert started.wait(10)
    batches.close()


def test_several_threads_at_once():
    """Actors add while a learner draws ahead: nothing is lost and nothing hangs."""
    buffer = ReplayBuffer(1000, FIELDS, seed=0)
    buffer.extend(x=np.arange(100), y=np.ones((100, 2)))

    def act():
        for i in range(300):
            buffer.add(x=i, y=np.ones(2))

    actors = [threading.Thread(target=act) for _ in range(2)]
    for actor in actors:
        actor.start()
    for batch in buffer.batches(16, prefetch=2, total=200):
        assert buffer.update_priorities(batch.id, np.ones(16)) == 16
    for actor in actors:
        actor.join()
    assert len(buffer) == 700
