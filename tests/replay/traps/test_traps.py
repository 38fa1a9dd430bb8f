"""Places where existing replay libraries break, numbered as in the project's list of traps.

Here stand checkpoints (13); those of time (4 and 12), priorities (7, 15 and 16) and cost (10) have their own files. The
sampling distributions' tests have 1, 2, 6, 8, 9, 11 and 14, those against the oracle 3 and 5.
"""

import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from replaylab.replay import Field, Prioritized, ReplayBuffer
from tests.replay.buffers import filled


class TestTrap13Checkpoints:
    """The full tests, with kills, stand in `test_snapshot.py`."""

    def trained(self):
        buffer = filled(Prioritized(alpha=1.0, beta=1.0), 100)
        buffer.update_priorities(np.arange(100), np.linspace(0.0, 3.0, 100) ** 2)
        buffer.sample(32)
        return buffer

    def test_trap_13_priorities_and_random_streams_are_in_them(self, tmp_path):
        buffer = self.trained()
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        np.testing.assert_array_equal(twin.probabilities(np.arange(100)), buffer.probabilities(np.arange(100)))
        for _ in range(10):
            np.testing.assert_array_equal(twin.sample(32).id, buffer.sample(32).id)
        assert twin.add(x=0) == buffer.add(x=0) == 100

    def test_trap_13_they_take_no_memory_and_no_pickle(self, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise AssertionError("pickled")

        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        buffer = ReplayBuffer(10_000, {"x": Field((1000,))}, sampler=Prioritized(beta=0.4))
        buffer.extend(x=np.ones((10_000, 1000), np.float32))
        tracemalloc.start()
        buffer.save(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.05 * buffer.nbytes
        assert (ReplayBuffer.load(tmp_path).columns["x"] == 1).all()

    @pytest.mark.parametrize("call", ["replace", "fsync"])
    def test_trap_13_a_death_while_writing_leaves_the_old_one_whole(self, tmp_path, monkeypatch, call):
        class DeathError(BaseException):
            pass

        def die(*_, **__):
            raise DeathError

        buffer = self.trained()
        buffer.save(tmp_path)
        distributions = ReplayBuffer.load(tmp_path).probabilities(np.arange(100))
        buffer.extend(x=np.zeros(50, np.int64))
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            patch.setattr(Path, call, die, raising=False)
            with pytest.raises(DeathError):
                buffer.save(tmp_path)
        old = ReplayBuffer.load(tmp_path)
        assert old.columns["x"].tolist() == list(range(100))
        np.testing.assert_array_equal(old.probabilities(np.arange(100)), distributions)
