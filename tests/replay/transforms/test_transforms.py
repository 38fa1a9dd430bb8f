"""Small worlds where what a transform makes can be written down by hand."""

import numpy as np
import pytest

from replaylab.errors import FieldError, ShapeError
from replaylab.replay import (
    CustomSampler,
    Field,
    Fifo,
    FrameStack,
    Hindsight,
    NStep,
    Prioritized,
    ReplayBuffer,
    Reservoir,
    Sequence,
)
from tests.replay.refusals.test_bad_transforms import FIELDS, GOALS


class Even(CustomSampler):
    """All steps alike, in Python."""

    def law(self, view, batch_size):
        return np.full(len(view), 1.0 / len(view))


def reached(achieved, desired, info):
    return (achieved == desired).all(-1)


def minus_one(achieved, desired, info):
    return reached(achieved, desired, info) - 1.0


def steps(n, **other):
    """n steps of one episode that counts 0, 1, 2, ..."""
    t = np.arange(n)
    flags = np.zeros(n, bool)
    obs = np.stack([t, t], 1).astype(np.float32)
    return {
        "obs": obs, "next_obs": obs + 1, "action": t, "reward": np.ones(n), "terminated": flags, "truncated": flags,
    } | other  # fmt: skip


def goal_steps(n):
    row = steps(n)
    for name in ("obs", "next_obs"):
        row[name] = {"achieved_goal": row[name], "desired_goal": np.full((n, 2), -5.0)}
    return row


class TestWhatABufferTells:
    def test_its_parts(self):
        transforms = (NStep(2), FrameStack(3))
        buffer = ReplayBuffer(10, FIELDS, transforms=transforms, next_obs="derived")
        assert buffer.transforms == transforms
        assert buffer.retention == Fifo()
        assert buffer.next_obs == "derived"
        assert set(buffer.columns) == set(FIELDS) - {"next_obs"}
        assert ReplayBuffer(10, FIELDS, retention=Reservoir()).retention == Reservoir()


class TestEndEpisode:
    @pytest.mark.parametrize("sampler", [Prioritized(beta=0.4), Even()], ids=["core", "python"])
    def test_nothing_looks_over_it(self, sampler):
        buffer = ReplayBuffer(10, FIELDS, sampler=sampler, transforms=[NStep(3), FrameStack(2)], num_envs=2, seed=0)
        two = {name: np.stack([values] * 2, 1) for name, values in steps(2).items()}
        buffer.extend(**two)
        buffer.end_episode([True, False])
        buffer.extend(**two)
        batch = buffer.sample(200)
        environment, taken = batch.id % 2, batch.n_steps
        assert taken[batch.id == 0].tolist() == [2] * (batch.id == 0).sum()
        assert taken[batch.id == 1].tolist() == [3] * (batch.id == 1).sum()
        reset = (batch.id == 4) & (environment == 0)
        assert reset.any()
        assert (batch.obs[reset] == 0).all()  # the first frame, repeated
        assert (batch.obs[batch.id == 5][:, :, 0] == [1, 0]).all()  # the frame before it was of the same episode

    def test_the_view_of_a_custom_sampler_sees_it(self):
        seen = []

        class Seeing(Even):
            def law(self, view, batch_size):
                seen.append((view.episodes.tolist(), view.steps_in_episode.tolist(), view.ages.tolist()))
                return super().law(view, batch_size)

        buffer = ReplayBuffer(10, FIELDS, sampler=Seeing(), seed=0)
        buffer.extend(**steps(2))
        buffer.end_episode()
        buffer.extend(**steps(1))
        buffer.sample(1)
        episodes, places, ages = seen[-1]
        assert episodes[0] == episodes[1] < episodes[2]
        assert places == [0, 1, 0]
        assert ages == [2, 1, 0]


class TestStackedInput:
    def test_the_newest_frame_is_stored(self):
        fields = {"obs": Field((2,), np.uint8), "next_obs": Field((2,), np.uint8)}
        buffer = ReplayBuffer(10, fields, transforms=[FrameStack(3, stacked_input=True)], num_envs=2, seed=0)
        stacks = np.arange(4 * 2 * 3 * 2, dtype=np.uint8).reshape(4, 2, 3, 2)
        stacks[0] = stacks[0, :, -1:]  # an episode begins with padding
        buffer.add(obs=stacks[0], next_obs=stacks[1])
        buffer.extend(obs=stacks[1:3], next_obs=stacks[2:4])
        np.testing.assert_array_equal(buffer.columns["obs"][:6].reshape(3, 2, 2), stacks[:3, :, -1])
        np.testing.assert_array_equal(buffer.columns["next_obs"][:6].reshape(3, 2, 2), stacks[1:4, :, -1])

    def test_a_stacked_environment_declares_frames(self):
        gym = pytest.importorskip("gymnasium")
        env = gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), 3)
        buffer = ReplayBuffer.for_env(env, 50, transforms=[FrameStack(3, stacked_input=True)], seed=0)
        assert buffer.fields["obs"].shape == buffer.fields["next_obs"].shape == (4,)
        obs, _ = env.reset(seed=0)
        given = {}
        for _ in range(8):
            next_obs, reward, terminated, truncated, _ = env.step(0)
            step = buffer.add(
                obs=obs, action=0, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
            )
            given[step] = obs, next_obs
            obs = next_obs
            assert not terminated | truncated
        batch = buffer.sample(64)
        for i, step in enumerate(batch.id):
            np.testing.assert_array_equal(batch.obs[i], given[step][0])
            np.testing.assert_array_equal(batch.next_obs[i], given[step][1])


class TestOut:
    """Batches with relabelled goals go into arrays that are there already."""

    def buffer(self, *transforms):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        buffer = ReplayBuffer(20, fields, transforms=(Hindsight(minus_one, reached), *transforms), seed=3)
        buffer.extend(**goal_steps(12))
        return buffer

    @pytest.mark.parametrize("transforms", [(), (NStep(3),)], ids=["alone", "n-step"])
    def test_the_same_batch(self, transforms):
        one, two = self.buffer(*transforms), self.buffer(*transforms)
        out = two.sample(8)
        one.sample(8)
        wanted, got = one.sample(8), two.sample(8, out=out)
        assert got is out
        np.testing.assert_array_equal(got.obs["desired_goal"], wanted.obs["desired_goal"])
        for name in ("reward", "terminated", "truncated", "relabelled", "id"):
            np.testing.assert_array_equal(got[name], wanted[name])

    def test_a_batch_that_does_not_fit(self):
        buffer = self.buffer(NStep(3))
        small, plain = buffer.sample(4), self.buffer().sample(8)
        with pytest.raises(ShapeError, match=r"`out` must hold `obs.achieved_goal` as float32 of shape \(8, 2\), but"):
            buffer.sample(8, out=small)
        with pytest.raises(FieldError, match="`out` has no field `n_steps`; pass a batch that an equal call"):
            buffer.sample(8, out=plain)


class TestHindsight:
    def test_a_python_sampler_draws_as_the_core_does(self):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        hindsight = Hindsight(minus_one, reached, strategy="final", ratio=1e9)
        buffer = ReplayBuffer(20, fields, sampler=Even(), transforms=[hindsight], seed=0)
        buffer.extend(**goal_steps(6))
        batch = buffer.sample(64)
        assert batch.relabelled.all()
        assert (batch.obs["desired_goal"] == 6.0).all()
        np.testing.assert_array_equal(batch.reward, np.where(batch.id == 5, 0.0, -1.0))
        np.testing.assert_array_equal(batch.terminated, batch.id == 5)

    def test_never_and_always(self):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        for ratio, share in ((0.0, 0.0), (1e9, 1.0)):
            buffer = ReplayBuffer(20, fields, transforms=[Hindsight(minus_one, reached, ratio=ratio)], seed=0)
            buffer.extend(**goal_steps(6))
            batch = buffer.sample(64)
            assert batch.relabelled.mean() == share
            assert ((batch.obs["desired_goal"] == -5.0).mean() == 1.0) == (share == 0.0)

    def test_an_end_under_the_old_goal_is_a_cut_under_the_new(self):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        hindsight = Hindsight(minus_one, lambda *_: np.zeros(len(_[0]), bool), ratio=1e9)
        buffer = ReplayBuffer(20, fields, transforms=[hindsight], seed=0)
        buffer.extend(**goal_steps(6) | {"terminated": np.arange(6) == 5})
        batch = buffer.sample(64)
        assert not batch.terminated.any()
        np.testing.assert_array_equal(batch.truncated, batch.id == 5)


class TestSequence:
    def sequence(self):
        return Sequence(length=3, overlap=1, burn_in=1)

    @pytest.mark.parametrize("sampler", [Prioritized(beta=0.4), Even()], ids=["core", "python"])
    def test_blocks_have_the_law_of_their_steps(self, sampler):
        buffer = ReplayBuffer(20, FIELDS, sampler=sampler, transforms=[self.sequence()], seed=0)
        buffer.extend(**steps(5))
        law = buffer.probabilities(np.arange(5), batch_size=8)
        np.testing.assert_allclose(law, [0.4, 0, 0.4, 0, 0.2], rtol=1e-6)
        batch = buffer.sample(64)
        assert set(batch.id) == {0, 2, 4}
        np.testing.assert_allclose(batch.probability, law[batch.id], rtol=1e-6)
        second = batch.action[batch.id == 2]
        assert (second == [1, 2, 3, 4]).all()

    @pytest.mark.parametrize("sampler", [Prioritized(beta=0.4, alpha=1.0, epsilon=0.0), Even()], ids=["core", "python"])
    def test_feedback_is_the_whole_blocks(self, sampler):
        class Fed(Even):
            def law(self, view, batch_size):
                return view.priorities / view.priorities.sum()

        sampler = Fed() if isinstance(sampler, Even) else sampler
        buffer = ReplayBuffer(20, FIELDS, sampler=sampler, transforms=[self.sequence()], seed=0)
        buffer.extend(**steps(5))
        buffer.update_priorities([0, 2, 4], priority=[1.0, 3.0, 2.0])
        law = buffer.probabilities(np.arange(5), batch_size=8)
        np.testing.assert_allclose(law, np.array([2, 0, 6, 0, 2]) / 10, rtol=1e-6)

    def test_priority_is_the_formulas(self):
        sequence = Sequence(length=3, overlap=1, burn_in=1, eta=0.9)
        td_error = np.array([[9.0, 1.0, -3.0, 100.0]])  # burn-in first; the last step is not stored
        mask = np.array([[True, True, True, False]])
        expected = 0.9 * 3.0 + 0.1 * 2.0
        np.testing.assert_allclose(sequence.priority(td_error, mask), [expected])
        np.testing.assert_allclose(sequence.priority(td_error[:, 1:], mask), [expected])
        np.testing.assert_allclose(sequence.priority(td_error[:, 1:], mask[:, 1:]), [expected])
        assert sequence.priority(td_error, np.zeros((1, 4), bool)).tolist() == [0.0]
