"""Replays in shards, in this process and on Ray."""

import numpy as np

from replaylab import Field
from replaylab.distributed.replay import RemoteReplay
from replaylab.replay import Prioritized
from tests.distributed.replay.in_process import InProcess

FLAG = Field((), bool)
FIELDS = {"x": Field(), "terminated": FLAG, "truncated": FLAG}
EPISODES = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,)), "terminated": FLAG, "truncated": FLAG}


def replay(capacity=1000, fields=FIELDS, **options):
    """A replay in shards in this process, and its transport."""
    options = {"sampler": Prioritized(alpha=1.0, beta=1.0), "seed": 0, "prefetch": 0} | options
    transport = options.setdefault("transport", InProcess())
    return RemoteReplay(capacity, fields, **options), transport


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
