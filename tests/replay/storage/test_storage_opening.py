"""Opening a storage, while another process is about it: other threads run on, and Ctrl-C is heard."""

import sys

import pytest

from tests.replay.threads.alone import run_alone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no storage elsewhere")

HELD = """
import fcntl, struct
from replaylab.replay import MemoryMap
F_OFD_SETLK = 37
def make():
    return ReplayBuffer(100, {"x": Field()}, storage=MemoryMap(sys.argv[1]), seed=0)
make().close()
file = os.open(sys.argv[1], os.O_RDWR)
def lock(kind):  # the byte that is locked while a file is opened
    fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 4095, 1, 0))
lock(fcntl.F_WRLCK)
"""


def test_other_threads_run_on(tmp_path):
    run_alone(
        HELD
        + """
ticks, opened = [], []
opener = threading.Thread(target=lambda: opened.append(make()))
opener.start()
for _ in range(20):
    time.sleep(0.01)
    ticks.append(opener.is_alive())
assert all(ticks) and not opened
lock(fcntl.F_UNLCK)
opener.join()
assert opened[0].add(x=1.0) == 0
""",
        tmp_path / "rows",
    )


def test_ctrl_c_is_heard(tmp_path):
    run_alone(
        HELD
        + """
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    make()
    raise AssertionError
except KeyboardInterrupt:
    pass
lock(fcntl.F_UNLCK)
assert make().add(x=1.0) == 0
""",
        tmp_path / "rows",
    )
