"""Arrays that another thread writes to while the core reads them: what was checked is what is used."""

import pytest

from tests.replay.threads.alone import run_alone

CHANGING = """
from replaylab.errors import ConfigError, IdError, PriorityError
from replaylab.replay import Hindsight, Prioritized
sys.setswitchinterval(1e-5)
def beside(change, call, *kinds):
    # Calls while another thread changes; only these errors may come.
    stop, seen = threading.Event(), []
    def work():
        while not stop.is_set():
            change()
    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        try:
            call()
        except kinds as error:
            seen.append(error)
    stop.set()
    thread.join()
    return seen
"""


@pytest.mark.parametrize("call", ["update_priorities(ids, errors)", "probabilities(ids)", "get(ids)", "as_batch(ids)"])
def test_ids(call):
    run_alone(
        CHANGING
        + f"""
buffer = ReplayBuffer(1000, {{"x": Field((4,))}}, sampler=Prioritized(beta=0.4), seed=0)
buffer.extend(x=np.zeros((1000, 4)))
ids, errors = np.arange(50_000) % 1000, np.ones(50_000)
def change():
    ids[-1] = 2**60
    ids[-1] = 999
beside(change, lambda: buffer.{call}, IdError)
assert abs(buffer.probabilities(np.arange(1000)).sum() - 1) < 1e-9
"""
    )


def test_td_errors():
    run_alone(
        CHANGING
        + """
buffer = ReplayBuffer(1000, {"x": Field((4,))}, sampler=Prioritized(beta=0.4), seed=0)
buffer.extend(x=np.zeros((1000, 4)))
ids, errors = np.arange(50_000) % 1000, np.ones(50_000)
def change():
    errors[-1] = np.nan
    errors[-1] = 1.0
def call():
    buffer.update_priorities(ids, errors)
    distribution = buffer.probabilities(np.arange(1000))
    assert np.isfinite(distribution).all() and abs(distribution.sum() - 1) < 1e-9
beside(change, call, PriorityError)
"""
    )


def test_compressed_values():
    """A packed difference refers to the stored bytes, not to the caller's current ones."""
    run_alone(
        CHANGING
        + """
buffer = ReplayBuffer(300, {"x": Field((20_000,), np.uint8, compressed=True)}, seed=0)
noise = np.random.default_rng(0).integers(0, 256, 20_000, np.uint8)
steps = np.tile(noise, (200, 1))
steps[1:, 0] = np.arange(1, 200)
def change():
    steps[0, -1] ^= 1
def call():
    ids = buffer.extend(x=steps)
    got = buffer.get(ids)["x"][1:]
    assert (got[:, -1] == noise[-1]).all() and (got[:, 0] == steps[1:, 0]).all()
beside(change, call)
"""
    )


def test_states_of_tables():
    run_alone(
        CHANGING
        + """
from replaylab._core import update_tables
R, B = 1, 50_000
q, obs, action = np.zeros((R, 16, 4)), np.zeros((R, B), np.int64), np.zeros((R, B), np.int64)
real = np.zeros((R, B))
def change():
    for rows in (obs, action):
        rows[0, -1] = 2**58
        rows[0, -1] = 0
def call():
    update_tables(q, obs, action, real, real, obs, real, np.zeros(R), None, None, np.zeros((R, B)), np.zeros((R, B)))
beside(change, call, ConfigError)
"""
    )


def test_actions_of_networks():
    run_alone(
        CHANGING
        + """
from replaylab import _core
learners = _core.QLearners(
    shape=[2, 1, 1], convolutions=[], hidden=[4], actions=2, replicas=1, dueling=False, is_double=True, huber=True,
    max_grad_norm=10.0, least=-1e30, most=1e30, tau=1.0, target_period=100,
    optimizer=("adam", 0.9, 0.999, 1e-8))
B = 20_000
obs, action, real = np.ones((1, B, 2), np.float32), np.zeros((1, B), np.int64), np.ones((1, B), np.float32)
def change():
    action[0, -1] = 2**40
    action[0, -1] = 0
beside(change, lambda: learners.update(obs, action, real, obs, real, real), ConfigError)
"""
    )


def test_whatever_leaves_the_core_reaches_python_as_an_error():
    """`add` and `extend` are plain C functions: an exception of another kind that left one ended the process."""
    out = run_alone(
        """
        from replaylab import errors
        from replaylab.replay.data import arrays
        buffer = ReplayBuffer(10, {"x": Field()}, seed=0)
        arrays.steps_of = lambda *args: "many"
        try:
            buffer.extend(x=[1.0, 2.0])
        except RuntimeError as error:
            print(error)
        frozen = buffer._parts.core.freeze()
        del errors.SnapshotError
        try:
            buffer.add(x=1.0)
        except AttributeError as error:
            print(error)
        frozen.end()
        print(buffer.add(x=1.0))
        """
    ).splitlines()
    assert out == [
        "the compiled core failed: std::bad_cast",
        "module 'replaylab.errors' has no attribute 'SnapshotError'",
        "0",
    ]
