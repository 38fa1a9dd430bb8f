"""Every sampler of the library passes the suite it gives to others."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab import replay
from replaylab.errors import ConfigError
from replaylab.replay import (
    LAP,
    AntiPrioritized,
    Blocks,
    Combined,
    CustomSampler,
    Geometric,
    Greedy,
    Linear,
    Mixture,
    Online,
    Oracle,
    Permuted,
    Prioritized,
    RankBased,
    Recency,
    ReLo,
    ReverseSweep,
    Sampler,
    ShuffledEpochs,
    SlidingWindow,
    Sticky,
    Uniform,
)
from replaylab.testing import SamplerTestCase


@dataclass(frozen=True)
class Fresh(CustomSampler):
    """Steps of large error that were seldom replayed."""

    def law(self, view, batch_size):
        wanted = view.priorities / (1.0 + view.replay_counts)
        return wanted / wanted.sum()


SAMPLERS = [
    Online(),
    SlidingWindow(),
    Uniform(),
    Uniform(replace=False),
    Combined(),
    Combined(mode="replace"),
    ShuffledEpochs(),
    Recency(eta=Linear(0.99, 1.0), least=5, burst=4),
    Geometric(expected_age=10.0),
    Geometric(expected_age=1e6),
    ReverseSweep(stride=3),
    Blocks(length=4),
    Sticky(fraction=0.5),
    Sticky(fraction=0.9),
    Prioritized(),
    Prioritized(alpha=1.0, beta=1.0, normalize="batch"),
    ReLo(),
    AntiPrioritized(),
    Permuted(),
    Permuted(bins=4),
    LAP(),
    RankBased(),
    RankBased(alpha=1.0, normalize="none"),
    Greedy(),
    Oracle(lambda ids: -np.abs(ids % 7 - 3.0)),
    Fresh(),
    Mixture((Uniform(), Prioritized())),
    Mixture((Recency(eta=0.9, least=3, burst=5), ReverseSweep(), RankBased(), ShuffledEpochs()), (1, 2, 1, 1)),
]

CASES = {
    f"Test{type(sampler).__name__}{i}": type(
        f"Test{type(sampler).__name__}{i}",
        (SamplerTestCase,),
        {"sampler": sampler, "independent": not isinstance(sampler, Blocks)},
    )
    for i, sampler in enumerate(SAMPLERS)
}
globals().update(CASES)


def test_no_sampler_is_left_out():
    public = {getattr(replay, name) for name in replay.__all__}
    samplers = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Sampler)}
    assert samplers - {Sampler, CustomSampler} == {type(sampler) for sampler in SAMPLERS} - {Fresh}


class Lopsided(Fresh):
    """Draws by another law than it states."""

    def draw(self, view, batch_size, rng):
        return rng.choice(view.ids[: len(view) // 2 + 5], size=batch_size)


class TestCustomSamplersRefuse:
    def filled(self):
        case = type("Case", (SamplerTestCase,), {"sampler": Fresh()})()
        return case.fill(24, 30)[0]

    def test_out(self):
        buffer = self.filled()
        with pytest.raises(ConfigError, match="`out` is not taken with a sampler written in Python; leave it out"):
            buffer.sample(4, out=buffer.sample(4))

    def test_a_batch_size_of_zero(self):
        with pytest.raises(ConfigError, match="`batch_size` must be at least 1, but got 0"):
            self.filled().probabilities([29], batch_size=0)


class TestTheSuiteCanFail:
    def test_a_wrong_law(self):
        case = type("Case", (SamplerTestCase,), {"sampler": Lopsided()})()
        with pytest.raises(AssertionError, match="breaks its law"):
            case.test_draws_follow_the_law()
