"""Batches of made-up steps for R replicas."""

import numpy as np
from gymnasium import spaces

from replaylab.replay import Batch

BOX = spaces.Box(-np.inf, np.inf, (4,))
ACTIONS = spaces.Discrete(3)


def batch_of(replicas, rows=8, seed=0, space=BOX, actions=3, **columns_given):
    rng = np.random.default_rng(seed)

    def seen():
        shape = (replicas, rows, *space.shape)
        if space.dtype == np.uint8:
            return rng.integers(256, size=shape, dtype=np.uint8)
        return rng.random(shape) < 0.3 if space.dtype == np.bool_ else rng.normal(size=shape).astype(np.float32)

    columns = {
        "obs": seen(),
        "action": rng.integers(actions, size=(replicas, rows)),
        "reward": 2 * rng.normal(size=(replicas, rows)).astype(np.float32),
        "next_obs": seen(),
        "terminated": rng.random((replicas, rows)) < 0.3,
        "truncated": rng.random((replicas, rows)) < 0.3,
        "weight": rng.random((replicas, rows)).astype(np.float32),
        "id": np.arange(replicas * rows).reshape(replicas, rows),
    }
    return Batch(columns | columns_given)


def part(batch, r):
    """Replica r's batch, alone."""
    return Batch({name: column[r : r + 1].copy() for name, column in batch.items()})
