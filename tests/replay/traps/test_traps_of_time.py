"""Traps 4 and 12: places where libraries mix up steps that belong to different times.

`test_transforms_against_oracle.py` has what a step's `next_obs` is, and traps 3, 5 and 11, for every combination of
transforms, against an oracle that `tests/oracle/test_transforms.py` works out by hand.
"""

import numpy as np
import pytest

from replaylab.replay import Field, FrameStack, ReplayBuffer


def test_equal_numbers_of_other_bytes_are_reported_apart():
    """-0.0 equals 0.0 and NaN does not equal itself; what is returned has the bytes that were given."""
    fields = {"obs": Field(), "next_obs": Field()}
    buffer = ReplayBuffer(6, fields, next_obs="derived", seed=0)
    next_obs = np.array([-0.0, np.nan, 0.0, 1.0], np.float32)
    stored = np.array([2.0, 0.0, np.nan, -0.0], np.float32)
    buffer.extend(obs=stored, next_obs=next_obs)
    assert buffer.get(np.arange(4))["next_obs"].tobytes() == next_obs.tobytes()


def test_trap_04_closing_rows_are_used_again():
    fields = {"obs": Field((50,), np.uint8), "next_obs": Field((50,), np.uint8)}
    buffer = ReplayBuffer(100, fields, next_obs="derived", seed=0)
    rng = np.random.default_rng(0)
    held = []
    for _ in range(6):
        observations = rng.integers(0, 256, (2, 100, 50), np.uint8)  # no step follows another
        ids = buffer.extend(obs=observations[0], next_obs=observations[1])
        np.testing.assert_array_equal(buffer.get(ids)["next_obs"], observations[1])
        held.append(buffer.nbytes)
    assert set(held[1:]) == {held[1]}
    assert held[1] < 100 * 50 * 3


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
def test_trap_12_frames_are_stored_once_in_their_dtype(next_obs):
    fields = {"obs": Field((8, 8), np.uint8), "next_obs": Field((8, 8), np.uint8)}
    buffer = ReplayBuffer(1000, fields, transforms=[FrameStack(4)], next_obs=next_obs, episodes="manual", seed=0)
    image = np.full((8, 8), 255, np.uint8)
    buffer.add(obs=image, next_obs=image)
    batch = buffer.sample(2)
    assert batch.obs.dtype == batch.next_obs.dtype == np.uint8
    assert batch.obs.shape == batch.next_obs.shape == (2, 4, 8, 8)
    assert buffer.columns["obs"].shape == (1000, 8, 8)
    assert buffer.nbytes < 1000 * (3 if next_obs == "stored" else 2) * 64
