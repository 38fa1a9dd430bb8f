"""Tests within seeds: the size of a difference, its interval and a p-value that agrees with both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import takes
from replaylab.errors import ShapeError
from replaylab.statistics.interquartile_means import bootstrap_interval, paired_difference
from replaylab.statistics.permutation import (
    PERMUTATIONS,
    is_exact,
    paired_permutation_test,
    share_as_extreme,
    swap_patterns,
)
from replaylab.statistics.resampling import BOOTSTRAP, COUNT, NUMBERS, PAIRED, Interval, as_pairs, as_strata, interval_p


class PairedTest(NamedTuple):
    """A difference with its interval, and its p-value."""

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


@takes(**BOOTSTRAP, values=NUMBERS, permutations=COUNT)
def sign_flip_test(
    values: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Return the interquartile mean of one number per seed, with its interval and p-value.

    The number is a contrast within the seed: a difference of two runs, of means of several runs, or of differences
    (an interaction). An effect that a seed has on all its runs alike cancels.

    The p-value is the larger of two: that of the interval (`interval_p`), and that of flipping the signs of seeds, by
    the absolute mean of the numbers (a trimmed mean would ignore flips among the trimmed values, and lose power). So it
    is below 1 - level only if the interval excludes 0. The test is valid if the numbers are symmetric around 0 under
    the null hypothesis, as differences of two exchangeable runs are. For two runs per seed the result is the
    interquartile mean of the differences, whereas that of `paired_test` is the difference of the interquartile means.

    Args:
        values: shape (N,).
        level: of the interval.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        permutations: number of sign patterns, where not all are enumerated.
        seed: seed of resamples and patterns.

    Raises:
        ShapeError: the values are not of shape (N,).
        NonFiniteError: a value is NaN or infinite.

    Examples:
        >>> test = sign_flip_test([50.0, 45, 65, 55, 67, 40])
        >>> test.p < 0.05 and test.difference.low > 0
        True
    """
    strata = as_strata(values)
    if strata.shape[1] != 1:
        raise ShapeError(f"Values must be of shape (N,), one number per seed, but got shape {strata.shape}.")
    contrasts = strata[:, 0]
    signs = np.where(swap_patterns(len(contrasts), permutations, seed), -1.0, 1.0)
    null = np.abs(signs @ contrasts) / len(contrasts)
    exact = is_exact(len(contrasts), permutations)
    p = share_as_extreme(null, abs(float(contrasts.mean())), float(np.abs(contrasts).max()), exact=exact)
    size = bootstrap_interval(contrasts, level=level, resamples=resamples, seed=seed)
    return PairedTest(size, max(p, interval_p(size, len(contrasts), level=level)))
