"""Large arrays of a batch take memory that earlier batches have given back, and never memory still in use."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer

WIDE = 100_000  # float32: with B = 4 far beyond the size from which memory is kept


def filled():
    buffer = ReplayBuffer(8, {"obs": Field((WIDE,)), "reward": Field()}, seed=0)
    buffer.extend(obs=np.arange(8)[:, None] * np.ones(WIDE), reward=np.arange(8.0))
    return buffer


def test_memory_given_back_is_used_again():
    buffer = filled()
    first = buffer.sample(4).obs
    address = first.ctypes.data
    del first
    gc.collect()
    assert buffer.sample(4).obs.ctypes.data == address


def test_a_batch_held_is_not_overwritten():
    buffer = filled()
    held = [buffer.sample(4) for _ in range(20)]
    assert len({batch.obs.ctypes.data for batch in held}) == 20
    for batch in held:
        assert np.array_equal(batch.obs, batch.reward[:, None] * np.ones(WIDE))


def test_a_view_keeps_its_memory():
    buffer = filled()
    batch = buffer.sample(4)
    view, reward = batch.obs[1:, ::7], batch.reward[1:].copy()
    del batch
    others = [buffer.sample(4) for _ in range(5)]
    assert np.array_equal(view, reward[:, None] * np.ones_like(view))
    del others


def test_the_caller_may_resize_his_array():
    array = filled().sample(4).obs
    before = array[0, 0]
    array.resize((2, 8 * WIDE), refcheck=False)
    assert array[0, 0] == before
    assert not array[1, -WIDE:].any()


@pytest.mark.no_sanitizer
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_little_memory_is_kept():
    """Measured in a fresh process: in this one, freed memory may stay in a heap that other tests left full of holes."""
    code = """
import gc
import resource
from pathlib import Path
import numpy as np
from replaylab.replay import Field, ReplayBuffer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

buffer = ReplayBuffer(8, {"obs": Field((100_000,))}, seed=0)
buffer.extend(obs=np.ones((8, 100_000)))
held = [buffer.sample(100).obs for _ in range(8)]  # 40 MB each
size = held[0].nbytes
before = resident()
del held
gc.collect()
assert resident() < before - 4.5 * size  # 128 MiB are kept
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
