"""Traps 4 and 12: places where libraries mix up steps that belong to different times.

Worked out by hand; `test_transforms_against_oracle.py` holds the same, and traps 3, 5 and 11, for every combination of
transforms, against an oracle that `tests/oracle/test_transforms.py` works out by hand.
"""

import numpy as np
import pytest

from replaylab.replay import Field, FrameStack, ReplayBuffer
from tests.replay.buffers import transition

FRAMES = transition(Field((), np.int64))


def frames(ends, capacity=20, **options):
    """A buffer of steps i from obs 10 i to next_obs 10 i + 1, or to the next step's obs if the episode continues.

    `ends` has one of "" (the episode continues), "t" (terminated) and "c" (truncated, cut) a step.
    """
    buffer = ReplayBuffer(capacity, FRAMES, seed=0, **options)
    for i, end in enumerate(ends):
        buffer.add(
            obs=10 * i,
            reward=2.0**i,
            next_obs=10 * i + 1 if end else 10 * i + 10,
            terminated=end == "t",
            truncated=end == "c",
        )
    return buffer


class TestTrap4DerivedNextObs:
    def check(self, buffer, expected):
        batch = buffer.sample(400)
        assert dict(zip(batch.id.tolist(), batch.next_obs.tolist(), strict=True)) == expected
        assert buffer.get(np.array(list(expected)))["next_obs"].tolist() == list(expected.values())

    def test_a_truncated_last_step_keeps_its_own(self):
        self.check(frames(["", "c", "", ""], next_obs="derived"), {0: 10, 1: 11, 2: 30, 3: 40})

    def test_the_write_head_keeps_its_own(self):
        buffer = frames([""] * 7, capacity=4, next_obs="derived")
        self.check(buffer, {3: 40, 4: 50, 5: 60, 6: 70})

    @pytest.mark.parametrize("capacity", [1, 2, 3])
    def test_a_closing_step_is_kept_while_the_next_episode_passes_it(self, capacity):
        buffer = frames(["", "t"] + [""] * (capacity - 1), capacity=capacity, next_obs="derived")
        self.check(buffer, {1: 11} | {i: 10 * i + 10 for i in range(2, capacity + 1)})

    def test_the_next_row_of_another_environment_is_not_the_next_step(self):
        buffer = ReplayBuffer(6, FRAMES, num_envs=2, next_obs="derived", seed=0)
        for t in range(3):
            obs = np.array([100 + t, 200 + t])
            buffer.add(obs=obs, reward=np.zeros(2), next_obs=obs + 1, terminated=[False] * 2, truncated=[False] * 2)
        self.check(buffer, {0: 101, 1: 201, 2: 102, 3: 202, 4: 103, 5: 203})

    def test_an_observation_that_is_not_the_next_ones_is_kept_whatever_the_flags_say(self):
        buffer = ReplayBuffer(6, FRAMES, next_obs="derived", seed=0)
        for obs, next_obs in [(1, 2), (2, 3), (7, 8), (8, 9)]:
            buffer.add(obs=obs, reward=0, next_obs=next_obs, terminated=False, truncated=False)
        self.check(buffer, {0: 2, 1: 3, 2: 8, 3: 9})

    def test_equal_numbers_of_other_bytes_are_reported_apart(self):
        """-0.0 equals 0.0 and NaN does not equal itself; what is returned has the bytes that were given."""
        fields = {"obs": Field(), "next_obs": Field()}
        buffer = ReplayBuffer(6, fields, next_obs="derived", seed=0)
        given = np.array([-0.0, np.nan, 0.0, 1.0], np.float32)
        stored = np.array([2.0, 0.0, np.nan, -0.0], np.float32)
        buffer.extend(obs=stored, next_obs=given)
        assert buffer.get(np.arange(4))["next_obs"].tobytes() == given.tobytes()

    def test_same_step_autoreset_keeps_the_final_observation(self):
        buffer = ReplayBuffer(6, FRAMES, next_obs="derived", autoreset="same_step", seed=0)
        buffer.add(obs=1, reward=0, next_obs=50, terminated=False, truncated=True, final_obs=2)
        buffer.add(obs=50, reward=0, next_obs=51, terminated=False, truncated=False, final_obs=0)
        self.check(buffer, {0: 2, 1: 51})


def test_trap_04_closing_rows_are_used_again():
    fields = {"obs": Field((50,), np.uint8), "next_obs": Field((50,), np.uint8)}
    buffer = ReplayBuffer(100, fields, next_obs="derived", seed=0)
    rng = np.random.default_rng(0)
    held = []
    for _ in range(6):
        given = rng.integers(0, 256, (2, 100, 50), np.uint8)  # no step follows another
        ids = buffer.extend(obs=given[0], next_obs=given[1])
        np.testing.assert_array_equal(buffer.get(ids)["next_obs"], given[1])
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
