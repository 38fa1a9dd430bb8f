"""Fixtures of several files."""

from uuid import uuid4

import pytest

from replaylab.replay import MemoryMap, SharedMemory


@pytest.fixture(params=[MemoryMap, SharedMemory])
def storage(request, tmp_path):
    """A storage of either kind, removed afterwards."""
    if request.param is MemoryMap:
        yield lambda **options: MemoryMap(tmp_path / "rows", **options)
        return
    name = f"replaylab-test-{uuid4().hex}"
    yield lambda **options: SharedMemory(name, **options)
    SharedMemory(name).unlink()
