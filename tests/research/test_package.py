"""The package of research samplers, beside the replay library."""

import subprocess
import sys

import pytest

from replaylab import Field, ReplayBuffer, replay, research


def test_no_name_is_exported_twice():
    assert not set(replay.__all__) & set(research.__all__)


@pytest.mark.parametrize("kind", [research.AntiPrioritized, research.Permuted, research.Blocks])
def test_snapshot_loads_where_nothing_else_is_imported(kind, tmp_path):
    ReplayBuffer(8, {"x": Field()}, sampler=kind(), seed=0).save(tmp_path)
    code = f"from replaylab import ReplayBuffer; print(type(ReplayBuffer.load({str(tmp_path)!r}).sampler).__name__)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"{kind.__name__}\n"
