"""Guarantee 7: batches belong to the caller."""

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Online, Prioritized, ReplayBuffer, SlidingWindow, Uniform
from tests.oracle import flatten

FIELDS = {
    "obs": {"a": Field((3,), np.uint8), "b": (Field(), Field((2,), np.float64))},
    "x": Field((), np.int64),
}
SAMPLERS = [Online(), SlidingWindow(), Uniform(), Combined(), Prioritized(beta=0.4)]


def steps(rng, lead):
    return {
        "obs": {
            "a": rng.integers(0, 255, (*lead, 3), np.uint8),
            "b": (rng.random(lead), rng.random((*lead, 2))),
        },
        "x": rng.integers(0, 1000, lead),
    }


def make(sampler, replicas=None):
    buffer = ReplayBuffer(20, FIELDS, sampler=sampler, replicas=replicas, seed=4)
    lead = (30,) if replicas is None else (replicas, 30)
    buffer.extend(**steps(np.random.default_rng(0), lead))
    return buffer


def arrays(batch):
    return flatten(dict(batch))


@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
class TestBatchesBelongToTheCaller:
    def test_no_later_call_changes_a_batch(self, sampler, replicas):
        buffer = make(sampler, replicas)
        batch = buffer.sample(8)
        copies = {path: array.copy() for path, array in arrays(batch).items()}
        for _ in range(3):
            buffer.sample(8)
            buffer.extend(**steps(np.random.default_rng(9), (25,) if replicas is None else (replicas, 25)))
            buffer.update_priorities(batch.id, np.ones(batch.id.shape))
        for path, array in arrays(batch).items():
            np.testing.assert_array_equal(array, copies[path])

    def test_no_memory_is_shared(self, sampler, replicas):
        buffer = make(sampler, replicas)
        first, second = arrays(buffer.sample(8)), arrays(buffer.sample(8))
        stored = flatten(buffer.columns).values()
        for path, array in first.items():
            for other in [*second.values(), *stored, *(a for p, a in first.items() if p != path)]:
                assert not np.shares_memory(array, other)

    def test_writing_into_a_batch_leaves_the_buffer_alone(self, sampler, replicas):
        buffer = make(sampler, replicas)
        before = {path: column.copy() for path, column in flatten(buffer.columns).items()}
        for array in arrays(buffer.sample(8)).values():
            assert array.flags.writeable
            array[...] = 1
        for path, column in flatten(buffer.columns).items():
            np.testing.assert_array_equal(column, before[path])

    def test_out_reuses_its_arrays(self, sampler, replicas):
        buffer, twin = make(sampler, replicas), make(sampler, replicas)
        out = buffer.sample(8)
        twin.sample(8)
        before = arrays(out)
        again, expected = buffer.sample(8, out=out), twin.sample(8)
        assert again is out
        for path, array in arrays(again).items():
            assert array is before[path]
            np.testing.assert_array_equal(array, arrays(expected)[path])


def test_ids_returned_by_add_are_the_callers():
    buffer = ReplayBuffer(4, {"x": Field()}, num_envs=2)
    first = buffer.add(x=np.zeros(2, np.float32))
    buffer.add(x=np.zeros(2, np.float32))
    assert first.tolist() == [0, 1]


def test_what_was_added_is_the_buffers():
    """The buffer keeps a copy, so the caller may reuse the arrays it passed."""
    buffer = ReplayBuffer(4, {"x": Field((2,))})
    x = np.ones(2, np.float32)
    buffer.add(x=x)
    x[:] = 7
    assert buffer.columns["x"][0].tolist() == [1, 1]
