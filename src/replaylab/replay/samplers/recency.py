"""Emphasis on recent experience: the newer a step, the likelier. N steps are stored."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import SHARE, number, option
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.sampler import COUNT, Sampler


@dataclass(frozen=True)
class Recency(Sampler):
    """Emphasis on recent experience: uniform over the newest c_k steps, fewer with every update of a burst.

    Sampling probability: P(i) = 1/c_k for the newest c_k = max(N·η^(1000·k/K), c_min), for update k = 1 .. K of a
    burst of K. k counts the calls of `sample`, from 1 to K and then from 1 again: nothing else begins a burst, neither
    an episode nor `add`. So make K updates in a row. Source: Wang & Ross 2019 (ERE), whose K is the length of the last
    episode.

    Attributes:
        eta: η in (0, 1], a number or a schedule over training progress; 1 is uniform. Default: Linear(0.996, 1.0).
        least: c_min, the newest steps, which can always be drawn. Default: 5_000.
        burst: K, calls of `sample` in a burst. Default: 1.
    """

    eta: float | Schedule = option(scheduled(SHARE), Linear(0.996, 1.0))
    least: int = option(COUNT, 5_000)
    burst: int = option(COUNT, 1)

    distribution_needs_progress: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "recency"

    @property
    def scheduled(self) -> float | Schedule:
        """η."""
        return self.eta

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"least": self.least, "burst": self.burst}


@dataclass(frozen=True)
class Geometric(Sampler):
    """Newer steps more often, by a truncated geometric sampling distribution of age.

    Sampling probability: P(age) = q(1 − q)^age / (1 − (1 − q)^N) for age 0 (the newest) to N − 1. Source: Korniak 2026.

    Attributes:
        expected_age: Mean age (1 − q)/q of the distribution before it is cut off at N; q = 1 / (1 + expected_age).
            Default: 10_000.0.
    """

    expected_age: float = option(number("positive and at most 1e12", lambda age: 0.0 < age <= 1e12), 10_000.0)

    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "geometric"

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"q": 1.0 / (1.0 + self.expected_age)}
