"""The conformance suite for samplers: inherit it to hold your own to the laws of this library's.

    class TestFresh(SamplerTestCase):
        sampler = Fresh()

pytest then runs every test of the class. It needs SciPy.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.replay import Field, ReplayBuffer, Sampler

ALARM = 1e-9
"""A comparison fails below this p-value; a class makes fewer than 60, so it raises fewer than one false
alarm in ten million."""


class SamplerTestCase:
    """What every sampler must keep, whatever it draws.

    Attributes:
        sampler: The sampler under test.
        batch_size: Rows asked for; the tests store at least three times as many steps.
        batches: Batches drawn for a comparison with the law.
        independent: Whether the rows of a batch scatter no more than independent draws; if not (blocks of
            neighbours, say), only every row's own chance is compared, by the first row of each batch.
    """

    sampler: Sampler
    batch_size: int = 8
    batches: int = 1500
    independent: bool = True

    def test_the_law_sums_to_one(self) -> None:
        """At every size, before and after the ring wraps."""
        for capacity, steps in ((100, 24), (100, 99), (100, 100), (24, 101)):
            buffer, ids = self.fill(capacity, steps)
            law = self.law(buffer, ids)
            assert (law >= 0.0).all()
            np.testing.assert_allclose(law.sum(), 1.0, rtol=1e-9)

    def test_draws_follow_the_law(self) -> None:
        """Counts agree with the probabilities stated before each batch, and each row carries its own."""
        for capacity, steps in ((100, 99), (37, 37), (24, 101)):
            buffer, ids = self.fill(capacity, steps)
            self.compare(buffer, ids)

    def test_draws_follow_the_law_after_feedback(self) -> None:
        """The same with TD errors fed back, a tenth of them zero."""
        for capacity, steps in ((100, 60), (24, 101)):
            buffer, ids = self.fill(capacity, steps)
            rng = np.random.default_rng(5)
            buffer.update_priorities(ids, rng.normal(size=len(ids)) * (rng.random(len(ids)) > 0.1))
            self.compare(buffer, ids)

    def test_rows_are_the_steps_of_their_ids(self) -> None:
        """While steps are added between the draws."""
        buffer, _ = self.fill(24, 30)
        for step in range(30, 200):
            buffer.add(x=step, terminated=step % 7 == 0, truncated=False)
            batch = self.draw(buffer)
            np.testing.assert_array_equal(batch.x, batch.id)
            assert batch.id.min() > step - 24

    def test_one_seed_one_sequence(self) -> None:
        """Equal seeds draw equally, different ones do not (unless the sampler draws nothing at random)."""
        one, two = (self.fill(100, 80, seed=7)[0] for _ in range(2))
        for _ in range(5):
            np.testing.assert_array_equal(self.draw(one).id, self.draw(two).id)

    def test_replicas_are_single_buffers(self) -> None:
        """Replica r draws what a single buffer of its seed does."""
        together, _ = self.fill(50, 60, seed=[3, 11], replicas=2)
        alone = [self.fill(50, 60, seed=seed)[0] for seed in (3, 11)]
        for _ in range(5):
            ids = self.draw(together).id
            for r, buffer in enumerate(alone):
                np.testing.assert_array_equal(ids[r], self.draw(buffer).id)

    def test_nothing_global_is_drawn_from(self) -> None:
        """NumPy's global generator is left alone."""
        before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
        self.draw(self.fill(100, 80)[0])
        np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002

    def fill(
        self, capacity: int, steps: int, *, seed: Any = 1, replicas: int | None = None
    ) -> tuple[ReplayBuffer, npt.NDArray[np.int64]]:
        """Return a buffer of so many steps, in episodes of seven, and the ids it holds."""
        fields = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
        buffer = ReplayBuffer(capacity, fields, replicas=replicas, sampler=self.sampler, seed=seed)
        for step in range(steps):
            row = {"x": step, "terminated": step % 7 == 0, "truncated": False}
            buffer.add(**(row if replicas is None else {k: np.full(replicas, v) for k, v in row.items()}))
        return buffer, np.arange(max(0, steps - capacity), steps)

    def draw(self, buffer: ReplayBuffer) -> Any:
        """Return a batch, at half of the run."""
        return buffer.sample(self.batch_size, progress=0.5)

    def law(self, buffer: ReplayBuffer, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the probabilities of ids."""
        return buffer.probabilities(ids, batch_size=self.batch_size, progress=0.5)

    def compare(self, buffer: ReplayBuffer, ids: npt.NDArray[np.int64]) -> None:
        """Draw many batches and compare what came with the law before each."""
        from scipy import stats

        counts, expected = np.zeros(len(ids)), np.zeros(len(ids))
        for _ in range(self.batches):
            law = self.law(buffer, ids)
            batch = self.draw(buffer)
            np.testing.assert_allclose(batch.probability, law[batch.id - ids[0]], rtol=1e-9)
            rows = batch.id if self.independent else batch.id[:1]
            counts += np.bincount(rows - ids[0], minlength=len(ids))
            expected += law * len(rows)
        assert counts[expected == 0.0].sum() == 0.0, "a step of probability zero was drawn"
        order = np.argsort(expected)
        cells = np.maximum(np.cumsum(expected[order]) // 25.0, 1.0).astype(np.int64)
        found, wanted = (np.bincount(cells, weights=values[order])[1:] for values in (counts, expected))
        found, wanted = found[wanted > 0], wanted[wanted > 0]
        if len(wanted) > 1:
            statistic = float(((found - wanted) ** 2 / wanted).sum())
            assert stats.chi2.sf(statistic, len(wanted) - 1) > ALARM, f"{type(self.sampler).__name__} breaks its law"
