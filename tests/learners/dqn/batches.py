"""Batches of made-up steps for R replicas."""

import numpy as np
from gymnasium import spaces

from replaylab.replay import Batch

BOX = spaces.Box(-np.inf, np.inf, (4,))
ACTIONS = spaces.Discrete(3)


def batch_of(replicas, rows=8, seed=0, **given):
    rng = np.random.default_rng(seed)
    columns = {
        "obs": rng.normal(size=(replicas, rows, 4)).astype(np.float32),
        "action": rng.integers(3, size=(replicas, rows)),
        "reward": 2 * rng.normal(size=(replicas, rows)).astype(np.float32),
        "next_obs": rng.normal(size=(replicas, rows, 4)).astype(np.float32),
        "terminated": rng.random((replicas, rows)) < 0.3,
        "truncated": rng.random((replicas, rows)) < 0.3,
        "weight": rng.random((replicas, rows)).astype(np.float32),
        "id": np.arange(replicas * rows).reshape(replicas, rows),
    }
    return Batch(columns | given)


def part(batch, r):
    """Replica r's batch, alone."""
    return Batch({name: column[r : r + 1].copy() for name, column in batch.items()})
