"""Small worlds where what a transform makes can be written down by hand."""

import numpy as np
import pytest

from replaylab.errors import FieldError, ShapeError
from replaylab.replay import (
    Hindsight,
    NStep,
    Prioritized,
    ReplayBuffer,
    Sequence,
)
from tests.replay.buffers import GOALS, Even
from tests.replay.refusals.test_bad_making import FIELDS


def reached(achieved, desired, info):
    return (achieved == desired).all(-1)


def minus_one(achieved, desired, info):
    return reached(achieved, desired, info) - 1.0


def steps(n):
    """n steps of one episode that counts 0, 1, 2, ..."""
    t = np.arange(n)
    flags = np.zeros(n, bool)
    obs = np.stack([t, t], 1).astype(np.float32)
    ends = {"terminated": flags, "truncated": flags}
    return {"obs": obs, "next_obs": obs + 1, "action": t, "reward": np.ones(n), **ends}


def goal_steps(n):
    row = steps(n)
    for name in ("obs", "next_obs"):
        row[name] = {"achieved_goal": row[name], "desired_goal": np.full((n, 2), -5.0)}
    return row


class TestOut:
    """Batches with relabelled goals go into arrays that are there already."""

    def buffer(self, *transforms):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        buffer = ReplayBuffer(20, fields, transforms=(Hindsight(minus_one, reached), *transforms), seed=3)
        buffer.extend(**goal_steps(12))
        return buffer

    def test_a_batch_that_does_not_fit(self):
        buffer = self.buffer(NStep(3))
        small, plain = buffer.sample(4), self.buffer().sample(8)
        with pytest.raises(ShapeError, match=r"`out` must hold `obs.achieved_goal` as float32 of shape \(8, 2\), but"):
            buffer.sample(8, out=small)
        with pytest.raises(FieldError, match="`out` has no field `n_steps`; pass a batch that an equal call"):
            buffer.sample(8, out=plain)


class TestSequence:
    def sequence(self):
        return Sequence(length=3, overlap=1, burn_in=1)

    @pytest.mark.parametrize("sampler", [Prioritized(beta=0.4, alpha=1.0, epsilon=0.0), Even()], ids=["core", "python"])
    def test_feedback_is_the_whole_blocks(self, sampler):
        class Fed(Even):
            def distribution(self, view, batch_size):
                return view.priorities / view.priorities.sum()

        sampler = Fed() if isinstance(sampler, Even) else sampler
        buffer = ReplayBuffer(20, FIELDS, sampler=sampler, transforms=[self.sequence()], seed=0)
        buffer.extend(**steps(5))
        buffer.update_priorities([0, 2, 4], priority=[1.0, 3.0, 2.0])
        distribution = buffer.probabilities(np.arange(5), batch_size=8)
        np.testing.assert_allclose(distribution, np.array([2, 0, 6, 0, 2]) / 10, rtol=1e-6)

    def test_priority_is_the_formulas(self):
        sequence = Sequence(length=3, overlap=1, burn_in=1, eta=0.9)
        td_error = np.array([[9.0, 1.0, -3.0, 100.0]])  # burn-in first; the last step is not stored
        mask = np.array([[True, True, True, False]])
        expected = 0.9 * 3.0 + 0.1 * 2.0
        np.testing.assert_allclose(sequence.priority(td_error, mask), [expected])
        np.testing.assert_allclose(sequence.priority(td_error[:, 1:], mask), [expected])
        np.testing.assert_allclose(sequence.priority(td_error[:, 1:], mask[:, 1:]), [expected])
        assert sequence.priority(td_error, np.zeros((1, 4), bool)).tolist() == [0.0]
