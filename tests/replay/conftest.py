"""Fixtures of several files."""

import os
from functools import partial
from uuid import uuid4

import pytest

from replaylab.replay import MemoryMap, SharedMemory


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_brought_to_disk():
    """No test cuts the power, and waiting for the disk is what most saves take their time for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(params=[MemoryMap, SharedMemory])
def storage(request, tmp_path, monkeypatch):
    """A storage of either kind, removed afterwards; its `headroom` is that of every file made from then on."""

    def storage_of(kind, place, headroom=None, **options):
        if headroom:
            monkeypatch.setattr("replaylab.replay.storage.storage.headroom", lambda capacity, writers: headroom)
        return kind(place, **options)

    if request.param is MemoryMap:
        yield partial(storage_of, MemoryMap, tmp_path / "rows")
        return
    name = f"replaylab-test-{uuid4().hex}"
    yield partial(storage_of, SharedMemory, name)
    SharedMemory(name).unlink()
