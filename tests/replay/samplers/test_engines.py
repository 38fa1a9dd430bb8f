"""Properties of every draw engine."""

import gc
import weakref

import numpy as np
import pytest

from replaylab.replay import Field, LaBER, Oracle, Prioritized, ReplayBuffer, Uniform

SAMPLERS = [Uniform(), Prioritized(beta=0.4), Oracle(lambda ids: ids), LaBER(lambda pool: pool.x + 1)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_a_buffer_nobody_holds_is_freed_at_once(sampler):
    """Rows may take most of the memory, so they must not wait for Python to look for cycles."""
    buffer = ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=0)
    buffer.extend(x=np.arange(5.0))
    buffer.sample(2)
    engine = weakref.ref(buffer._parts.engine)
    gc.disable()
    try:
        del buffer
        assert engine() is None
    finally:
        gc.enable()
