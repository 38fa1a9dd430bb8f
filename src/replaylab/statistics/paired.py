"""A paired test of two strategies over the same seeds: difference, interval and a p-value that agrees with both."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike

from replaylab.arguments import takes
from replaylab.statistics.interquartile_means import paired_difference
from replaylab.statistics.permutation import PERMUTATIONS, paired_permutation_test
from replaylab.statistics.resampling import BOOTSTRAP, COUNT, PAIRED, Interval, as_pairs, interval_p


class PairedTest(NamedTuple):
    """A difference of interquartile means with its interval, and its p-value."""

    difference: Interval
    p: float


@takes(**PAIRED, **BOOTSTRAP, permutations=COUNT)
def paired_test(
    treated: ArrayLike,
    baseline: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Return IQM(treated) - IQM(baseline) with its interval and p-value.

    The p-value is the larger of the interval's (`interval_p`) and that of `paired_permutation_test`, so it is below
    1 - level only if the interval excludes 0. The permutation test is exact, at every number of seeds, if the two
    strategies have the same distribution; the interval's p-value is about right if only their IQMs are equal. The
    false-alarm rates of all three are in docs/explanation/statistics-appendix.md.

    Args:
        treated: shape (N,).
        baseline: shape (N,), paired by position.
        level: of the interval.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        permutations: largest number of swap patterns.
        seed: seed of resamples and patterns.

    Raises:
        ShapeError: the shapes differ, or are not (N,).

    Examples:
        >>> test = paired_test([480.0, 455, 490, 470, 500, 460], [430.0, 410, 425, 415, 433, 420])
        >>> test.p < 0.05 and test.difference.low > 0
        True
    """
    p = paired_permutation_test(treated, baseline, permutations=permutations, seed=seed)
    difference = paired_difference(treated, baseline, level=level, resamples=resamples, seed=seed)
    return PairedTest(difference, max(p, interval_p(difference, len(as_pairs(treated, baseline)[0]), level=level)))
