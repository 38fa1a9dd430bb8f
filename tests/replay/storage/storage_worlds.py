"""What the tests of rows outside the process have in common."""

import sys

import numpy as np
import pytest

from replaylab.replay import Field

NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="rows outside the process need Linux")

FIELDS = {
    "obs": Field((2,), np.uint8),
    "reward": Field(),
    "next_obs": Field((2,), np.uint8),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}


def step(rng, lead=()):
    return {
        "obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "reward": rng.random(lead),
        "next_obs": rng.integers(0, 255, (*lead, 2), np.uint8),
        "terminated": rng.random(lead) < 0.1,
        "truncated": rng.random(lead) < 0.05,
    }


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def drive(buffers, turns, seed=0, lead=()):
    """Do the same with several buffers and compare all they say."""
    rng = np.random.default_rng(seed)
    for turn in range(turns):
        given = step(rng, lead)
        where = rng.random(lead) < 0.9 if lead else None
        ids = [buffer.add(**given, where=where) for buffer in buffers]
        np.testing.assert_array_equal(*ids)
        if turn < 3:  # a batch without repetition needs some
            continue
        batches = [buffer.sample(4, progress=0.3) for buffer in buffers]
        assert_same(*map(dict, batches))
        feedback = rng.standard_normal(batches[0].id.shape)
        assert len({buffer.update_priorities(batches[0].id, feedback) for buffer in buffers}) == 1
        if buffers[0].sampler.has_law:
            laws = [buffer.probabilities(ids[0], batch_size=4, progress=0.3) for buffer in buffers]
            np.testing.assert_array_equal(*laws)
        assert len({len(buffer) for buffer in buffers}) == 1
