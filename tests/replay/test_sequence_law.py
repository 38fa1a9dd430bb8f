"""Every sampler keeps its law where sequences are drawn: a block's is the sum of its steps'."""

import numpy as np

from replaylab.replay import Blocks, Field, ReplayBuffer, Sequence
from replaylab.testing import SamplerTestCase

from .test_conformance import SAMPLERS


class SequenceCase(SamplerTestCase):
    batches = 300

    def fill(self, capacity, steps, *, seed=1, replicas=None):
        """The same steps in the same episodes, drawn in sequences."""
        fields = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
        transforms = [Sequence(4, 1, 2)]
        options = {"replicas": replicas, "sampler": self.sampler, "seed": seed}
        buffer = ReplayBuffer(capacity, fields, transforms=transforms, **options)
        lead = () if replicas is None else (replicas,)
        x = np.broadcast_to(np.arange(steps), (*lead, steps))
        buffer.extend(x=x, terminated=x % 7 == 0, truncated=np.zeros_like(x, bool))
        return buffer, np.arange(max(0, steps - capacity), steps)

    def test_rows_are_the_steps_of_their_ids(self):
        """While steps are added between the draws: a row holds its block, and neighbours in the same episode."""
        buffer, _ = self.fill(24, 30)
        for step in range(30, 120):
            buffer.add(x=step, terminated=step % 7 == 0, truncated=False)
            batch = self.draw(buffer)
            for id_, x, mask in zip(batch.id.tolist(), batch.x, batch.mask, strict=True):
                start = (id_ - 1) // 7 * 7 + 1  # episodes are 0, 1 to 7, 8 to 14, ...
                first = start + (id_ - start) // 3 * 3
                wanted = np.arange(first - 2, first + 4)
                kept = (wanted >= max(start, step - 23)) & (wanted <= min(start + 6, step))
                np.testing.assert_array_equal(mask, kept)
                np.testing.assert_array_equal(x, wanted * kept)
                assert wanted[2:][kept[2:]][0] == id_


CASES = {
    f"Test{type(sampler).__name__}{i}": type(
        f"Test{type(sampler).__name__}{i}",
        (SequenceCase,),
        {"sampler": sampler, "independent": not isinstance(sampler, Blocks)},
    )
    for i, sampler in enumerate(SAMPLERS)
}
globals().update(CASES)
