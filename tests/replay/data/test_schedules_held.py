"""Draws without `progress`: a schedule holds its start value, and the first such draw of each buffer warns."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay
from tests.replay.buffers import Even, filled

HELD = r"follows the schedule Linear\(.*\), which stays at its start value .* because `progress` was not passed; pass "


def learned(sampler, **options):
    buffer = filled(sampler, dtype=np.float32, **options)
    if sampler.wants_feedback:
        buffer.update_priorities(np.arange(20), np.arange(20.0))
    return buffer


def same(batch, other):
    return all(np.array_equal(batch[name], other[name]) for name in batch)


@pytest.mark.parametrize(
    "sampler",
    [
        replay.Prioritized(),
        replay.Recency(eta=replay.Linear(0.9, 1.0)),
        replay.Mixture((replay.Uniform(), replay.Recency(eta=replay.Linear(0.9, 1.0)))),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_the_start_is_held_and_one_warning_asks_for_progress(sampler):
    held, started = learned(sampler), learned(sampler)
    with pytest.warns(UserWarning, match=HELD) as caught:
        first = held.sample(8)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert same(first, started.sample(8, progress=0.0))
    assert same(held.sample(8), started.sample(8, progress=0.0))
    assert same(held.sample(8, progress=0.7), started.sample(8, progress=0.7))
    with pytest.warns(UserWarning, match=HELD):  # each buffer warns
        learned(sampler).sample(8)


def test_batches_streams_and_mixed_replays_hold_it_too():
    started = learned(replay.Prioritized())
    expected = [started.sample(8, progress=0.0) for _ in range(3)]
    for prefetch in (0, 2):
        with pytest.warns(UserWarning, match=HELD) as caught:
            drawn = list(learned(replay.Prioritized()).batches(8, prefetch=prefetch, total=3))
        assert len(caught) == 1
        assert all(map(same, drawn, expected))
    with pytest.warns(UserWarning, match=HELD):
        assert replay.ReplayStream([], learned(replay.Prioritized()), 8).push({"x": 1.0}) is not None
    mixed = replay.MixedReplay((learned(replay.Prioritized()), learned(replay.Uniform())))
    with pytest.warns(UserWarning, match=HELD):
        mixed.sample(8)
    mixed.sample(8)


def test_priorities_hold_it():
    priorities = replay.Priorities(20, sampler=replay.Prioritized(), seed=0)
    priorities.extend(20)
    with pytest.warns(UserWarning, match=HELD):
        priorities.sample(8)
    priorities.sample(8)


def test_replicas_hold_it():
    buffer = ReplayBuffer(20, {"x": Field()}, replicas=2, sampler=replay.Prioritized(), seed=0)
    buffer.extend(x=np.zeros((2, 20)))
    with pytest.warns(UserWarning, match=HELD):
        assert buffer.sample(8).id.shape == (2, 8)


def test_probabilities_of_recency_are_those_of_the_start():
    buffer = learned(replay.Recency(eta=replay.Linear(0.9, 1.0)))
    with pytest.warns(UserWarning, match=HELD):
        distribution = buffer.probabilities(range(20))
    np.testing.assert_array_equal(distribution, buffer.probabilities(range(20), progress=0.0))


@dataclass(frozen=True)
class Annealed(Even):
    beta: replay.Linear = field(default=replay.Linear(0.5, 1.0))

    @property
    def scheduled(self):
        return self.beta

    def weights(self, view, probabilities, progress):
        return np.full(len(probabilities), self.beta(progress))


def test_a_custom_sampler_gets_the_progress_of_the_start():
    buffer = learned(Annealed())
    with pytest.warns(UserWarning, match=HELD):
        assert buffer.sample(4).weight.tolist() == [0.5] * 4


def test_a_constant_number_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned(replay.Prioritized(beta=0.4)).sample(8)
        learned(replay.Prioritized(beta=replay.Linear(0.4, 0.4))).sample(8)
