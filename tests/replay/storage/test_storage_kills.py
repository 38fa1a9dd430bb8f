"""Writers killed at random moments: nothing that was promised is lost, no row is torn, and nobody else waits.

Every row carries who wrote it, its number, and words that follow from the two, so that a torn one shows. Writers put
the number of the last step whose `add` returned where a kill does not reach it: that one is promised.
"""

import mmap
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from replaylab.errors import IdError
from replaylab.replay import Field, MemoryMap, NStep, Prioritized, ReplayBuffer, SharedMemory
from tests.replay.compiled import NEEDS_COMPILER, compiled

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(sys.platform != "linux", reason="rows outside the process need Linux"),
]

WORDS = 500  # of a row: 4 kB take long enough to be killed in the middle of
FIELDS = {
    "who": Field((), np.int64),
    "number": Field((), np.int64),
    "words": Field((WORDS,), np.int64),
    "reward": Field(),
    "next_obs": Field(),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}
PATIENCE = 20.0  # seconds: far above what any step takes on a busy machine


def words(who, number):
    return (who * 1_000_003 + np.asarray(number) * 31)[..., None] + np.arange(WORDS)


def make(storage, **options):
    return ReplayBuffer(1000, FIELDS, num_envs=2, storage=storage, **options)


def write(storage, who, first, promised):
    """Add steps of two environments for ever; `promised` tells the last id and number whose add returned."""
    buffer = make(storage)
    number = first
    while True:
        numbers = np.array([number, number + 1])
        ids = buffer.add(
            who=[who, who],
            number=numbers,
            words=words(who, numbers),
            reward=[1, 1],
            next_obs=[0, 0],
            terminated=numbers % 7 == 0,
            truncated=[False, False],
        )
        promised[0] = ids[1] << 32 | number + 1  # in one store
        number += 2


def read(storage, batches):
    """Draw batches for ever, each row whole."""
    buffer = make(storage, sampler=Prioritized(beta=0.4), transforms=(NStep(3),), seed=0)
    while len(buffer) == 0:
        time.sleep(0.001)
    while True:
        batch = buffer.sample(64)
        np.testing.assert_array_equal(batch.words, words(batch.who, batch.number), "a torn row")
        buffer.update_priorities(batch.id, batch.number % 3)
        batches[0] += 1


class Children:
    """Child processes that end only by being killed, or by an error."""

    def __init__(self):
        self.pids = set()

    def start(self, function, *args):
        """Run a function in a new child."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads here hold nothing that it needs
            pid = os.fork()
        if pid:
            self.pids.add(pid)
            return pid
        try:
            function(*args)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def kill(self, pid):
        self.pids.remove(pid)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "a process failed by itself; see its traceback"

    def kill_all(self):
        for pid in self.pids:  # first of all that none is left
            os.kill(pid, signal.SIGKILL)
        while self.pids:
            self.kill(next(iter(self.pids)))


@pytest.fixture
def children():
    children = Children()
    yield children
    children.kill_all()


def shared_number():
    """Return an int64 that children share."""
    return np.frombuffer(mmap.mmap(-1, 8), np.int64)


def check(buffer, promised):
    """Every stored row is whole, and each writer's numbers follow each other up to what it promised at least."""
    rows, width = None, 1000
    while rows is None:
        after = buffer._parts.core.counts()[1][0]
        ids = np.arange(max(0, after - width), after)
        try:
            rows = buffer.get(ids)
        except IdError:  # others have added so many in between
            width = max(1, width // 2)
    np.testing.assert_array_equal(rows["words"], words(rows["who"], rows["number"]), "a torn row")
    for who, reported in promised.items():
        numbers = rows["number"][rows["who"] == who]
        steps = np.diff(numbers)
        assert np.all((steps == 1) | (steps <= 0)), "a step of a writer's is missing"
        if reported < 0:
            continue
        id_, number = reported >> 32, reported & 0xFFFFFFFF
        assert id_ < after, "a promised step is lost"
        if id_ >= ids[0]:
            at = id_ - ids[0]
            assert (rows["who"][at], rows["number"][at]) == (who, number), "a promised id means another step"


def next_number(reported):
    return int(reported & 0xFFFFFFFF) + 1 if reported >= 0 else 0


def wait_for(counter, what):
    before, until = counter[0], time.monotonic() + PATIENCE
    while counter[0] == before:
        assert time.monotonic() < until, f"{what} does not continue"
        time.sleep(0.0005)


def kills_among_others(storage, children, times, seed):
    """Kill one writer again and again while another writes and a third process reads."""
    rng = np.random.default_rng(seed)
    buffer = make(storage)
    victim, other, batches = shared_number(), shared_number(), shared_number()
    victim[0] = other[0] = -1
    children.start(write, storage, 1, 0, other)
    children.start(read, storage, batches)
    pid = children.start(write, storage, 0, 0, victim)
    for _ in range(times):
        wait_for(victim, "the writer that was killed and started again")
        time.sleep(rng.uniform(0, 0.003))
        children.kill(pid)
        check(buffer, {0: int(victim[0]), 1: int(other[0])})
        wait_for(other, "another writer")
        wait_for(batches, "a reader")
        pid = children.start(write, storage, 0, next_number(victim[0]), victim)
    children.kill_all()
    check(buffer, {0: int(victim[0]), 1: int(other[0])})


def kills_alone(storage, children, times, seed):
    """Kill the only process that has the file open, and open it again."""
    rng = np.random.default_rng(seed)
    promised = shared_number()
    promised[0] = -1
    for _ in range(times):
        pid = children.start(write, storage, 0, next_number(promised[0]), promised)
        wait_for(promised, "the writer")
        time.sleep(rng.uniform(0, 0.003))
        children.kill(pid)
        buffer = make(storage)
        check(buffer, {0: int(promised[0])})
        assert len(buffer) == min(1000, buffer._parts.core.counts()[1][0])


@pytest.fixture
def shared():
    storage = SharedMemory(f"replaylab-test-{uuid4().hex}", writers=8)
    yield storage
    storage.unlink()


@pytest.fixture
def mapped(tmp_path):
    return MemoryMap(tmp_path / "rows", writers=8)


@pytest.mark.parametrize("kind", ["shared", "mapped"])
class TestKills:
    @pytest.mark.parametrize("kills", [kills_among_others, kills_alone])
    def test_six(self, kind, kills, children, request):
        kills(request.getfixturevalue(kind), children, 6, seed=1)

    @pytest.mark.slow
    @pytest.mark.parametrize("kills", [kills_among_others, kills_alone])
    def test_two_hundred(self, kind, kills, children, request):
        kills(request.getfixturevalue(kind), children, 200, seed=2)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(5.0, marks=pytest.mark.slow)])
def test_four_processes_at_once(shared, children, seconds):
    """Three write, one reads, and this one looks on."""
    buffer = make(shared)
    promised, batches = [shared_number() for _ in range(3)], shared_number()
    for number in promised:
        number[0] = -1
    for who in range(3):
        children.start(write, shared, who, 0, promised[who])
    children.start(read, shared, batches)
    start = time.monotonic()

    def are_all_under_way():
        return batches[0] > 0 and min(next_number(number[0]) for number in promised) > 100

    while (took := time.monotonic() - start) < seconds or (took < PATIENCE and not are_all_under_way()):
        check(buffer, {who: int(number[0]) for who, number in enumerate(promised)})
    children.kill_all()
    check(buffer, {who: int(number[0]) for who, number in enumerate(promised)})
    assert are_all_under_way()


@pytest.fixture(scope="module")
def probe():
    sources = [f"storage/{name}.cpp" for name in ("mapped_rows", "mapped_file")]
    probe = Path(__file__).with_name("mapped_rows_probe.cpp")
    return compiled(probe, sources, "-O2", "-pthread", "-DREPLAYLAB_PROBE")


@NEEDS_COMPILER
class TestBetweenAnyTwoStores:
    """The core's part alone, compiled so that writers die, or stop for a while, between two stores they do."""

    @pytest.mark.parametrize("ring", ["large", "small"])
    @pytest.mark.parametrize(
        ("what", "amount"),
        [
            ("deaths", "100"),
            ("race", "0.3"),
            pytest.param("kills", "200", marks=pytest.mark.slow),
            pytest.param("deaths", "2000", marks=pytest.mark.slow),
        ],
    )
    def test_probe(self, probe, tmp_path, what, amount, ring):
        done = subprocess.run(
            [probe, tmp_path / "rows", what, amount, "1", ring], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout
