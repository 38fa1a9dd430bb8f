"""Values that are copied past the caches: each byte arrives, wherever a row begins, and its neighbours stay."""

import numpy as np
import pytest

from replaylab.replay import Field, ReplayBuffer


@pytest.mark.parametrize("before", [1, 7, 64])
@pytest.mark.parametrize("width", [4095, 4096, 4097, 4159, 4160, 5000])
def test_every_byte_arrives(width, before):
    fields = {"small": Field((before,), np.uint8), "wide": Field((width,), np.uint8), "after": Field((3,), np.uint8)}
    buffer = ReplayBuffer(5, fields, seed=0)
    random = np.random.default_rng(width + before)
    steps = {name: random.integers(0, 256, (8, *field.shape), np.uint8) for name, field in fields.items()}
    ids = buffer.extend(**{name: column[:7] for name, column in steps.items()})
    ids = np.append(ids, buffer.add(**{name: column[7] for name, column in steps.items()}))
    stored = dict(buffer.as_batch(ids[3:]))
    for name, column in steps.items():
        np.testing.assert_array_equal(stored[name], column[3:], err_msg=name)
