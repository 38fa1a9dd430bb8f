"""Samplers that go by age: the younger the likelier, or the stored order backwards. N steps are stored."""

from dataclasses import dataclass, field
from typing import ClassVar

from replaylab import _core
from replaylab.arguments import SHARE, check, number
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.basic import COUNT, Sampler


@dataclass(frozen=True)
class Recency(Sampler):
    """Emphasis on recent experience: uniform over the newest c_k steps, fewer with every update of a burst.

    Law: P(i) = 1/c_k for the newest c_k = max(N·η^(1000·k/K), c_min), for update k = 1 .. K of a burst of K.
    k counts the calls of `sample`, from 1 to K and then from 1 again: nothing else begins a burst, neither an episode
    nor `add`. So make K updates in a row. Source: Wang & Ross 2019 (ERE), whose K is the length of the last episode.

    Attributes:
        eta: η in (0, 1], a number or a schedule over training progress; 1 is uniform. Default: Linear(0.996, 1.0).
        least: c_min, the steps that are always within reach. Default: 5_000.
        burst: K, calls of `sample` in a burst. Default: 1.
    """

    eta: float | Schedule = field(default=Linear(0.996, 1.0))
    least: int = 5_000
    burst: int = 1

    law_needs_progress: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, eta=scheduled(SHARE), least=COUNT, burst=COUNT)

    @property
    def scheduled(self) -> float | Schedule:
        """η."""
        return self.eta

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("recency", {"least": self.least, "burst": self.burst})


@dataclass(frozen=True)
class Geometric(Sampler):
    """Younger steps more often, by a truncated geometric law of age.

    Law: P(age) = q(1 − q)^age / (1 − (1 − q)^N) for age 0 (the newest) to N − 1. Source: Korniak 2026.

    Attributes:
        expected_age: Mean age (1 − q)/q of the law before it is cut off at N; q = 1 / (1 + expected_age).
            Default: 10_000.0.
    """

    expected_age: float = 10_000.0

    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, expected_age=number("positive and at most 1e12", lambda age: 0.0 < age <= 1e12))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("geometric", {"q": 1.0 / (1.0 + self.expected_age)})


@dataclass(frozen=True)
class ReverseSweep(Sampler):
    """Stored order backwards, from the newest step to the oldest, then from the newest again.

    With a stride s every s-th step is taken, and each sweep begins one step further back than the last, so that s
    sweeps take every step. With `Sequence`, the same of its blocks. Law: the next B steps of the sweep are certain;
    P(i) is their share of the batch. Source: Lin 1992.

    Attributes:
        stride: Every how many steps one is taken. Default: 1.
    """

    stride: int = 1

    law_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, stride=COUNT)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("reverse", {"stride": self.stride})


@dataclass(frozen=True)
class Queue(Sampler):
    """The oldest step that was not drawn yet, so that each is drawn once, in the order they were stored.

    Law: P(i) = 1/B for the oldest B that were not drawn, else 0. A batch needs that many: with fewer, `sample` raises
    `EmptyBufferError` until more are added. What is overwritten before it was drawn is lost. `Sequence` is refused: a
    sequence may still grow after it was drawn. Source: none, the usual queue of a stream.
    """

    law_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = False

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("queue")
