"""Replays in shards, in this process and on Ray."""

import numpy as np
import pytest

from replaylab import Field
from replaylab.distributed.replay import RemoteOptions, RemoteReplay
from replaylab.replay import Prioritized
from tests.distributed.replay.in_process import shards_here

FLAG = Field((), bool)
FIELDS = {"x": Field(), "terminated": FLAG, "truncated": FLAG}
EPISODES = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,)), "terminated": FLAG, "truncated": FLAG}


@pytest.fixture(autouse=True)
def local(request):
    """Shards of all replays are in this process, except in tests with `ray_here`."""
    if "ray_here" in request.fixturenames:
        yield None
        return
    with shards_here() as starts:
        yield starts


def replay(capacity=1000, fields=FIELDS, *, snapshot=None, **given):
    """A replay in shards."""
    given = {"sampler": Prioritized(alpha=1.0, beta=1.0), "seed": 0} | given
    return RemoteReplay(capacity, fields, options=RemoteOptions(snapshot=snapshot), **given)


def spread(remote, first, count, calls=4):
    """Store consecutive steps in the shards in turn, and return the ids."""
    each = count // calls
    return np.concatenate([remote.extend(**steps(first + k * each, each)) for k in range(calls)])


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


def save(local):
    """Save all shards, as in the background."""
    for client in local.clients:
        client.call("save", client.declaration.saving).result()


def stored(local, shards=1, name="x"):
    """The values of a field in each of the newest shards, oldest first."""
    values = []
    for client in local.clients[-shards:]:
        client.work()
        buffer = client.shard.buffer
        values.append(buffer.get(buffer.stored_ids()[0])[name].tolist())
    return values
