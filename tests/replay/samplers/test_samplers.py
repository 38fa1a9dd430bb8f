"""Samplers as configuration: defaults, bounds, equality; and what each puts in a batch."""

import dataclasses

import numpy as np
import pytest

from replaylab.errors import ConfigError
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

ALL = [Online(), SlidingWindow(), Uniform(), Combined(), Combined(mode="replace"), Prioritized()]


def make(sampler, steps=20, capacity=50, **options):
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=sampler, seed=0, **options)
    lead = () if buffer.replicas is None else (buffer.replicas,)
    buffer.extend(x=np.broadcast_to(np.arange(steps), (*lead, steps)))
    return buffer


@pytest.mark.parametrize("sampler", ALL, ids=repr)
class TestConfiguration:
    def test_is_frozen_and_compared_by_value(self, sampler):
        assert isinstance(sampler, Sampler)
        assert sampler == dataclasses.replace(sampler)
        assert hash(sampler) == hash(dataclasses.replace(sampler))
        for field in dataclasses.fields(sampler):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(sampler, field.name, None)

    def test_the_buffer_keeps_it(self, sampler):
        buffer = make(sampler)
        assert buffer.sampler == sampler
        assert type(sampler).__name__ in repr(buffer)

    def test_one_configuration_serves_many_buffers(self, sampler):
        first, second = make(sampler), make(sampler)
        for _ in range(5):
            first.sample(4, progress=0.5)
        np.testing.assert_array_equal(make(sampler).sample(4, progress=0.5).id, second.sample(4, progress=0.5).id)


def test_defaults_are_those_of_the_papers():
    sampler = Prioritized()
    assert (sampler.alpha, sampler.beta, sampler.epsilon) == (0.6, Linear(0.4, 1.0), 1e-6)
    assert sampler.normalize == "buffer"
    assert Combined().mode == "plus"
    assert ReplayBuffer(1, {"x": Field()}).sampler == Uniform()


class TestWhatABatchHolds:
    def test_online(self):
        batch = make(Online()).sample(1)
        assert (batch.x.tolist(), batch.id.tolist(), batch.probability.tolist()) == ([19], [19], [1.0])

    def test_online_has_one_row_whatever_is_asked(self):
        assert make(Online()).sample(64).x.tolist() == [19]

    def test_sliding_window(self):
        batch = make(SlidingWindow()).sample(4)
        assert batch.x.tolist() == [19, 18, 17, 16]
        assert batch.probability.tolist() == [0.25] * 4

    def test_sliding_window_across_the_write_head(self):
        assert make(SlidingWindow(), steps=7, capacity=5).sample(5).x.tolist() == [6, 5, 4, 3, 2]

    def test_combined_plus(self):
        batch = make(Combined()).sample(8)
        assert batch.x.shape == (9,)
        assert batch.x[-1] == 19
        np.testing.assert_allclose(batch.probability[-1], (8 / 20 + 1) / 9)

    def test_combined_replace(self):
        batch = make(Combined(mode="replace")).sample(8)
        assert batch.x.shape == (8,)
        assert batch.x[-1] == 19
        np.testing.assert_allclose(batch.probability[-1], (7 / 20 + 1) / 8)

    def test_combined_replace_of_one_is_online(self):
        batch = make(Combined(mode="replace")).sample(1)
        assert (batch.x.tolist(), batch.probability.tolist()) == ([19], [1.0])

    @pytest.mark.parametrize("sampler", ALL[:5], ids=repr)
    def test_weights_are_one_without_prioritization(self, sampler):
        assert (make(sampler).sample(8).weight == 1).all()

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

    def test_probability_is_what_probabilities_says(self):
        for sampler in ALL:
            buffer = make(sampler, replicas=2)
            batch = buffer.sample(6, progress=0.1)
            np.testing.assert_array_equal(batch.probability, buffer.probabilities(batch.id, batch_size=6))


class TestBeta:
    def weights(self, beta, progress):
        buffer = make(Prioritized(alpha=1.0, beta=beta), steps=2)
        buffer.update_priorities(np.arange(2), priority=np.array([1.0, 16.0]))
        batch = buffer.sample(64, progress=progress)
        return {batch.x[i]: batch.weight[i] for i in range(64)}

    @pytest.mark.parametrize(
        ("beta", "progress", "exponent"),
        [
            (0.5, None, 0.5),
            (0, None, 0),
            (1, None, 1),
            (Constant(0.25), None, 0.25),
            (Constant(0.25), 0.9, 0.25),
            (Linear(0.5, 0.5), None, 0.5),
            (Linear(0.0, 1.0), 0.0, 0),
            (Linear(0.0, 1.0), 0.25, 0.25),
            (Linear(0.0, 1.0), 1, 1),
            (Linear(0.0, 1.0, until=0.5), 0.25, 0.5),
            (Linear(0.0, 1.0, until=0.5), 0.75, 1),
            (Exponential(0.25, 1.0), 0.5, 0.5),
        ],
    )
    def test_is_the_schedule_at_this_progress(self, beta, progress, exponent):
        found = self.weights(beta, progress)
        assert found[0] == 1
        assert found[1] == pytest.approx(16.0**-exponent, rel=1e-6)

    def test_progress_is_needed_iff_beta_changes(self):
        with pytest.raises(ConfigError, match="progress"):
            make(Prioritized()).sample(4)
        make(Prioritized(beta=0.4)).sample(4)


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

    @pytest.mark.parametrize("kind", [Linear, Exponential])
    def test_until_is_a_progress(self, kind):
        for until in (0.0, -1.0, 1.5, float("nan")):
            with pytest.raises(ConfigError) as caught:
                kind(1.0, 0.1, until=until)
            assert str(caught.value) == (
                f"`until` of {kind.__name__} must be a progress in (0, 1] (1: the whole run), but got {until}"
            )

    def test_exponential_never_reaches_zero(self):
        with pytest.raises(ConfigError) as caught:
            Exponential(1.0, 0.0)
        assert str(caught.value) == (
            "`start` and `end` of an Exponential schedule must be positive, but got (start=1.0, end=0.0); "
            "use Linear to reach 0"
        )


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Combined(mode="both"), '`mode` of Combined must be "plus" or "replace", but got \'both\''),
        (lambda: Prioritized(alpha=-0.1), "`alpha` of Prioritized must be in [0, 1], but got -0.1"),
        (lambda: Prioritized(alpha=float("nan")), "`alpha` of Prioritized must be in [0, 1], but got nan"),
        (lambda: Prioritized(beta=1.5), "`beta` of Prioritized must be in [0, 1], but got 1.5"),
        (
            lambda: Prioritized(beta=Linear(0.4, 1.1)),
            "`beta` of Prioritized must be in [0, 1], but got Linear(start=0.4, end=1.1, until=1.0)",
        ),
        (
            lambda: Prioritized(epsilon=-1e-9),
            "`epsilon` of Prioritized must be finite and not negative, but got -1e-09",
        ),
        (
            lambda: Prioritized(epsilon=float("inf")),
            "`epsilon` of Prioritized must be finite and not negative, but got inf",
        ),
        (
            lambda: Prioritized(normalize="max"),
            '`normalize` of Prioritized must be "buffer", "batch" or "none", but got \'max\'',
        ),
    ],
)
def test_a_bad_option_is_refused_word_for_word(make_it, message):
    with pytest.raises(ConfigError) as caught:
        make_it()
    assert str(caught.value) == message
