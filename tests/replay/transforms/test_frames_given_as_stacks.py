"""FrameStack with environments that stack their frames themselves, and episodes cut by hand."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from replaylab.errors import DtypeError, FieldError
from replaylab.replay import Field, FrameStack, ReplayBuffer
from tests.replay.buffers import transition

FIELDS = transition(Field((2,)))


@pytest.mark.parametrize("padding", ["repeat", "zero"])
@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("capacity", [1000, 64])
def test_a_batch_holds_what_the_environment_gave(padding, next_obs, capacity):
    """Gymnasium's own stacks, stored as single frames, come back whole; except for the ring's oldest steps."""
    env = FrameStackObservation(gym.make("CartPole-v1"), 4, padding_type={"repeat": "reset", "zero": "zero"}[padding])
    stack = FrameStack(4, padding=padding, stacked_input=True)
    buffer = ReplayBuffer.for_env(env, capacity, transforms=[stack], next_obs=next_obs, seed=0)
    assert buffer.fields["obs"] == Field((4,), np.float32)
    stacks = {}
    obs, _ = env.reset(seed=3)
    env.action_space.seed(0)
    for _ in range(150):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        step = {"obs": obs, "action": action, "reward": reward, "next_obs": after}
        stacks[buffer.add(**step, terminated=terminated, truncated=truncated)] = (obs, after)
        obs = env.reset()[0] if terminated or truncated else after
    assert buffer.nbytes < capacity * (2 * 16 + 8 + 4 + 2 + 64)
    batch = buffer.sample(600)
    oldest = min(i for i in stacks if i >= 150 - buffer.size)
    checked = 0
    for k, i in enumerate(batch.id):
        if i >= oldest + 3 or oldest == 0:
            np.testing.assert_array_equal(batch.obs[k], stacks[i][0])
            np.testing.assert_array_equal(batch.next_obs[k], stacks[i][1])
            checked += 1
    assert checked > 400


def test_final_observations_come_as_stacks_too():
    buffer = ReplayBuffer(
        10, FIELDS, num_envs=2, autoreset="same_step", transforms=[FrameStack(2, stacked_input=True)], seed=0
    )
    stacks = np.arange(4.0, dtype=np.float32).reshape(2, 1, 2).repeat(2, 1)
    final = np.array([None, 100 + stacks[1]], dtype=object)
    flags = {"terminated": [False, True], "truncated": [False, False]}
    ids = buffer.add(obs=stacks, reward=[0, 0], next_obs=stacks + 50, final_obs=final, **flags)
    stored = buffer.get(ids)
    np.testing.assert_array_equal(stored["obs"], stacks[:, -1])
    np.testing.assert_array_equal(stored["next_obs"], [stacks[0, -1] + 50, 100 + stacks[1, -1]])


class TestTheFirstStackOfAnEpisode:
    """Its older frames are stored nowhere: they must be the padding that a batch will show."""

    def make(self, padding="repeat", **options):
        stack = FrameStack(3, padding=padding, stacked_input=True)
        return ReplayBuffer(30, FIELDS, transforms=[stack], seed=0, **options)

    def step(self, *frames, end=False):
        obs = np.array([[frame, -frame] for frame in frames], np.float32)
        return {"obs": obs, "reward": 0, "next_obs": obs + 1, "terminated": end, "truncated": False}

    @pytest.mark.parametrize("padding", ["repeat", "zero"])
    def test_padding_comes_back_and_all_else_is_refused(self, padding):
        good, bad = ([(5, 5, 5), (0, 0, 0)], [(0, 0, 5), (4, 5, 5), (0, 5, 5), (np.nan, 5, 5)])
        if padding == "zero":
            good, bad = [(0, 0, 5), (0, 0, 0), (0, 0, np.nan)], [(5, 5, 5), (0, 4, 5), (3, 4, 5)]
        buffer = self.make(padding)
        for first in good:
            end = buffer.add(**self.step(*first))
            later = buffer.add(**self.step(*first[1:], 7, end=True))
            np.testing.assert_array_equal(buffer.as_batch([end, later]).obs[..., 0], [first, (*first[1:], 7)])
        for first in bad:
            with pytest.raises(FieldError, match=r"^the stack given for `obs` begins an episode with other"):
                buffer.add(**self.step(*first))
        assert len(buffer) == 2 * len(good)

    def test_episodes_that_begin_inside_a_stretch(self):
        buffer = self.make()
        steps = [self.step(1, 1, 1), self.step(1, 1, 2, end=True), self.step(1, 2, 3), self.step(2, 3, 4)]
        stretch = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        with pytest.raises(FieldError, match="begins an episode"):
            buffer.extend(**stretch)
        assert len(buffer) == 0
        stretch["obs"][2, :2] = stretch["obs"][2, 2]
        buffer.extend(**stretch)
        buffer.end_episode()
        with pytest.raises(FieldError, match="begins an episode"):
            buffer.add(**self.step(3, 4, 5))

    def test_steps_that_are_not_stored_begin_nothing(self):
        stretch = [self.step(1, 1, 1, end=True), self.step(7, 8, 9), self.step(2, 2, 2), self.step(2, 2, 3)]
        stretch = {name: np.stack([step[name] for step in stretch]) for name in stretch[0]}
        buffer = self.make(autoreset="next_step")
        assert buffer.extend(**stretch).tolist() == [0, -1, 1, 2]
        buffer = self.make()
        assert buffer.extend(**stretch, where=[True, False, True, True]).tolist() == [0, -1, 1, 2]
        with pytest.raises(FieldError, match="begins an episode"):
            self.make().extend(**stretch)

    def test_environments_and_replicas_go_their_own_ways(self):
        buffer = self.make(num_envs=2, replicas=2)
        first, later = self.step(1, 1, 1), self.step(1, 1, 2)

        def both(*steps):
            rows = {name: np.stack([step[name] for step in steps]) for name in first}
            return {name: row.reshape(2, 2, *row.shape[1:]) for name, row in rows.items()}

        buffer.add(**both(first, first, first, self.step(1, 1, 1, end=True)))
        with pytest.raises(FieldError, match="begins an episode"):
            buffer.add(**both(later, later, later, later))
        assert buffer.add(**both(later, later, later, first)).tolist() == [[2, 3], [2, 3]]


def test_a_field_that_is_only_called_next():
    fields = {"obs": Field((2,)), "next_action": Field((2,))}
    stack = FrameStack(2, ("next_action",), stacked_input=True)
    buffer = ReplayBuffer(10, fields, transforms=[stack], episodes="manual", seed=0)
    with pytest.raises(FieldError, match="the stack given for `next_action` begins an episode"):
        buffer.add(obs=[0, 0], next_action=[[1, 1], [2, 2]])
    buffer.add(obs=[0, 0], next_action=[[2, 2], [2, 2]])


def test_values_that_are_no_numbers_are_refused_as_such():
    stack = FrameStack(2, stacked_input=True)
    buffer = ReplayBuffer(10, {"obs": Field((2,))}, transforms=[stack], episodes="manual", seed=0)
    with pytest.raises(DtypeError, match="stores float32, but got"):
        buffer.add(obs=[["a", "b"], ["c", "d"]])


def test_the_step_after_a_reset_by_hand_is_stored():
    buffer = ReplayBuffer(20, FIELDS, autoreset="next_step")
    step = {"obs": [0, 0], "reward": 0, "next_obs": [1, 1], "truncated": False}
    buffer.add(**step, terminated=True)
    buffer.end_episode()
    assert buffer.add(**step, terminated=False) == 1
