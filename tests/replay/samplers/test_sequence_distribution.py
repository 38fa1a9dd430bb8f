"""Every sampler keeps its sampling distribution where sequences are drawn: a block's is the sum of its steps'."""

import numpy as np
import pytest

from replaylab.replay import Field, ReplayBuffer, Sequence
from replaylab.research import Blocks
from replaylab.testing import SamplerTestCase
from tests.replay.guarantees.test_conformance import SAMPLERS

FIELDS = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}


class SequenceCase(SamplerTestCase):
    batches = 75
    transforms = (Sequence(4, 1, 2),)

    @pytest.mark.parametrize("num_envs", [None])
    def test_rows_are_the_steps_of_their_ids(self, num_envs):
        """While steps are added between the draws: a row holds its block, and neighbours in the same episode."""
        buffer = ReplayBuffer(24, FIELDS, sampler=self.sampler, transforms=self.transforms, seed=1)
        for step in range(120):
            buffer.add(x=step, terminated=step % 7 == 0, truncated=False)
            if step < 30:
                continue
            batch = self.draw(buffer)
            for id_, x, mask in zip(batch.id.tolist(), batch.x, batch.mask, strict=True):
                start = (id_ - 1) // 7 * 7 + 1  # episodes are 0, 1 to 7, 8 to 14, ...
                first = start + (id_ - start) // 3 * 3
                wanted = np.arange(first - 2, first + 4)
                stored = (wanted >= max(start, step - 23)) & (wanted <= min(start + 6, step))
                np.testing.assert_array_equal(mask, stored)
                np.testing.assert_array_equal(x, wanted * stored)
                assert wanted[2:][stored[2:]][0] == id_


CASES = {
    f"Test{type(sampler).__name__}{i}": type(
        f"Test{type(sampler).__name__}{i}",
        (SequenceCase,),
        {
            "sampler": sampler,
            "independent": not isinstance(sampler, Blocks),
            "batches": 75 if sampler.in_core else 40,  # a draw in Python takes ten times as long
        },
    )
    for i, sampler in enumerate(SAMPLERS)
    if sampler.draws_sequences
}
globals().update(CASES)
