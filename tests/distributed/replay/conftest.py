"""Replays in shards, in this process and on Ray."""

from dataclasses import fields as fields_of

import numpy as np
import pytest

from replaylab import Field
from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.replay import Prioritized
from tests.distributed.replay.in_process import InProcess

FLAG = Field((), bool)
FIELDS = {"x": Field(), "terminated": FLAG, "truncated": FLAG}
EPISODES = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,)), "terminated": FLAG, "truncated": FLAG}


def arguments(**given):
    """Arguments of `RemoteReplay`, with those that are `RemoteOptions` in `options`."""
    options = {one.name: given.pop(one.name) for one in fields_of(RemoteOptions) if one.name in given}
    return given | {"options": RemoteOptions(**options)}


def replay(capacity=1000, fields=FIELDS, **given):
    """A replay in shards in this process, and its transport."""
    given = {"sampler": Prioritized(alpha=1.0, beta=1.0), "seed": 0, "prefetch": 0} | given
    transport = given.setdefault("transport", InProcess())
    return RemoteReplay(capacity, fields, **arguments(**given)), transport


@pytest.fixture
def at_once(monkeypatch):
    """A shard that could not begin is started again at the next look."""
    monkeypatch.setattr("replaylab.distributed.replay.shards.shard_pool.PAUSE", 0.0)


def saved(folder, **given):
    """A replay of two shards, with a hundred steps that are saved, and its transport."""
    made, transport = replay(shards=2, snapshot=Snapshots(folder, period=1e-9), **given)
    made.extend(**steps(0, 100))
    look(made, 8)
    return made, transport


def look(made, times=1, stats=False):
    """See to lost shards and to snapshots."""
    for _ in range(times):
        if stats:
            made.stats()
        made.tend()


def lose(made, transport, number, times=1):
    """Let a shard die, and see to it so many times."""
    transport.shard(number).die()
    look(made, times, stats=True)


def step(k, length=5):
    """One step of `FIELDS`."""
    return {name: value[0] for name, value in steps(k, 1, length).items()}


def load(folder, **given):
    """Return the result of `RemoteReplay.load`, in this process."""
    return RemoteReplay.load(folder, **arguments(**({"transport": InProcess()} | given)))


def steps(first, count, length=5):
    """Columns of `FIELDS`: consecutive numbers, an episode every so many."""
    x = np.arange(first, first + count)
    return {"x": x.astype(np.float32), "terminated": x % length == length - 1, "truncated": np.zeros(count, bool)}


def episode(first, length, ends=True):
    """Columns of `EPISODES` whose observations count on from a number."""
    seen = np.arange(first, first + length + 1, dtype=np.float32)
    obs = np.stack([seen, -seen], axis=1)
    terminated = np.arange(length) == (length - 1 if ends else -1)
    reward = seen[:-1] * 0.5
    over = np.zeros(length, bool)
    return {"obs": obs[:-1], "reward": reward, "next_obs": obs[1:], "terminated": terminated, "truncated": over}
