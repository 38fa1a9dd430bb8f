"""Other threads, signal handlers and callbacks beside what reads a whole buffer: `save`, `stats`, `part`, `repr`."""

import sys
import threading
import time

import numpy as np
import pytest

from replaylab.errors import SnapshotError
from replaylab.files.bundle import Bundle, Draft
from replaylab.files.folder import Folder
from replaylab.replay import Field, Prioritized, ReplayBuffer, snapshot
from tests.replay.buffers import Even
from tests.replay.threads.alone import repeat_together, run_alone


def test_figures_do_not_wait_for_a_save_or_stats():
    """One took the core's lock with Python's held, the other Python's with the core's held."""
    run_alone(
        """
        sys.setswitchinterval(1e-6)
        buffer = ReplayBuffer(20_000, {"x": Field((4,))}, seed=0)
        buffer.extend(x=np.zeros((20_000, 4)))
        end = time.monotonic() + 0.7
        def figures():
            while time.monotonic() < end:
                buffer.nbytes, repr(buffer), buffer._repr_html_(), buffer.size, len(buffer)
        def whole():
            while time.monotonic() < end:
                buffer.stats()
                buffer.save(sys.argv[1])
        threads = [threading.Thread(target=work) for work in (figures, figures, whole)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """,
        "/tmp/replaylab-test-figures",
    )


IN_HANDLER = """
from replaylab.replay import CustomSampler, LaBER, Prioritized
from replaylab.errors import SnapshotError
from replaylab.replay import snapshot
from dataclasses import dataclass
@dataclass(frozen=True)
class Even(CustomSampler):
    def distribution(self, view, batch_size):
        return np.full(len(view), 1 / len(view))
samplers = {"core": Prioritized(beta=0.4), "python": Even(), "rescored": LaBER(lambda pool: pool.x[:, 0] + 1)}
buffer = ReplayBuffer(20_000, {"x": Field((8,))}, sampler=samplers[sys.argv[1]], seed=0)
buffer.extend(x=np.arange(160_000).reshape(20_000, 8))
calls, adding, distribution = [], [], sys.argv[1] != "rescored"
def save(path):
    try:
        buffer.save(path)
    except SnapshotError as error:
        assert "has interrupted save() of the same buffer" in str(error), error
def act(*_):
    if not adding:
        calls.append(1)
        ACTION
    signal.setitimer(signal.ITIMER_REAL, 0.003)
signal.signal(signal.SIGALRM, act)
"""


@pytest.mark.parametrize("sampler", ["core", "python", "rescored"])
@pytest.mark.parametrize(
    "action",
    [
        "save(sys.argv[2])",
        "save(sys.argv[2] + '-other')",
        "distribution and buffer.stats(batch_size=4), repr(buffer), buffer.nbytes, buffer.get([19_999])",
        "batch = buffer.sample(4); buffer.update_priorities(batch.id, np.ones(4));"
        "distribution and buffer.probabilities([1], batch_size=4)",
    ],
    ids=["save", "save elsewhere", "figures", "learn"],
)
def test_a_signal_handler_may_use_the_buffer_while_it_is_saved(tmp_path, sampler, action):
    code = IN_HANDLER.replace("ACTION", action) + (
        "signal.setitimer(signal.ITIMER_REAL, 0.003)\n"
        "for k in range(6):\n    buffer.save(sys.argv[2])\n"
        # A signal in the middle of `add` is another test's matter. A mask would not hold it off: it is this thread's
        # alone, and the kernel hands the signal to any other (NumPy's own, say), whose handler Python runs here.
        "    adding.append(1)\n    buffer.add(x=np.full(8, k))\n    adding.clear()\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"  # stopping the timer is not enough: a last handler sets it
        "buffer.save(sys.argv[2])\n"
        "assert calls\n"
        "again = ReplayBuffer.load(sys.argv[2], sampler=None if sys.argv[1] == 'core' else buffer.sampler)\n"
        "assert (again.get(np.arange(6, 20_006))['x'] == buffer.get(np.arange(6, 20_006))['x']).all()\n"
        "assert (again.sample(64).id == buffer.sample(64).id).all()\n"
    )
    run_alone(code, sampler, tmp_path / "kept", seconds=60)


@pytest.mark.parametrize("where", ["write", "rename", "clean"])
def test_a_handler_that_saves_within_a_save_is_refused(tmp_path, monkeypatch, where):
    """To the same folder and to another; the save that it interrupts is complete."""
    buffer = ReplayBuffer(100, {"x": Field()}, sampler=Prioritized(beta=0.4), seed=0)
    buffer.extend(x=np.arange(100.0))
    folder, calls = tmp_path / "kept", []
    buffer.save(folder)
    buffer.extend(x=np.arange(50.0))
    kind, name = {"write": (Draft, "arrays"), "rename": (Folder, "replace"), "clean": (Bundle, "_tidy")}[where]
    unchanged = getattr(kind, name)

    def interrupted(*args):
        calls.append(args)
        if len(calls) == (2 if where == "clean" else 1):
            for other in (folder, tmp_path / "other"):
                with pytest.raises(SnapshotError, match=r"has interrupted save\(\) of the same buffer"):
                    buffer.save(other)
            twin.save(tmp_path / "twin")
        return unchanged(*args)

    twin = ReplayBuffer(100, {"x": Field()}, seed=0)
    monkeypatch.setattr(kind, name, interrupted)
    buffer.save(folder)
    assert len(calls) >= (2 if where == "clean" else 1)
    assert not (tmp_path / "other").exists()
    assert len(ReplayBuffer.load(tmp_path / "twin")) == 0
    again = ReplayBuffer.load(folder)
    np.testing.assert_array_equal(again.get(np.arange(50, 150))["x"], buffer.get(np.arange(50, 150))["x"])
    np.testing.assert_array_equal(again.sample(8).id, buffer.sample(8).id)
    buffer.save(folder)
    listed = {entry["file"] for entry in snapshot.read_manifest(folder).files.values()} | {"manifest.json"}
    assert {file.name for file in folder.iterdir()} == listed


def test_a_handler_that_adds_while_rows_are_written_is_refused(tmp_path, monkeypatch):
    buffer = ReplayBuffer(100, {"x": Field()}, seed=0)
    buffer.extend(x=np.arange(100.0))
    listed, errors = Draft.arrays, []

    def adding(*args):
        for add in (lambda: buffer.add(x=1.0), lambda: buffer.extend(x=[1.0, 2.0])):
            with pytest.raises(SnapshotError) as error:
                add()
            errors.append(str(error.value))
        return listed(*args)

    monkeypatch.setattr(Draft, "arrays", adding)
    buffer.save(tmp_path)
    assert errors[0] == (
        "steps cannot be added or changed by the thread that is saving the buffer, from a signal handler or a "
        "callback; do so after save() has returned"
    )
    monkeypatch.undo()
    assert buffer.add(x=1.0) == 100
    assert len(ReplayBuffer.load(tmp_path)) == 100


@pytest.mark.parametrize("custom", [False, True])
def test_what_other_threads_do_while_rows_are_written(tmp_path, monkeypatch, custom):
    """They draw and feed back; what they add waits, and comes after."""
    sampler = Even() if custom else Prioritized(beta=0.4)
    buffer = ReplayBuffer(100, {"x": Field()}, sampler=sampler, seed=0)
    buffer.extend(x=np.arange(100.0))
    writing, write_on, done = threading.Event(), threading.Event(), []
    listed = Draft.arrays

    def slowly(*args):
        writing.set()
        assert write_on.wait(20)
        return listed(*args)

    monkeypatch.setattr(Draft, "arrays", slowly)

    def learn():
        batch = buffer.sample(8)
        buffer.update_priorities(batch.id, np.ones(8))
        buffer.stats(batch_size=8)
        buffer.as_batch([5])
        done.append("learned")

    def add():
        buffer.add(x=-1.0)
        done.append("added")

    saver = threading.Thread(target=buffer.save, args=(tmp_path,))
    saver.start()
    assert writing.wait(20)
    others = [threading.Thread(target=add), threading.Thread(target=learn)]
    for other in others:
        other.start()
    others[1].join(20)
    time.sleep(0.1)
    assert done == ["learned"]
    write_on.set()
    for thread in (saver, *others):
        thread.join(20)
    assert done == ["learned", "added"]
    assert len(ReplayBuffer.load(tmp_path, sampler=sampler if custom else None)) == 100
    assert buffer.get([100])["x"] == -1.0


def test_a_save_that_is_interrupted_lets_others_add(tmp_path, monkeypatch):
    buffer = ReplayBuffer(100, {"x": Field()}, seed=0)
    buffer.extend(x=np.arange(100.0))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Draft, "arrays", interrupted)
    with pytest.raises(KeyboardInterrupt):
        buffer.save(tmp_path)
    monkeypatch.undo()
    adder = threading.Thread(target=lambda: buffer.add(x=1.0), daemon=True)
    adder.start()
    adder.join(10)
    assert not adder.is_alive()


def test_snapshots_taken_beside_all_else_are_of_one_moment(tmp_path):
    """Every row holds its id; each step of a snapshot is whole, and its priorities belong to its steps."""
    buffer = ReplayBuffer(500, {"x": Field((16,), np.int64)}, sampler=Prioritized(alpha=1.0, beta=0.4), seed=0)
    buffer.extend(x=np.arange(500)[:, None] + np.zeros((1, 16), np.int64))

    next_x = [500]

    def add():
        buffer.add(x=np.full(16, next_x[0]))
        next_x[0] += 1

    def learn():
        batch = buffer.sample(16)
        buffer.update_priorities(batch.id, priority=np.asarray(batch.x[:, 0] % 7 + 1.0))

    def save():
        folder = tmp_path / threading.current_thread().name
        buffer.save(folder)
        again = ReplayBuffer.load(folder)
        newest = again._parts.core.counts()[1][0]
        ids = np.arange(newest - 500, newest)
        assert (again.get(ids)["x"] == ids[:, None]).all()
        assert again.probabilities(ids).sum() == pytest.approx(1, rel=1e-9)

    repeat_together((add, learn, save, save))


ASKING = """
from replaylab.replay import CustomSampler, LaBER, Oracle
from dataclasses import dataclass
def ask(ids):
    buffer.sampler.has_closed_form and buffer.stats()
    repr(buffer), buffer.size, buffer.nbytes, buffer.get(ids[:1]), buffer.as_batch(ids[:1])
    buffer.update_priorities(ids[:1], np.ones(1)), buffer.save(sys.argv[2]), buffer.end_episode()
    buffer.add(x=2.0)
@dataclass(frozen=True)
class Asking(CustomSampler):
    def distribution(self, view, batch_size):
        ask(view.ids)
        return np.full(len(view), 1 / len(view))
    def weights(self, view, probabilities, progress):
        ask(view.ids)
        return np.ones(len(probabilities))
samplers = {
    "distribution": Asking(),
    "oracle": Oracle(lambda ids: (ask(ids), -ids)[1]),
    "laber": LaBER(lambda pool: (ask(pool.id), np.ones(len(pool.id)))[1]),
}
# Never full: the step that a callback's own `add` drops may be one that is drawn.
buffer = ReplayBuffer(100_000, {"x": Field()}, sampler=samplers[sys.argv[1]], seed=0)
buffer.extend(x=np.arange(50.0))
"""


@pytest.mark.parametrize("sampler", ["distribution", "oracle", "laber"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside an actor and a prefetching learner"])
def test_callbacks_may_use_the_buffer(tmp_path, sampler, beside):
    if not beside:
        run_alone(ASKING + "for _ in range(5): buffer.sample(4)\n", sampler, tmp_path)
        return
    run_alone(
        ASKING
        + """
sys.setswitchinterval(1e-5)
end = time.monotonic() + 0.4
def act():
    while time.monotonic() < end:
        buffer.add(x=1.0)
def draw():
    while time.monotonic() < end:
        buffer.sample(4)
threads = [threading.Thread(target=work) for work in (act, draw)]
[thread.start() for thread in threads]
for batch in buffer.batches(4, prefetch=2):
    buffer.update_priorities(batch.id, np.ones(4))
    if time.monotonic() > end: break
[thread.join() for thread in threads]
""",
        sampler,
        tmp_path,
    )


def test_ctrl_c_reaches_a_thread_that_waits_for_a_save(tmp_path):
    out = run_alone(
        """
        from replaylab.files.bundle import Draft
        buffer = ReplayBuffer(100, {"x": Field()}, seed=0)
        buffer.extend(x=np.arange(100.0))
        writing, write_on, listed = threading.Event(), threading.Event(), Draft.arrays
        def slowly(*args):
            writing.set()
            write_on.wait()
            return listed(*args)
        Draft.arrays = slowly
        saver = threading.Thread(target=buffer.save, args=(sys.argv[1],))
        saver.start()
        writing.wait()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            buffer.add(x=1.0)
        except KeyboardInterrupt:
            print("interrupted", len(buffer), buffer._parts.core.counts()[1][0])
        write_on.set()
        saver.join()
        print(buffer.add(x=1.0))
        """,
        tmp_path,
    )
    assert out.split() == ["interrupted", "100", "100", "100"]


def test_a_handler_that_interrupts_an_add_is_reported(tmp_path):
    """With a sampler in Python: its record of the step is not written yet, and a snapshot would lack it."""
    buffer = ReplayBuffer(100, {"x": Field()}, sampler=Even(), seed=0)
    buffer.extend(x=np.arange(10.0))
    (record,) = buffer._parts.engine._records
    stored, errors = record.stored, []

    def interrupted(*args):
        for call in (lambda: buffer.save(tmp_path), lambda: buffer.add(x=1.0)):
            with pytest.raises(SnapshotError, match="a signal handler has interrupted `add` half-way") as error:
                call()
            errors.append(error)
        buffer.sample(4)
        stored(*args)

    record.stored = interrupted
    buffer.add(x=1.0)
    assert len(errors) == 2
    del record.stored
    assert buffer.add(x=1.0) == 11
    buffer.save(tmp_path)
    assert len(ReplayBuffer.load(tmp_path, sampler=Even())) == 12


def test_the_test_can_fail():
    with pytest.raises(AssertionError, match="Timeout"):
        run_alone("lock = threading.Lock()\nlock.acquire()\nlock.acquire()\n", seconds=1)


def test_a_restored_buffer_is_never_half_there(tmp_path):
    """Between any two of its lines a signal handler, or another thread, may draw."""
    buffer = ReplayBuffer(100, {"x": Field()}, sampler=Prioritized(beta=0.4), seed=0)
    buffer.extend(x=np.arange(100.0))
    buffer.save(tmp_path)
    drawn = []

    def watch(frame, event, _):
        if frame.f_code.co_name == "restore" and event in ("line", "return"):
            drawn.append(len(buffer.sample(4).id))
        return watch

    before = sys.gettrace()  # coverage's, maybe
    sys.settrace(watch)
    try:
        buffer.restore(tmp_path)
    finally:
        sys.settrace(before)
    assert len(drawn) > 10


def test_a_save_in_the_midst_of_a_clear_keeps_no_row_of_before(tmp_path):
    """With compressed values, whose segments are gone."""
    values = np.random.default_rng(0).integers(0, 3, (64, 4096)).astype(np.uint8)
    buffer = ReplayBuffer(64, {"x": Field((4096,), np.uint8, compressed=True)}, seed=0)
    buffer.extend(x=values)
    buffer.save(tmp_path)

    class Saves(dict):
        """A signal comes just before the buffer forgets what it has saved."""

        def clear(self):
            buffer.save(tmp_path)
            super().clear()

    buffer._parts.saved = Saves(buffer._parts.saved)
    buffer.clear()
    assert len(ReplayBuffer.load(tmp_path)) == 0
    buffer._parts.saved = {}
    ids = buffer.extend(x=values)
    buffer.save(tmp_path)
    np.testing.assert_array_equal(ReplayBuffer.load(tmp_path).get(ids)["x"], values)
