"""Calls and answers as bytes: what comes out is what went in."""

import numpy as np
import pytest

from replaylab.distributed.replay.shards.packing import INLINE, packed, unpacked

ARRAYS = {
    "none": np.zeros((0, 3), np.float32),
    "one": np.array(5, np.int16),
    "flags": np.array([True, False]),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "every other": np.arange(10)[::2],
    "other order": np.arange(3, dtype=">f8"),
    "text": np.array(["a", "bcd"]),
    "time": np.array(["2020-01-01"], "datetime64[s]"),
    "half": np.ones(3, np.float16),
    "complex": np.array([1 + 2j]),
}


@pytest.mark.parametrize("more", [0, 2 * INLINE])
def test_what_is_packed_comes_out_again(more):
    value = ("name", (1, None, 2.5, b"bytes"), {"nested": (ARRAYS, [np.zeros(more, np.uint8)])})
    made = packed(value)
    assert isinstance(made, bytes) == (more == 0)
    name, others, nested = unpacked(made)
    assert (name, others) == value[:2]
    arrays, (zeros,) = nested["nested"]
    assert len(zeros) == more
    for key, array in ARRAYS.items():
        assert (arrays[key].dtype, arrays[key].shape) == (array.dtype, array.shape)
        assert np.array_equal(arrays[key], array)


def test_large_arrays_are_not_copied():
    array = np.zeros(2 * INLINE, np.uint8)
    assert any(np.shares_memory(array, part) for part in packed({"x": array})[1:])
