"""Daemon threads inside the core when the interpreter ends: the program ends as it would have."""

import pytest

from tests.replay.threads.alone import run_alone

SETUP = """
from replaylab.replay import MemoryMap, Prioritized
from replaylab import _core
sys.setswitchinterval(1e-5)
buffer = ReplayBuffer(20_000, {"x": Field((16,))}, sampler=Prioritized(beta=0.4), seed=0)
buffer.extend(x=np.zeros((20_000, 16)))
ids, errors = np.arange(20_000), np.ones(20_000, np.float32)
steps = np.zeros((20_000, 16)).tolist()
learners = _core.QLearners(
    shape=[4, 1, 1], convolutions=[], hidden=[256, 256], actions=2, replicas=4, dueling=False, is_double=True,
    huber=True, max_grad_norm=10.0, least=-1e30, most=1e30, tau=1.0, target_period=100,
    optimizer=("adam", 0.9, 0.999, 1e-8))
obs = np.ones((4, 256, 4), np.float32)
def work():
    while True:
        CALL
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
faulthandler.cancel_dump_traceback_later()
print("end")
"""


@pytest.mark.parametrize(
    "call",
    [
        "buffer.sample(20_000)",
        "buffer.update_priorities(ids, errors)",
        "buffer.extend(x=steps)",
        "buffer.stats()",
        "next(iter(buffer.batches(5000)))",
        "learners.q_values(obs)",
    ],
)
def test_a_daemon_thread_does_not_abort_the_end(call):
    for _ in range(2):
        assert run_alone(SETUP.replace("CALL", call)) == "end\n"
