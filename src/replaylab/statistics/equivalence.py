"""Whether two strategies are as good as equal: what "no difference shown" cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import BELOW_HALF, check, instance, number, optional, seed_number, takes
from replaylab.errors import ConfigError
from replaylab.statistics.interquartile_means import paired_difference
from replaylab.statistics.permutation import least_p
from replaylab.statistics.resampling import COUNT, NUMBERS, Interval, as_pairs

Verdict = Literal["equivalent", "higher", "lower", "undecided"]


EQUIVALENCE_SEEDS = 5
"""With fewer a study calls no contrast equivalent: resampled intervals are then too narrow.

``docs/explanation/statistics.md`` has their coverage.
"""


@dataclass(frozen=True)
class Bounds:
    """Differences that do not matter, in the unit of the return. Declare them before the data are seen."""

    low: float
    high: float

    def __post_init__(self) -> None:
        real = number("a number", lambda _: True)
        check(self, low=real, high=real)
        if not self.low < 0.0 < self.high:
            raise ConfigError(f"Equivalence bounds need low < 0 < high, but got {self.low!r} and {self.high!r}.")


@dataclass(frozen=True)
class Equivalence:
    """The outcome of an equivalence test."""

    difference: Interval
    """With its interval of level 1 - alpha: for a difference from 0."""

    inner: Interval
    """With its interval of level 1 - 2 alpha: the one that must lie inside the bounds."""

    bounds: Bounds

    @property
    def equivalent(self) -> bool:
        """Whether the data rule out any difference that matters."""
        return self.bounds.low < self.inner.low and self.inner.high < self.bounds.high

    @property
    def verdict(self) -> Verdict:
        """Equivalent comes first: a difference may be surely there, and surely too small to matter."""
        if self.equivalent:
            return "equivalent"
        if self.difference.low > 0.0:
            return "higher"
        return "lower" if self.difference.high < 0.0 else "undecided"


@takes(
    treated=NUMBERS,
    baseline=NUMBERS,
    bounds=instance(Bounds, "Bounds"),
    alpha=BELOW_HALF,
    resamples=optional(COUNT),
    seed=seed_number,
)
def paired_equivalence(
    treated: ArrayLike,
    baseline: ArrayLike,
    bounds: Bounds,
    *,
    alpha: float = 0.05,
    resamples: int | None = None,
    seed: int = 0,
) -> Equivalence:
    """Return whether IQM(treated) - IQM(baseline) lies within the bounds, by inclusion of its interval.

    Two one-sided tests at alpha, one against each bound, both reject exactly where the interval of level
    1 - 2 alpha lies inside the bounds (Schuirmann 1987, https://doi.org/10.1007/BF01068419). Where the truth is
    at a bound, "equivalent" comes out in at most about alpha of all studies. So few pairs that the swaps of a
    permutation test could not give the intervals' level, fewer than five and six at alpha = .05, have intervals without
    ends: resampled ones are then too narrow, and that of one pair has no width.

    Args:
        treated: shape (N,) or (N, M).
        baseline: the same shape, paired row by row.
        bounds: the differences that do not matter.
        alpha: error rate of each one-sided test, below 0.5.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        seed: seed of the resampling.
    """
    least = float(least_p(len(as_pairs(treated, baseline)[0])))

    def interval(error: float) -> Interval:
        found = paired_difference(treated, baseline, level=1 - error, resamples=resamples, seed=seed)
        return found if least <= error else Interval(found.estimate, -np.inf, np.inf)

    return Equivalence(interval(alpha), interval(2 * alpha), bounds)
