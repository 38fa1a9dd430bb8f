"""Training in this process: shards are those of the replay's tests, nobody waits, and no result depends on time."""

import pytest

from tests.distributed.replay.in_process import Local

TIMES = dict.fromkeys(("loop.PERIOD", "loop.CHECK_PERIOD", "hub.PAUSE"), 0.0)
TIMES |= dict.fromkeys(("loop.FIGURES_PERIOD", "loop.PUBLISHING", "hub.BYTES", "actor.SECONDS"), 1e15)
"""Constants of training with which it exchanges news at every turn, publishes the newest weights, and unrolls fully."""


@pytest.fixture(autouse=True)
def local(monkeypatch, request):
    """Shards and processes in this process, except in tests with `ray_here`."""
    shards = Local()
    if "ray_here" not in request.fixturenames:
        monkeypatch.setattr("replaylab.distributed.replay.remote_replay.connect", shards.connect)
        monkeypatch.setattr("replaylab.distributed.replay.reader.MOST_BATCHES", 1)  # else measured times decide
        for name, value in TIMES.items():
            monkeypatch.setattr(f"replaylab.distributed.training.{name}", value)
    return shards
