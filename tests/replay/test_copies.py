"""Copies of a buffer within its process are refused, with the reason and the way that does what was meant."""

import copy
import pickle

import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, MemoryMap, ReplayBuffer
from tests.replay.storage.storage_worlds import NEEDS_LINUX


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy])
class TestRefusals:
    def test_rows_in_memory(self, function):
        buffer = ReplayBuffer(10, {"x": Field()})
        for one in (buffer, [buffer], {"a": (buffer,)}):
            if one is buffer or function is copy.deepcopy:
                with pytest.raises(ConfigError, match=r"copied within its process.*ReplayBuffer\.load\(path\)"):
                    function(one)

    @NEEDS_LINUX
    def test_rows_in_a_file(self, function, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
        with pytest.raises(ConfigError, match=r"another buffer on the same rows.*handle\(\)\.open\(\)"):
            function(buffer)


@NEEDS_LINUX
def test_pickling_rows_in_a_file_stays(tmp_path):
    buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
    buffer.add(x=1.0)
    assert pickle.loads(pickle.dumps(buffer)).get(0)["x"] == 1.0


def test_pickling_rows_in_memory_says_why_not():
    with pytest.raises(ConfigError, match="where no other can see them"):
        pickle.dumps(ReplayBuffer(10, {"x": Field()}))
