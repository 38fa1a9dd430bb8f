"""Training in this process: shards are those of the replay's tests, and nobody waits."""

import pytest

from tests.distributed.replay.in_process import Local


@pytest.fixture(autouse=True)
def local(monkeypatch, request):
    """Shards and processes in this process, except in tests with `ray_here` or of commands."""
    shards = Local()
    if not {"ray_here", "on_ray"} & {*request.fixturenames}:
        monkeypatch.setattr("replaylab.distributed.replay.remote_replay.connect", shards.connect)
        for name in ("loop.PERIOD", "loop.CHECK_PERIOD", "hub.PAUSE"):
            monkeypatch.setattr(f"replaylab.distributed.training.{name}", 0.0)
    return shards
