"""Samplers as configuration: defaults, bounds, equality; and what each puts in a batch."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from replaylab.replay import (
    Combined,
    Constant,
    Exponential,
    Field,
    Linear,
    Online,
    Prioritized,
    ReplayBuffer,
    Sampler,
    SlidingWindow,
    Uniform,
)
from tests.replay.buffers import filled

ALL = [Online(), SlidingWindow(), Uniform(), Combined(), Combined(mode="replace"), Prioritized()]


make = partial(filled, capacity=50, steps=20)


@pytest.mark.parametrize("sampler", ALL, ids=repr)
class TestConfiguration:
    def test_is_frozen_and_compared_by_value(self, sampler):
        assert isinstance(sampler, Sampler)
        assert sampler == dataclasses.replace(sampler)
        assert hash(sampler) == hash(dataclasses.replace(sampler))
        for field in dataclasses.fields(sampler):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(sampler, field.name, None)


def test_defaults_are_those_of_the_papers():
    sampler = Prioritized()
    assert (sampler.alpha, sampler.beta, sampler.epsilon) == (0.6, Linear(0.4, 1.0), 1e-6)
    assert sampler.normalize == "buffer"
    assert Combined().mode == "plus"
    assert ReplayBuffer(1, {"x": Field()}).sampler == Uniform()


class TestWhatABatchHolds:
    @pytest.mark.parametrize("sampler", ALL[:5], ids=repr)
    def test_feedback_is_counted_and_changes_nothing(self, sampler):
        """A training loop need not know whether its sampler listens."""
        buffer, twin = make(sampler), make(sampler)
        assert buffer.update_priorities(np.array([1, 19, -1]), np.array([5.0, 0.0, 1.0])) == 2
        np.testing.assert_array_equal(buffer.sample(8).id, twin.sample(8).id)

    def test_a_batch_is_a_mapping_with_attributes(self):
        batch = make(Uniform()).sample(3)
        assert set(batch) == {"x", "weight", "probability", "id"}
        assert len(batch) == 4
        assert batch.x is batch["x"]
        assert dict(batch)["id"] is batch.id
        assert "x" in batch
        assert "y" not in batch
        with pytest.raises(AttributeError, match="the batch has no column `y`; it has x, "):
            _ = batch.y
        with pytest.raises(KeyError):
            batch["y"]
        assert "int64" in repr(batch)


class TestBeta:
    @pytest.mark.parametrize(
        ("beta", "progress", "exponent"),
        [
            (0.5, None, 0.5),
            (0, None, 0),
            (Constant(0.25), 0.9, 0.25),
            (Linear(0.5, 0.5), None, 0.5),
            (Linear(0.0, 1.0), 0.25, 0.25),
            (Exponential(0.25, 1.0), 0.5, 0.5),
        ],
    )
    def test_is_the_schedule_at_this_progress(self, beta, progress, exponent):
        buffer = make(Prioritized(alpha=1.0, beta=beta), steps=2)
        buffer.update_priorities(np.arange(2), priority=np.array([1.0, 16.0]))
        batch = buffer.sample(64, progress=progress)
        np.testing.assert_allclose(batch.weight, 16.0 ** (-exponent * batch.x), rtol=1e-6)


class TestSchedules:
    def test_values(self):
        assert [Constant(3.0)(p) for p in (0, 0.5, 1)] == [3, 3, 3]
        assert [Linear(1.0, 0.0)(p) for p in (0, 0.25, 1)] == [1, 0.75, 0]
        assert [Linear(0.0, 2.0, until=0.25)(p) for p in (0, 0.125, 0.25, 1)] == [0, 1, 2, 2]
        np.testing.assert_allclose([Exponential(1.0, 0.01)(p) for p in (0, 0.5, 1)], [1, 0.1, 0.01])
        np.testing.assert_allclose([Exponential(4.0, 1.0, until=0.5)(p) for p in (0.25, 0.5, 1)], [2, 1, 1])

    def test_ends_are_exact(self):
        for schedule in [Linear(0.1, 0.7), Linear(0.9, 0.05, until=0.3), Exponential(1.0, 0.3)]:
            assert schedule(0.0) == schedule.start
            assert schedule(1.0) == pytest.approx(schedule.end, rel=1e-15)
