"""A process forked while other threads use its buffers: the child works, or says why not. It never hangs."""

import pytest

from tests.replay.threads.alone import run_alone

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

FORKING = '''
import multiprocessing, warnings
warnings.simplefilter("ignore")
from dataclasses import dataclass
from replaylab.errors import ReplayError
from replaylab.replay import CustomSampler, Hindsight, LaBER, MemoryMap, Prioritized
@dataclass(frozen=True)
class Even(CustomSampler):
    def distribution(self, view, batch_size):
        return np.full(len(view), 1 / len(view))
samplers = {"core": Prioritized(beta=0.4), "python": Even(), "rescored": LaBER(lambda pool: pool.x[:, 0] + 1)}
def make(**options):
    buffer = ReplayBuffer(5000, {"x": Field((64,))}, sampler=samplers[sys.argv[1]], seed=0, **options)
    buffer.extend(x=np.ones((5000, 64)))
    return buffer
def use(buffer, ahead=True):
    buffer.add(x=np.ones(64))
    batch = buffer.sample(16)
    buffer.update_priorities(batch.id, np.ones(16))
    buffer.sampler.has_closed_form and buffer.stats(batch_size=4)
    buffer.nbytes, buffer.get(batch.id), buffer.end_episode()
    buffer.save(f"{sys.argv[2]}-{os.getpid()}")
    if ahead:
        assert [len(batch.id) for batch in buffer.batches(8, prefetch=2, total=3)] == [8, 8, 8]
    if not buffer.sampler.has_closed_form:
        return 1.0
    newest = buffer._parts.core.counts()[1][0]
    return float(buffer.probabilities(np.arange(newest - 5000, newest), batch_size=4).sum())
def reseed():
    """Let the child draw; a buffer whose Python half may be incomplete raises as its other calls do."""
    try:
        buffer.reseed(os.getpid())
    except ReplayError as error:
        assert "forked while another thread was drawing" in str(error), error
def in_child(work, reseeded=True):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            if reseeded:
                reseed()
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
def work_or_refuse():
    """Check; a buffer whose sampler runs in Python may refuse instead, if a thread was drawing during the fork."""
    try:
        check()
    except ReplayError as error:
        assert sys.argv[1] != "core" and "forked while another thread was drawing" in str(error), error
        try:
            buffer.sample(4)
            raise AssertionError
        except ReplayError:
            pass
'''


@pytest.mark.parametrize("sampler", ["core", "python", "rescored"])
def test_while_other_threads_use_the_buffer(tmp_path, sampler):
    run_alone(
        FORKING
        + """
buffer, stop = make(), threading.Event()
def repeat(action):
    def work():
        while not stop.is_set():
            action()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
threads = [
    repeat(lambda: buffer.sample(500)),
    repeat(lambda: buffer.add(x=np.ones(64))),
    repeat(lambda: buffer.save(sys.argv[2])),
]
def check():
    assert abs(use(buffer) - 1) < 1e-6
for _ in range(5):
    in_child(work_or_refuse)
stop.set()
[thread.join() for thread in threads]
check()
""",
        sampler,
        tmp_path / "kept",
        seconds=60,
    )


@pytest.mark.parametrize("sampler", ["core", "python", "rescored"])
def test_while_batches_are_drawn_ahead(tmp_path, sampler):
    """The buffer works or refuses in the child; of what the parent's thread draws there is nothing to wait for."""
    run_alone(
        FORKING
        + """
buffer = make()
batches = buffer.batches(2000, prefetch=3)
def check():
    assert abs(use(buffer) - 1) < 1e-6
    try:
        for _ in range(10): next(batches)
        raise AssertionError
    except ReplayError as error:
        assert "in the process that this one was forked from" in str(error), error
    batches.close()
    assert abs(use(buffer) - 1) < 1e-6
for _ in range(4):
    next(batches)
    in_child(work_or_refuse)
next(batches)
batches.close()
use(buffer)
""",
        sampler,
        tmp_path / "kept",
        seconds=60,
    )


@pytest.mark.parametrize("sampler", ["core", "python", "rescored"])
def test_a_child_forked_when_a_draw_made_ahead_begins_works(tmp_path, sampler):
    """The thread that draws ahead holds the buffer's lock, but uses no state in Python yet."""
    run_alone(
        FORKING
        + """
parent, inside, leave = os.getpid(), threading.Event(), threading.Event()
class Slow(ReplayBuffer):
    def sample(self, *args, **kwargs):
        if os.getpid() == parent and threading.current_thread() is not threading.main_thread():
            inside.set()
            leave.wait()
        return super().sample(*args, **kwargs)
ReplayBuffer = Slow
buffer = make()
batches = buffer.batches(8, prefetch=1)
thread = threading.Thread(target=next, args=(batches,))
thread.start()
inside.wait()
def check():
    assert abs(use(buffer) - 1) < 1e-6
for _ in range(2):
    in_child(lambda: (check(), in_child(check)))
leave.set()
thread.join()
batches.close()
check()
""",
        sampler,
        tmp_path / "kept",
        seconds=40,
    )


def test_multiprocessing_fork_with_a_prefetching_buffer(tmp_path):
    run_alone(
        FORKING
        + """
buffer = make()
batches = buffer.batches(2000, prefetch=3)
def child():
    buffer.reseed(1)
    use(buffer)
for _ in range(5):
    next(batches)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(15)
    assert process.exitcode == 0, process.exitcode
""",
        "core",
        tmp_path / "kept",
        seconds=60,
    )


def test_a_child_forked_inside_a_sampler(tmp_path):
    run_alone(
        FORKING
        + """
@dataclass(frozen=True)
class Forking(CustomSampler):
    def distribution(self, view, batch_size):
        if not seen:
            seen.append(1)
            in_child(lambda: use(buffer, ahead=False))
        return np.full(len(view), 1 / len(view))
seen = []
samplers["python"] = Forking()
buffer = make()
buffer.sample(4)
assert seen
""",
        "python",
        tmp_path / "kept",
    )


def test_a_child_of_a_thread_stuck_in_a_sampler_is_reported_so(tmp_path):
    """The record that its Python half keeps may be half written: no answer would be right."""
    run_alone(
        FORKING
        + """
inside, leave = threading.Event(), threading.Event()
@dataclass(frozen=True)
class Slow(CustomSampler):
    def distribution(self, view, batch_size):
        inside.set()
        leave.wait()
        return np.full(len(view), 1 / len(view))
samplers["python"] = Slow()
buffer = make()
thread = threading.Thread(target=buffer.sample, args=(4,))
thread.start()
inside.wait()
def check():
    assert buffer.size == 5000 and buffer.get([4999])["x"].sum() == 64
    for call in (lambda: buffer.sample(4), lambda: buffer.add(x=np.ones(64)), lambda: buffer.save(sys.argv[2])):
        try:
            call()
            raise AssertionError
        except ReplayError as error:
            assert "forked while another thread" in str(error), error
in_child(check)
leave.set()
thread.join()
in_child(lambda: None)
""",
        "python",
        tmp_path / "kept",
    )


def test_learners_too(tmp_path):
    run_alone(
        FORKING
        + """
from replaylab import _core
learners = _core.QLearners(
    shape=[4, 1, 1], convolutions=[], hidden=[256, 256], actions=2, replicas=4, dueling=False, is_double=True,
    huber=True, max_grad_norm=10.0, least=-1e30, most=1e30, tau=1.0, target_period=100,
    optimizer=("adam", 0.9, 0.999, 1e-8))
obs, stop = np.ones((4, 64, 4), np.float32), threading.Event()
def work():
    while not stop.is_set(): learners.q_values(obs)
thread = threading.Thread(target=work)
thread.start()
for _ in range(8):
    in_child(lambda: learners.q_values(obs), reseeded=False)
stop.set()
thread.join()
""",
        "core",
        tmp_path,
    )


@pytest.mark.parametrize("sampler", ["core", "python", "rescored"])
def test_nothing_is_imported_by_what_threads_do(tmp_path, sampler):
    """A child forked while a thread imports a module would wait for that module's lock for ever."""
    run_alone(
        FORKING
        + """
buffer = make()
before = set(sys.modules)
use(buffer, ahead=False)
assert set(sys.modules) == before, set(sys.modules) - before
""",
        sampler,
        tmp_path / "kept",
    )
