"""Guarantee 9: the GIL is free while the core works, and concurrent calls are safe."""

import math
import sys
import threading
import time

import numpy as np
import pytest

from replaylab.replay import Aged, Combined, Field, Prioritized, ReplayBuffer, Uniform
from tests.replay.threads.alone import repeat_together

# Wide enough that a row is copied in many pieces, so that a torn row would show.
FIELDS = {
    "stamp": Field((), np.int64),
    "wide": Field((300,), np.int64),
    "narrow": Field((), np.float64),
    "half": Field((50,), np.int32),
}


def stamped(start, lead):
    """Steps whose every field holds the step's stamp."""
    stamp = start + np.arange(math.prod(lead)).reshape(lead)
    return {
        "stamp": stamp,
        "wide": np.broadcast_to(stamp[..., None], (*lead, 300)),
        "narrow": stamp.astype(np.float64),
        "half": np.broadcast_to(stamp[..., None], (*lead, 50)).astype(np.int32),
    }


def assert_one_stamp(batch):
    stamp = np.asarray(batch["stamp"])
    assert (batch["wide"] == stamp[..., None]).all()
    assert (batch["narrow"] == stamp).all()
    assert (batch["half"] == stamp[..., None]).all()


def hammer(seconds, sampler, replicas):
    """Add, sample, update, write and remove together, each in a thread; return how often each came round."""
    buffer = ReplayBuffer(97, FIELDS, sampler=sampler, replicas=replicas, seed=0)
    lead = () if replicas is None else (replicas,)
    buffer.extend(**stamped(0, (*lead, 97)))
    names = "add", "sample", "update", "write", "remove"
    rounds, errors, stop = dict.fromkeys(names, 0), [], threading.Event()
    last_ids = [buffer.sample(16, progress=0.5).id]

    def repeat(name, action):
        try:
            while not stop.is_set():
                action(rounds[name])
                rounds[name] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    def add(k):
        T = 1 + k % 7
        ids = buffer.extend(**stamped(1000 + 100 * k, (*lead, T)))
        assert (np.diff(ids) == 1).all()

    def sample(k):
        batch = buffer.sample(16, progress=0.5)
        assert_one_stamp(batch)
        assert (batch.probability > 0).all()
        last_ids[0] = batch.id

    rng = np.random.default_rng(1)

    def update(k):
        ids = last_ids[0]
        still = buffer.update_priorities(ids, rng.exponential(size=ids.shape))
        assert 0 <= still <= ids.size

    def write(k):
        ids = last_ids[0]
        assert 0 <= buffer.write(ids, **stamped(1_000_000 + 100 * k, ids.shape)) <= ids.size

    def remove(k):
        if len(buffer) > 60:
            assert 0 <= buffer.remove(last_ids[0][..., :2]) <= 2 * (replicas or 1)

    actions = zip(names, (add, sample, update, write, remove), strict=True)
    threads = [threading.Thread(target=repeat, args=pair) for pair in actions]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # hand the interpreter over far more often than usual
    try:
        for thread in threads:
            thread.start()
        for _ in range(20):  # where the machine is loaded, longer
            if stop.wait(seconds) or min(rounds.values()) > 10:
                break
        stop.set()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    ids = np.arange(buffer.add(**stamped(5, lead)) + 1 if replicas is None else 0)
    if replicas is None:
        np.testing.assert_allclose(buffer.probabilities(ids, batch_size=16).sum(), 1, rtol=1e-9)
    return rounds


@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize(
    "sampler", [Uniform(), Prioritized(), Combined(), Aged(Prioritized(), half_life=30.0)], ids=repr
)
def test_all_that_changes_a_buffer_at_once(sampler, replicas):
    rounds = hammer(0.4, sampler, replicas)
    assert min(rounds.values()) > 10


def test_several_of_each_lose_no_step():
    """Ids handed to three adding threads are all different and leave no gap."""
    buffer = ReplayBuffer(100, FIELDS, sampler=Prioritized(beta=0.4), num_envs=4, seed=0)
    buffer.extend(**stamped(0, (25, 4)))
    returned = []

    def add():
        returned.append(buffer.add(**stamped(1000, (4,))))

    def learn():
        batch = buffer.sample(8)
        assert_one_stamp(batch)
        buffer.update_priorities(batch.id, np.ones(8))
        buffer.probabilities(batch.id)
        buffer.columns["stamp"].max()
        assert len(buffer) == 100

    repeat_together((add, learn) * 3, seconds=0.5)
    ids = np.sort(np.concatenate(returned))
    np.testing.assert_array_equal(ids, np.arange(100, 100 + len(ids)))
    newest = np.arange(ids[-1] - 99, ids[-1] + 1)
    assert buffer.probabilities(newest).sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.slow
def test_ten_seconds_of_it():
    rounds = hammer(10, Prioritized(), None)
    assert min(rounds.values()) > 100


def test_the_test_can_fail():
    batch = stamped(0, (4,))
    batch["wide"] = batch["wide"].copy()
    batch["wide"][2, 150:] += 1
    with pytest.raises(AssertionError):
        assert_one_stamp(batch)


def ticks_inside(call):
    """Count how often this thread gets to run strictly inside `call`, which runs in another thread."""
    begin, end, ticks, errors = [], [], [], []

    def work():
        begin.append(time.perf_counter())
        try:
            call()
        except BaseException as error:
            errors.append(error)
        end.append(time.perf_counter())

    worker = threading.Thread(target=work)
    worker.start()
    while not end:
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    worker.join()
    if errors:
        raise errors[0]
    margin = 0.1 * (end[0] - begin[0])
    return sum(begin[0] + margin < tick < end[0] - margin for tick in ticks)


@pytest.mark.no_sanitizer
class TestTheInterpreterRunsOn:
    """While the core works on one big call, another Python thread keeps running."""

    def buffer(self):
        buffer = ReplayBuffer(300_000, {"x": Field((16,))}, sampler=Prioritized(beta=0.4), seed=0)
        buffer.extend(x=np.zeros((300_000, 16), np.float32))
        return buffer

    def test_sample(self):
        buffer = self.buffer()
        assert ticks_inside(lambda: buffer.sample(2_000_000)) > 5

    def test_update_priorities(self):
        buffer = self.buffer()
        ids, td_error = np.random.default_rng(0).integers(0, 300_000, 4_000_000), np.ones(4_000_000)
        assert ticks_inside(lambda: buffer.update_priorities(ids, td_error)) > 5

    def test_extend(self):
        buffer, x = self.buffer(), np.zeros((4_000_000, 16), np.float32)
        assert ticks_inside(lambda: buffer.extend(x=x)) > 5

    def test_the_test_can_fail(self):
        text = "a" * 40_000
        assert ticks_inside(lambda: text.replace("a", "b" * 10_000)) <= 2  # one call that holds the interpreter
