"""Helpers of the tests of rows outside the process."""

import sys
from unittest.mock import patch

import numpy as np
import pytest

from replaylab.replay import Field
from tests.replay.buffers import transition

NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="rows outside the process need Linux")

FIELDS = transition(Field((2,), np.uint8))


def small_headroom(steps):
    """Give files that are made meanwhile room for no more steps while a batch is read."""
    return patch("replaylab.replay.storage.storage.headroom", lambda capacity, writers: steps)


def step(rng, lead=()):
    return {
        "obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "reward": rng.random(lead),
        "next_obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "terminated": rng.random(lead) < 0.1,
        "truncated": rng.random(lead) < 0.05,
    }


def assert_same(batch, two):
    assert batch.keys() == two.keys()
    for name in batch:
        np.testing.assert_array_equal(batch[name], two[name], err_msg=name)


def drive(buffers, turns, seed=0, lead=()):
    """Do the same with several buffers and compare all they say."""
    rng = np.random.default_rng(seed)
    for turn in range(turns):
        values = step(rng, lead)
        where = rng.random(lead) < 0.9 if lead else None
        ids = [buffer.add(**values, where=where) for buffer in buffers]
        np.testing.assert_array_equal(*ids)
        if turn < 3:  # a batch without repetition needs some
            continue
        batches = [buffer.sample(4, progress=0.3) for buffer in buffers]
        assert_same(*map(dict, batches))
        feedback = rng.standard_normal(batches[0].id.shape)
        assert len({buffer.update_priorities(batches[0].id, feedback) for buffer in buffers}) == 1
        if buffers[0].sampler.has_closed_form:
            distributions = [buffer.probabilities(ids[0], batch_size=4, progress=0.3) for buffer in buffers]
            np.testing.assert_array_equal(*distributions)
        assert len({len(buffer) for buffer in buffers}) == 1
