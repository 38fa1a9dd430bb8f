"""Permutation tests within seeds, and corrections for multiple comparisons.

If two strategies have the same distribution, swapping a seed's two runs does not change the joint distribution. So the
share of swap patterns that are at least as extreme as the observed one is an exact p-value of that hypothesis, at every
number of seeds and for every distribution. It does not test levels only: strategies of equal level and unequal spread
are rejected too often. For levels use `paired_test` or `sign_flip_test`, which also use the interval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import optional, reals, seed_number, takes
from replaylab.errors import ConfigError, ShapeError
from replaylab.statistics.interquartile_means import interquartile_mean, iqm_difference
from replaylab.statistics.resampling import COUNT, NUMBERS, PAIRED, Floats, as_columns, as_pairs

PERMUTATIONS = 20_000
"""Swap patterns of a test: all 2^N of them if there are no more than this, else this many random ones."""

EXACT_SEEDS = PERMUTATIONS.bit_length() - 1
"""Largest number of pairs (14) of which the default test enumerates every pattern."""

_MOST_NUMBERS = 1 << 22
"""Largest size of a block of patterns by states in memory."""

_TIES = 1e-12
"""Statistics closer than this, relative to the data, are equal: they differ only by the order of summation."""


def is_exact(pairs: int, permutations: int) -> bool:
    """Return whether all swap patterns of this many pairs are enumerated."""
    return pairs < permutations.bit_length()


def least_p(pairs: NDArray[np.intp] | int, comparisons: int = 1) -> Floats:
    """Return the smallest p-value that swaps of this many pairs can give, by Bonferroni over the comparisons.

    At least two of 2^N patterns are as extreme as the observed one: that one, and its opposite.
    """
    return np.minimum(1.0, comparisons * 2.0 ** (1.0 - np.asarray(pairs)))


def swap_patterns(pairs: int, permutations: int, seed: int) -> NDArray[np.bool_]:
    """Return which seeds are swapped, shape (patterns, pairs): all patterns if they are few, else random ones."""
    if is_exact(pairs, permutations):
        return np.asarray((np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1 == 1)
    return np.random.default_rng(seed).random((permutations, pairs)) < 0.5


def share_as_extreme(null: Floats, observed: float, scale: float, *, exact: bool) -> float:
    """Return the p-value: the share of ``null`` that is at least ``observed``.

    If the patterns are random, the observed one is counted in addition, (b + 1) / (m + 1) (Phipson & Smyth 2010,
    https://doi.org/10.2202/1544-6115.1585), so that P(p <= u) <= u under the null hypothesis.
    """
    count = int(np.count_nonzero(null >= observed - _TIES * scale))
    return count / len(null) if exact else (count + 1) / (len(null) + 1)


@takes(**PAIRED, permutations=COUNT, seed=seed_number)
def paired_permutation_test(
    treated: ArrayLike, baseline: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> float:
    """Return the two-sided p-value that a seed's two runs are exchangeable, by |IQM(treated) - IQM(baseline)|.

    The p-value is the share of swap patterns that are at least as extreme as the observed one: of all 2^N patterns if
    these are at most ``permutations`` (exact; the smallest possible value is 2 / 2^N), else of ``permutations`` random
    patterns, with the observed one counted in addition. A pattern is more extreme if its absolute statistic is larger,
    or if it is equal and its |mean(treated) - mean(baseline)| is larger: with many equal runs (for example solved or
    not), swaps of up to a quarter of them do not change the IQMs but change the means. A small p-value shows that the
    strategies differ, possibly only in spread; to test levels use `paired_test`.

    Args:
        treated: shape (N,).
        baseline: shape (N,), paired by position.
        permutations: largest number of patterns.
        seed: seed of the random patterns; unused by the exact test.

    Raises:
        ShapeError: the shapes differ, or are not (N,).
    """
    a, b = as_pairs(treated, baseline)
    if a.shape[1] != 1:
        raise ShapeError(f"The paired test takes one environment, shape (N,), but got shape {a.shape}.")
    observed, observed_mean = abs(float(iqm_difference(a, b))), abs(float((a - b).mean()))
    a, b = a[:, 0], b[:, 0]
    swap = swap_patterns(len(a), permutations, seed)
    null = interquartile_mean(np.where(swap, b, a), axis=1) - interquartile_mean(np.where(swap, a, b), axis=1)
    means = np.where(swap, -1.0, 1.0) @ (a - b) / len(a)
    scale = float(np.abs([a, b]).max())
    ties = np.abs(np.abs(null) - observed) <= _TIES * scale
    less = ties & (np.abs(means) < observed_mean - _TIES * scale)
    return share_as_extreme(
        np.where(less, -np.inf, np.abs(null)), observed, scale, exact=is_exact(len(a), permutations)
    )


@takes(differences=NUMBERS, limits=optional(NUMBERS), permutations=COUNT, seed=seed_number)
def max_t(
    differences: ArrayLike, *, limits: ArrayLike | None = None, permutations: int = PERMUTATIONS, seed: int = 0
) -> Floats:
    """Return the p-values of K paired comparisons, corrected by the step-down max-T method, shape (K,).

    A seed's K differences change sign together, which preserves their dependence (they share a baseline): with
    dependent comparisons this has more power than Holm. Statistic: |t_k| = |mean| / (sd / sqrt(N)).
    From the largest |t| down, p is the share of sign patterns whose largest |t| among the remaining comparisons
    is at least the observed one, made monotone (Westfall & Young 1993, algorithm 4.1).

    Args:
        differences: shape (N, K): treated minus baseline, seeds by comparisons; NaN where a comparison lacks a seed,
            and at least two numbers in each column.
        limits: upper limits of each |t_k|, shape (K,). With `interval_t` of each interval, a comparison is significant
            only if its interval excludes 0.
        permutations: largest number of patterns.
        seed: seed of the random patterns.

    Raises:
        ShapeError: not of shape (N, K), or a column has fewer than two numbers, or limits are not of shape (K,).
        NonFiniteError: a difference is infinite.
    """
    d, runs = as_columns(differences)
    d = np.nan_to_num(d, nan=0.0)
    signs = np.where(swap_patterns(len(d), permutations, seed), -1.0, 1.0)
    observed = _abs_t(d.sum(axis=0) / runs, d, runs)
    if limits is not None:
        if np.shape(limits) != observed.shape:
            raise ShapeError(f"Limits must be of shape {observed.shape}, but got shape {np.shape(limits)}.")
        observed = np.minimum(observed, limits)
    null = _abs_t(signs @ d / runs, d, runs)
    order = np.argsort(-observed, kind="stable")
    largest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    exact = is_exact(len(d), permutations)
    p = [share_as_extreme(m, s, s, exact=exact) for m, s in zip(largest.T, observed[order], strict=True)]
    adjusted = np.empty(len(observed))
    adjusted[order] = np.maximum.accumulate(p) if p else []
    return adjusted


def _abs_t(means: Floats, differences: Floats, runs: NDArray[np.intp]) -> Floats:
    """|t| of means under sign flips, which do not change the sum of squares; 0 / 0 is 0."""
    squares = (differences**2).sum(axis=0)
    variance = np.maximum(squares - runs * means**2, _TIES * squares) / (runs - 1)
    size = np.abs(means)
    return np.asarray(np.divide(size, np.sqrt(variance / runs), out=np.zeros_like(size), where=variance > 0))


@takes(p_values=reals(finite=True))
def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, shape (K,): reject where adjusted <= alpha.

    With p_(1) <= ... <= p_(K), adjusted p_(j) = max over i <= j of min(1, (K - i + 1) p_(i)). The probability
    of any false alarm in the family is at most alpha, whatever the dependence (Holm 1979, Scand. J.
    Statist. 6, 65-70).

    Raises:
        ShapeError: the p-values are not of shape (K,).
        ConfigError: a p-value is not between 0 and 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ShapeError(f"P-values must be of shape (K,), but got shape {p.shape}.")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ConfigError(f"P-values must be from 0 to 1, but got {p[(p < 0.0) | (p > 1.0)][0]:g}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result


@takes(**PAIRED, permutations=COUNT, seed=seed_number)
def share_distance_test(
    treated: ArrayLike, baseline: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> tuple[float, float]:
    """Return the distance between two strategies' mean shares, and its p-value by permutation within seeds.

    Each seed's counts (for example visits to S states) become shares; the statistic is the total variation distance of
    their means over seeds, ``sum_s |mean treated_s - mean baseline_s| / 2``, in [0, 1]. The p-value is the share of
    swap patterns that are at least as extreme, as in `paired_permutation_test`.

    Args:
        treated: counts, shape (N, S), each row with a positive sum.
        baseline: shape (N, S), paired by position.
        permutations: largest number of patterns.
        seed: seed of the random patterns; unused by the exact test.

    Raises:
        ShapeError: the shapes differ, or are not (N, S), or a row holds no counts.
        ConfigError: a count is negative.
    """
    a, b = np.asarray(treated, np.float64), np.asarray(baseline, np.float64)
    if a.ndim != 2 or a.shape != b.shape or not a.size or not ((a.sum(1) > 0).all() and (b.sum(1) > 0).all()):
        raise ShapeError(f"Counts must be of shape (N, S) with positive sums, but got {a.shape} and {b.shape}.")
    if (least := min(a.min(), b.min())) < 0.0:
        raise ConfigError(f"Counts must not be negative, but one is {least:g}.")
    difference = a / a.sum(1, keepdims=True) - b / b.sum(1, keepdims=True)
    signs = np.where(swap_patterns(len(a), permutations, seed), -1.0, 1.0)
    blocks = np.array_split(signs, 1 + signs.shape[0] * difference.shape[1] // _MOST_NUMBERS)
    null = np.concatenate([np.abs(block @ difference / len(a)).sum(1) / 2 for block in blocks])
    observed = float(np.abs(difference.mean(0)).sum() / 2)
    return observed, share_as_extreme(null, observed, 1.0, exact=is_exact(len(a), permutations))
