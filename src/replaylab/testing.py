"""The conformance suite for samplers: inherit from `SamplerTestCase` to test your own sampler.

    class TestFresh(SamplerTestCase):
        sampler = Fresh()

pytest then runs every test of the class. It needs pytest and SciPy.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, ReplayBuffer, Sampler, Transform

ALARM = 1e-9
"""A comparison fails below this p-value; a test makes three at most, a class 162, so that a test raises fewer than
one false alarm in a hundred million, a class fewer than one in a million."""

STATES = ("empty slots", "full", "wrapped", "after updates", "zero priorities", "removed steps")
REPLICAS = (None, 1, 3)
NUM_ENVS = (None, 1, 4)

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class SamplerTestCase:
    """The tests that every sampler must pass.

    Attributes:
        sampler: The sampler under test.
        batch_size: Rows asked for; the tests store at least three times as many steps.
        batches: Batches drawn for a comparison with the sampling distribution.
        transforms: Transforms of the buffers under test.
        independent: Whether the rows of a batch scatter no more than independent draws; if not (blocks of
            neighbours, say), only the first row of each batch is compared.
    """

    sampler: Sampler
    batch_size: int = 8
    batches: int = 500
    transforms: tuple[Transform, ...] = ()
    independent: bool = True

    @pytest.mark.parametrize("num_envs", NUM_ENVS)
    @pytest.mark.parametrize("replicas", REPLICAS)
    @pytest.mark.parametrize("state", STATES)
    def test_draws_follow_the_distribution(self, state: str, replicas: int | None, num_envs: int | None) -> None:
        """Counts of drawn steps agree with the probabilities stated before each batch, which sum to 1."""
        buffer, ids = self.fill(state, replicas=replicas, num_envs=num_envs)
        if (
            self.sampler.has_closed_form
            or type(self).draw_with_distribution is not SamplerTestCase.draw_with_distribution
        ):
            self.compare(buffer, ids)
            return
        with pytest.raises(ConfigError) as caught:
            self.distribution(buffer, ids)
        assert self.sampler.no_closed_form in str(caught.value)

    @pytest.mark.parametrize("num_envs", NUM_ENVS)
    def test_rows_are_the_steps_of_their_ids(self, num_envs: int | None) -> None:
        """A drawn row holds the step of its id, also when steps are added between draws."""
        buffer, _ = self.fill("wrapped", num_envs=num_envs)
        for _ in range(150):
            give(buffer, 1)
            batch = self.draw(buffer)
            np.testing.assert_array_equal(batch.x, batch.id)
            assert batch.id.shape[-1] == self.sampler.rows(self.batch_size)
            assert batch.id.min() >= stored_ids(buffer)[0]

    def test_one_seed_one_sequence(self) -> None:
        """Equal seeds draw equal sequences of ids."""
        buffer, same_seed = (self.fill("empty slots", seed=7)[0] for _ in range(2))
        for _ in range(5):
            np.testing.assert_array_equal(self.draw(buffer).id, self.draw(same_seed).id)

    def test_replicas_are_single_buffers(self) -> None:
        """Replica r draws the ids that a single buffer of its seed draws."""
        together, _ = self.fill("wrapped", seed=[3, 11, 5], replicas=3)
        alone = [self.fill("wrapped", seed=seed)[0] for seed in (3, 11, 5)]
        for _ in range(5):
            ids = self.draw(together).id
            for r, buffer in enumerate(alone):
                np.testing.assert_array_equal(ids[r], self.draw(buffer).id)

    def test_nothing_global_is_drawn_from(self) -> None:
        """NumPy's global generator is not used."""
        before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
        self.draw(self.fill("empty slots")[0])
        np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002

    def fill(
        self, state: str, *, seed: Any = 1, replicas: int | None = None, num_envs: int | None = None
    ) -> tuple[ReplayBuffer, Ids]:
        """Return a buffer in this state, filled with short episodes, and the ids it stores, or stored at first."""
        fields = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
        special = {"empty slots": (100, 60), "full": (37, 37), "removed steps": (33, 101)}
        capacity, steps = special.get(state, (29, 101))
        options: dict[str, Any] = {"num_envs": num_envs, "replicas": replicas, "transforms": self.transforms}
        buffer = ReplayBuffer(capacity, fields, sampler=self.sampler, seed=seed, **options)
        while len(buffer) < min(steps, capacity) or stored_ids(buffer)[-1] < steps - 1:
            give(buffer, 20, most=capacity if state == "full" else steps + 3)
        ids = stored_ids(buffer)
        rng = np.random.default_rng(5)
        values = np.repeat(rng.normal(size=(1, len(ids))) * (rng.random(len(ids)) > 0.2), replicas or 1, axis=0)
        shape = ids.shape if replicas is None else values.shape
        if state == "after updates":
            buffer.update_priorities(np.broadcast_to(ids, shape), values.reshape(shape))
            give(buffer, 2)
        if state == "zero priorities":
            kind = "priority" if self.sampler.takes_priorities else "td_error"
            buffer.update_priorities(np.broadcast_to(ids, shape), **{kind: np.abs(values).reshape(shape)})
        if state == "removed steps" and self.sampler.allows_removal:
            buffer.update_priorities(np.broadcast_to(ids, shape), values.reshape(shape))
            removed = ids[[0, 3, 4, 14, 19, 20, -1]]
            buffer.remove(np.broadcast_to(removed, (*shape[:-1], len(removed))))
            return buffer, ids
        return buffer, stored_ids(buffer)

    def draw(self, buffer: ReplayBuffer) -> Any:
        """Return a batch, drawn at progress 0.5."""
        return buffer.sample(self.batch_size, progress=0.5)

    def distribution(self, buffer: ReplayBuffer, ids: Ids) -> Floats:
        """Return the probabilities of ids (N,) in each replica (R, N)."""
        rows = ids if buffer.replicas is None else ids[None].repeat(buffer.replicas, axis=0)
        return buffer.probabilities(rows, batch_size=self.batch_size, progress=0.5).reshape(-1, len(ids))

    def draw_with_distribution(self, buffer: ReplayBuffer, ids: Ids) -> tuple[Floats, Any, Any]:
        """Return the distribution of the next batch (R, N), and its ids and their stated probabilities ``[R] B``.

        Override it for a sampler without a closed form whose distribution is known given something else.
        """
        distribution = self.distribution(buffer, ids)
        batch = self.draw(buffer)
        return distribution, batch.id, batch.probability

    def compare(self, buffer: ReplayBuffer, ids: Ids) -> None:
        """Draw many batches and compare them with the sampling distribution before each draw."""
        distributions, drawn, stated = map(
            np.stack, zip(*(self.draw_with_distribution(buffer, ids) for _ in range(self.batches)), strict=True)
        )
        rows = drawn.reshape(self.batches, buffer.replicas or 1, -1) - ids[0]
        np.testing.assert_allclose(
            distributions.sum(axis=2), 1.0, rtol=1e-9, err_msg="a sampling distribution does not sum to 1"
        )
        probabilities = np.take_along_axis(distributions, rows, axis=2)
        np.testing.assert_allclose(
            stated.reshape(rows.shape),
            probabilities,
            rtol=1e-9,
            err_msg="a row's `probability` differs from its sampling distribution",
        )
        rows = rows if self.independent else rows[:, :, :1]
        for r in range(rows.shape[1]):
            counts = np.bincount(rows[:, r].ravel(), minlength=len(ids)).astype(np.float64)
            expected = distributions[:, r].sum(axis=0) * rows.shape[2]
            assert p_value(counts, expected) > ALARM, f"{type(self.sampler).__name__} breaks its sampling distribution"


def give(buffer: ReplayBuffer, times: int, most: int | None = None) -> None:
    """Add time steps in which some environments rest; the field x holds each step's id, up to `most` − 1."""
    E, lead = buffer.num_envs or 1, () if buffer.replicas is None else (buffer.replicas,)
    next_id = int(stored_ids(buffer)[-1]) + 1 if len(buffer) else 0
    ids, where = np.empty((times, E), np.int64), np.ones((times, E), np.bool_)
    for t in range(times):
        if E > 1:
            where[t] = (next_id + 3 * np.arange(E)) % 5 != 0
        ids[t] = next_id + where[t].cumsum() - 1
        where[t] &= ids[t] < (2**62 if most is None else most)
        next_id += int(where[t].sum())
    steps = {"x": ids, "terminated": ids % 7 == 0, "truncated": ids % 11 == 0, "where": where}
    shape = (*lead, times, E) if buffer.num_envs else (*lead, times)
    buffer.extend(**{name: np.broadcast_to(value, (*lead, times, E)).reshape(shape) for name, value in steps.items()})


def stored_ids(buffer: ReplayBuffer) -> Ids:
    """Return the ids a buffer filled by `give` holds, which are the same in every replica."""
    newest = np.asarray(buffer.columns["x"])[..., : len(buffer)].max() if len(buffer) else -1
    return np.arange(newest + 1 - len(buffer), newest + 1)


def p_value(counts: Floats, expected: Floats) -> float:
    """Return the chance of counts at least this far from the expected, pooled into cells of at least 25 expected draws.

    Neighbours are pooled, not steps of similar probability: if a sampler avoids steps that it drew before, those of
    small probability are the ones drawn often, and pooling them would reject a correct sampler.
    """
    from scipy import stats

    assert counts[expected == 0.0].sum() == 0.0, "a step of probability zero was drawn"
    starts, pooled = [0], 0.0
    for step, chance in enumerate(expected):
        if pooled >= 25.0:
            starts.append(step)
            pooled = 0.0
        pooled += chance
    if pooled < 25.0 and len(starts) > 1:  # too few for a separate cell
        starts.pop()
    if len(starts) < 2:
        return 1.0
    observed, pooled_expected = (np.add.reduceat(values, starts) for values in (counts, expected))
    return float(stats.chi2.sf(((observed - pooled_expected) ** 2 / pooled_expected).sum(), len(pooled_expected) - 1))
