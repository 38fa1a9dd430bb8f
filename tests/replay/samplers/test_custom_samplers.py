"""Samplers written in Python: what they see, and what they may not return."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, ShapeError
from replaylab.replay import CustomSampler, Field, Oracle, ReplayBuffer


@dataclass(frozen=True)
class Written(CustomSampler):
    """Draws and states what it is told to."""

    chances: tuple[float, ...] | None = None
    drawn: object = None

    def law(self, view, batch_size):
        return np.full(len(view), 1.0 / len(view)) if self.chances is None else np.array(self.chances)

    def draw(self, view, batch_size, rng):
        return super().draw(view, batch_size, rng) if self.drawn is None else self.drawn


@dataclass(frozen=True)
class Soft(CustomSampler):
    """A law as it comes from PyTorch or JAX, in float32."""

    def law(self, view, batch_size):
        weights = np.exp(np.sin(view.ids)).astype(np.float32)
        return weights / weights.sum()


def filled(sampler, capacity=4, steps=6):
    buffer = ReplayBuffer(capacity, {"x": Field()}, sampler=sampler, seed=0)
    buffer.extend(x=np.arange(float(steps)))
    return buffer


@dataclass(frozen=True)
class Weighed(CustomSampler):
    """Weighs rows with what it is told to."""

    given: object = None

    def law(self, view, batch_size):
        return np.full(len(view), 1.0 / len(view))

    def weights(self, view, probabilities, progress):
        return self.given


class TestWeights:
    WRONG = (
        [1.0, np.nan],
        [1.0, np.inf],
        [1.0, 1e300],
        [1.0, -0.5],
        [1.0],
        [[1.0, 1.0]],
        1.0,
        None,
        "ab",
        [1j, 1.0],
    )

    @pytest.mark.parametrize("given", WRONG, ids=str)
    def test_that_are_none(self, given):
        buffer = filled(Weighed(given))
        message = (
            "`weights` of Weighed must return 2 weights, one a row, finite in float32 and not negative, but returned "
        )
        with pytest.raises(ConfigError) as caught:
            buffer.sample(2)
        assert str(caught.value).startswith(message)
        assert buffer.stats().samples == 0

    def test_that_are_ragged(self):
        with pytest.raises(ShapeError, match="`weights` of Weighed must be an array, but NumPy cannot make one of it"):
            filled(Weighed([[1.0], [1.0, 2.0]])).sample(2)

    @pytest.mark.parametrize("given", [[0, 3], (True, False), np.array([0.5, 2.0], np.float32)], ids=str)
    def test_that_are_taken(self, given):
        batch = filled(Weighed(given)).sample(2)
        assert batch.weight.dtype == np.float32
        np.testing.assert_array_equal(batch.weight, np.asarray(given, np.float32))


class TestRefusals:
    def test_nothing_is_stored(self):
        buffer = ReplayBuffer(4, {"x": Field()}, sampler=Written())
        with pytest.raises(EmptyBufferError) as caught:
            buffer.sample(2)
        assert str(caught.value) == "the buffer is empty; add at least one step before sampling"

    @pytest.mark.parametrize("chances", [(0.5, 0.5), (0.5, 0.5, 0.5, 0.5), (-1.0, 1.0, 0.5, 0.5), (np.nan,) * 4])
    def test_a_law_that_is_none(self, chances):
        buffer = filled(Written(chances=chances))
        for ask in (lambda: buffer.sample(2), lambda: buffer.probabilities([5], batch_size=2)):
            with pytest.raises(ConfigError) as caught:
                ask()
            said = {
                (0.5, 0.5): "an array of shape (2,)",
                (0.5, 0.5, 0.5, 0.5): "some that sum to 2.0; divide them by their sum",
                (-1.0, 1.0, 0.5, 0.5): "-1.0 for the step with the id 2",
            }
            told = said.get(chances, "nan for the step with the id 2")
            assert str(caught.value) == f"`law` of Written must return 4 chances that sum to 1, but returned {told}"

    @pytest.mark.parametrize("count", [16, 50, 100, 333, 1_000, 10_000])
    def test_a_law_in_float32_is_drawn_from(self, count):
        """Its sum is off by more than `Generator.choice` allows."""
        buffer = filled(Soft(), capacity=count, steps=count)
        for _ in range(20):
            batch = buffer.sample(8)
            assert np.allclose(buffer.probabilities(batch.id, batch_size=8), batch.probability, rtol=1e-6)
        assert abs(buffer.probabilities(np.arange(count), batch_size=8).sum() - 1.0) < 1e-12

    @pytest.mark.parametrize("drawn", [[1, 5], [5, 6], [-1], [[5, 4]]])
    def test_ids_that_are_not_stored(self, drawn):
        with pytest.raises(ConfigError) as caught:
            filled(Written(drawn=drawn)).sample(2)
        assert str(caught.value).startswith("`draw` of Written must return the ids of stored steps, int64 (B,), but")
        assert str(caught.value).endswith("; take them from view.ids")

    def test_more_different_steps_than_there_are(self):
        buffer = filled(Oracle(lambda ids: ids))
        assert sorted(buffer.sample(4).id) == [2, 3, 4, 5]
        with pytest.raises(EmptyBufferError) as caught:
            buffer.sample(5)
        assert str(caught.value) == (
            "Oracle gives `batch_size` different steps, but batch_size=5 and only 4 steps are stored; ask for fewer, "
            "or add more steps first"
        )


def test_dropped_steps_have_no_chance():
    buffer = filled(Written())
    assert buffer.probabilities([0, 1, 2, 5], batch_size=2).tolist() == [0.0, 0.0, 0.25, 0.25]
    assert buffer.probabilities([0, 1], batch_size=2).tolist() == [0.0, 0.0]  # none of them is stored


def test_what_a_view_holds():
    seen = {}

    class Looking(Written):
        def law(self, view, batch_size):
            names = ("ids", "ages", "episodes", "steps_in_episode", "replay_counts", "feedback", "priorities")
            seen.update({name: getattr(view, name).tolist() for name in names})
            return super().law(view, batch_size)

    fields = {"x": Field(), "terminated": Field((), bool)}
    buffer = ReplayBuffer(4, fields, sampler=Looking(drawn=np.array([3, 3, 5])), seed=0)
    buffer.extend(x=np.zeros(6), terminated=np.arange(6) == 3)
    assert buffer.sample(3).id.tolist() == [3, 3, 5]
    assert seen["priorities"] == [1.0, 1.0, 1.0, 1.0]  # where no feedback came at all
    buffer.update_priorities([0, 3, 4], [9.0, -2.0, 0.5])  # step 0 is gone
    buffer.sample(3)
    assert seen["ids"] == [2, 3, 4, 5]
    assert seen["ages"] == [3, 2, 1, 0]
    assert seen["episodes"] == [0, 0, 1, 1]
    assert seen["steps_in_episode"] == [2, 3, 0, 1]
    assert seen["replay_counts"] == [0, 2, 0, 1]
    np.testing.assert_array_equal(seen["feedback"], [np.nan, 2.0, 0.5, np.nan])
    assert seen["priorities"] == [2.0, 2.0, 0.5, 2.0]  # the largest, where none came
