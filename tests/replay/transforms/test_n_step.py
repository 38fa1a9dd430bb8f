"""Fields that an n-step return takes from its last step; `test_transforms_against_oracle.py` has the returns."""

import numpy as np
import pytest

from replaylab.errors import FieldError
from replaylab.replay import Field, NStep, ReplayBuffer, Sequence
from tests.replay.buffers import transition

FIELDS = transition(Field((2,)))


MASKED = {
    **FIELDS,
    "next_action_mask": Field((2,), bool),
    "mask": Field((2,), bool),
    "info": {"time": Field((), int), "place": Field((), int)},
}


class TestFieldsOfTheLastStep:
    """Fields that belong to `next_obs` come from the same step."""

    def batch(self, transform, **options):
        buffer = ReplayBuffer(20, MASKED, transforms=[transform], seed=0, **options)
        n = np.arange(6)
        obs = np.repeat(n[:, None], 2, 1)
        masks = np.stack([n % 2 == 0, n % 3 == 0], 1)
        buffer.extend(
            obs=obs,
            next_obs=obs + 1,
            reward=n,
            terminated=n == 5,
            truncated=n < 0,
            next_action_mask=np.roll(masks, -1, 0),
            mask=masks,
            info={"time": n, "place": 10 * n},
        )
        return buffer.as_batch(range(6)), masks

    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_names_that_begin_so(self, next_obs):
        batch, masks = self.batch(NStep(3, 1.0), next_obs=next_obs)
        last = batch.next_obs[:, 0].astype(int)
        assert last.tolist() == [3, 4, 5, 6, 6, 6]
        np.testing.assert_array_equal(batch.next_action_mask, np.roll(masks, -1, 0)[last - 1])
        np.testing.assert_array_equal(batch.mask, masks)
        assert batch.info["time"].tolist() == list(range(6))

    def test_fields_that_are_listed(self):
        batch, masks = self.batch(NStep(3, 1.0, last=("mask", "info.time")))
        last = [2, 3, 4, 5, 5, 5]
        np.testing.assert_array_equal(batch.mask, masks[last])
        assert batch.info["time"].tolist() == last
        assert batch.info["place"].tolist() == list(range(0, 60, 10))
        batch, _ = self.batch(NStep(3, 1.0, last=("info",)))
        assert batch.info["place"].tolist() == [10 * step for step in last]

    @pytest.mark.parametrize("name", ["masks", "info.when", "reward", "obs", ""])
    def test_others_are_refused(self, name):
        with pytest.raises(FieldError, match="`last` of NStep must name declared fields"):
            ReplayBuffer(20, MASKED, transforms=[NStep(last=(name,))])

    def test_none_is_a_recurrent_state(self):
        fields = {**FIELDS, "next_hidden": Field((2,)), "hidden": Field((2,))}
        for name, transform in (("next_hidden", NStep()), ("hidden", NStep(last=("hidden",)))):
            with pytest.raises(FieldError, match=f"`{name}` cannot be a `state` of Sequence"):
                ReplayBuffer(20, fields, transforms=[transform, Sequence(4, 0, 0, state=(name,))])
