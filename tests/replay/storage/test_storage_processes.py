"""Rows that several processes have, one after the other or together."""

import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, MemoryMap, Prioritized, ReplayBuffer
from tests.replay.storage.storage_worlds import NEEDS_LINUX

pytestmark = NEEDS_LINUX


def child_adds(buffer, value, times, together):
    for _ in range(times):
        buffer.add(x=value)
        together.wait(60)


class TestProcesses:
    @pytest.mark.parametrize(("method", "before"), [("spawn", 1), ("fork", 0), ("fork", 1)])
    def test_a_buffer_is_sent_to_children(self, storage, method, before):
        """A forked child shares its parent's open files, and must not share its place."""
        buffer = ReplayBuffer(100, {"x": Field()}, storage=storage())
        buffer.extend(x=np.zeros(before))
        context = multiprocessing.get_context(method)
        values = [1.0, 2.0] if method == "spawn" else [1.0, 2.0, 3.0]
        together = context.Barrier(len(values))
        children = [context.Process(target=child_adds, args=(buffer, value, 10, together)) for value in values]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        buffer.add(x=9.0)
        stored = buffer.get(range(len(buffer)))["x"]
        assert sorted(stored) == [0.0] * before + sorted(values * 10) + [9.0]

    def test_a_file_outlives_its_process(self, tmp_path):
        path = tmp_path / "rows"
        code = (
            "import sys, numpy as np\nfrom replaylab.replay import *\n"
            "buffer = ReplayBuffer(10, {'x': Field()}, storage=MemoryMap(sys.argv[1]))\n"
            "buffer.extend(x=np.arange(12.0))\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(path, create=False))
        assert buffer.get(range(2, 12))["x"].tolist() == list(range(2, 12))
        assert buffer.add(x=12.0) == 12

    def test_pickle(self, storage):
        buffer = ReplayBuffer(10, {"x": Field()}, num_envs=2, sampler=Prioritized(beta=0.4), storage=storage())
        two = pickle.loads(pickle.dumps(buffer))
        two.add(x=[1.0, 2.0])
        assert buffer.size == 2
        assert (two.sampler, two.num_envs, two.capacity) == (buffer.sampler, 2, 10)

    def test_no_handle_of_ones_own_memory(self):
        buffer = ReplayBuffer(10, {"x": Field()})
        with pytest.raises(ConfigError, match="where no other can see them; make it with storage=SharedMemory"):
            buffer.handle()
