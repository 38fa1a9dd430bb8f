"""Equivalence tests: whether two strategies differ by less than a margin, which a non-significant test cannot show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import BELOW_HALF, check, instance, number, optional, seed_number, takes
from replaylab.errors import ConfigError
from replaylab.statistics.interquartile_means import paired_difference
from replaylab.statistics.permutation import least_p
from replaylab.statistics.resampling import COUNT, PAIRED, Interval, as_pairs

Verdict = Literal["equivalent", "higher", "lower", "inconclusive"]


EQUIVALENCE_SEEDS = 5
"""Fewest seeds with which a study calls a contrast equivalent: with fewer, bootstrap intervals are too narrow.

``docs/explanation/statistics-appendix.md`` has their coverage.
"""


@dataclass(frozen=True)
class Bounds:
    """Equivalence margin, in the unit of the return. Declare it before the data are seen."""

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
    """Estimate with its interval of level 1 - alpha, for a difference from 0."""

    inner: Interval
    """Estimate with its interval of level 1 - 2 alpha, which must be inside the bounds."""

    bounds: Bounds
    level: float
    """Level of the inner interval."""

    @property
    def equivalent(self) -> bool:
        """Whether the inner interval lies within the bounds."""
        return self.bounds.low < self.inner.low and self.inner.high < self.bounds.high

    @property
    def verdict(self) -> Verdict:
        """The verdict; "equivalent" takes precedence, as a difference can be both significant and within the bounds."""
        if self.equivalent:
            return "equivalent"
        if self.difference.low > 0.0:
            return "higher"
        return "lower" if self.difference.high < 0.0 else "inconclusive"


@takes(**PAIRED, bounds=instance(Bounds, "Bounds"), alpha=BELOW_HALF, resamples=optional(COUNT), seed=seed_number)
def paired_equivalence(
    treated: ArrayLike,
    baseline: ArrayLike,
    bounds: Bounds,
    *,
    alpha: float = 0.05,
    resamples: int | None = None,
    seed: int = 0,
) -> Equivalence:
    """Return whether IQM(treated) - IQM(baseline) is within the bounds, by inclusion of its interval.

    Two one-sided tests at alpha, one against each bound, both reject exactly where the interval of level
    1 - 2 alpha is inside the bounds (Schuirmann 1987, https://doi.org/10.1007/BF01068419). If the true difference is
    at a bound, at most about alpha of all studies conclude "equivalent". With too few pairs for a permutation test to
    reach the intervals' level (fewer than five and six at alpha = .05) the intervals are infinite: bootstrap intervals
    would be too narrow, and that of one pair would have zero width.

    Args:
        treated: shape (N,) or (N, M).
        baseline: the same shape, paired row by row.
        bounds: the equivalence margin.
        alpha: error rate of each one-sided test, below 0.5.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        seed: seed of the resampling.
    """
    least = float(least_p(len(as_pairs(treated, baseline)[0])))

    def interval(error: float) -> Interval:
        difference = paired_difference(treated, baseline, level=1 - error, resamples=resamples, seed=seed)
        return difference if least <= error else Interval(difference.estimate, -np.inf, np.inf)

    return Equivalence(interval(alpha), interval(2 * alpha), bounds, 1 - 2 * alpha)
