"""Views of a buffer's own rows, given back to it, are read before they are written to."""

import numpy as np
import pytest

from replaylab.replay import Field, ReplayBuffer
from tests.replay.buffers import Seeing, seen


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex64])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_extend_with_its_own_column(shape, dtype):
    buffer = ReplayBuffer(10, {"x": Field(shape, dtype)}, seed=0)
    values = np.arange(13 * int(np.prod(shape))).reshape(13, *shape).astype(dtype)
    buffer.extend(x=values)
    view = buffer.columns["x"]
    before = view.copy()
    for stretch in (view, view[2:9], view[::-1], view[::2], view[9:], view[:0]):
        start = before.copy() if stretch.size == 0 else np.array(stretch)
        ids = buffer.extend(x=stretch)
        if len(ids):
            np.testing.assert_array_equal(buffer.get(ids)["x"], start)


@pytest.mark.parametrize("replicas", [None, 2])
def test_add_with_its_own_column(replicas):
    buffer = ReplayBuffer(10, {"x": Field()}, num_envs=4, replicas=replicas, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        buffer.add(x=rng.random((4,) if replicas is None else (2, 4), np.float32))
    for first in (0, 3, 5, 6):
        view = buffer.columns["x"][..., first : first + 4]
        wanted = view.copy()
        np.testing.assert_array_equal(buffer.get(buffer.add(x=view))["x"], wanted)


def test_a_mask_that_is_a_column():
    for sampler in (None, Seeing()):
        buffer = ReplayBuffer(8, {"terminated": Field((), bool)}, sampler=sampler, seed=0)
        flags = np.array([True, False, False, True, True, False, True, False])
        buffer.extend(terminated=flags)
        view = buffer.columns["terminated"]
        ids = buffer.extend(terminated=view, where=view)
        assert (ids >= 0).tolist() == flags.tolist()
        assert buffer.get(ids[ids >= 0])["terminated"].all()
        buffer.extend(terminated=buffer.columns["terminated"])
        if sampler is not None:
            seen.clear()
            buffer.sample(1)
            ends = buffer.get(np.arange(12, 20))["terminated"]
            steps = [0]
            for end in ends[:-1]:
                steps.append(0 if end else steps[-1] + 1)
            assert seen[0][1] == steps


def test_another_buffers_rows_are_borrowed_as_they_are():
    buffer, other = (ReplayBuffer(10, {"x": Field()}, seed=0) for _ in range(2))
    buffer.extend(x=np.arange(10.0))
    other.extend(x=buffer.columns["x"])
    np.testing.assert_array_equal(other.columns["x"], np.arange(10))
