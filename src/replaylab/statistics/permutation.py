"""Tests by permutation within seeds: what the strategies' names could have done by chance.

Where two strategies do not differ in anything, swapping a seed's two runs changes nothing in law; so the share of swap
patterns that do as much as was seen is an honest p-value of that, at every number of seeds and for every distribution.
It is no test of levels: strategies of equal level and unequal spread do differ, and are called different too often.
What is to be said of levels takes `paired_test` or `contrast`, which ask the interval as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import optional, reals, seed_number, takes
from replaylab.errors import ConfigError, ShapeError
from replaylab.statistics.interquartile_means import interquartile_mean, iqm_difference
from replaylab.statistics.resampling import COUNT, NUMBERS, Floats, as_columns, as_pairs

PERMUTATIONS = 20_000
"""Swap patterns of a test: all 2^N of them if they are no more, else so many random ones."""

EXACT_SEEDS = PERMUTATIONS.bit_length() - 1
"""Up to this many pairs (14) the default test enumerates every pattern."""

_MOST_NUMBERS = 1 << 22
"""Numbers in memory at once, of patterns by states."""

_TIES = 1e-12
"""Statistics closer than this, relative to the data, are equal: their sums were only taken in another order."""


def is_exact(pairs: int, permutations: int) -> bool:
    """Return whether all patterns of so many pairs are enumerated."""
    return pairs < permutations.bit_length()


def least_p(pairs: NDArray[np.intp] | int, comparisons: int = 1) -> Floats:
    """Return the smallest p-value that swaps of so many pairs can give, by Bonferroni over the comparisons.

    Of 2^N patterns two do as much as was seen, whatever was: the one seen, and its opposite.
    """
    return np.minimum(1.0, comparisons * 2.0 ** (1.0 - np.asarray(pairs)))


def swap_patterns(pairs: int, permutations: int, seed: int) -> NDArray[np.bool_]:
    """Return which seeds are swapped, shape (patterns, pairs): all patterns if they are few, else random ones."""
    if is_exact(pairs, permutations):
        return np.asarray((np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1 == 1)
    return np.random.default_rng(seed).random((permutations, pairs)) < 0.5


def share_as_extreme(null: Floats, seen: float, scale: float, *, exact: bool) -> float:
    """Return the p-value: the share of ``null`` that is at least ``seen``.

    Where the patterns are random ones the seen one is counted in, (b + 1) / (m + 1) (Phipson & Smyth 2010,
    https://doi.org/10.2202/1544-6115.1585), so that P(p <= u) <= u under the null hypothesis.
    """
    count = int(np.count_nonzero(null >= seen - _TIES * scale))
    return count / len(null) if exact else (count + 1) / (len(null) + 1)


@takes(treated=NUMBERS, baseline=NUMBERS, permutations=COUNT, seed=seed_number)
def paired_permutation_test(
    treated: ArrayLike, baseline: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> float:
    """Return the two-sided p-value that a seed's two runs may be exchanged, by |IQM(treated) - IQM(baseline)|.

    If the two strategies do not differ, swapping a seed's two runs changes nothing in law. The p-value is the share of
    swap patterns that do at least as much as was seen: of all 2^N patterns if they are at most ``permutations`` (exact;
    the smallest possible value is 2 / 2^N), else of so many random ones with the seen one counted in. A pattern does
    more if its absolute statistic is larger, or equal and its |mean(treated) - mean(baseline)| larger: where runs are
    equal, solved or not say, swaps of up to a quarter of them leave the IQMs as they are, and means tell them apart.
    A small one says that the strategies differ, be it in spread alone: of levels ask `paired_test`.

    Args:
        treated: shape (N,).
        baseline: shape (N,), paired by position.
        permutations: patterns at most.
        seed: seed of the random patterns; unused by the exact test.

    Raises:
        ShapeError: the shapes differ, or are not (N,).
    """
    a, b = as_pairs(treated, baseline)
    if a.shape[1] != 1:
        raise ShapeError(f"The paired test takes one environment, shape (N,), but got shape {a.shape}.")
    seen, seen_mean = abs(float(iqm_difference(a, b))), abs(float((a - b).mean()))
    a, b = a[:, 0], b[:, 0]
    swap = swap_patterns(len(a), permutations, seed)
    null = interquartile_mean(np.where(swap, b, a), axis=1) - interquartile_mean(np.where(swap, a, b), axis=1)
    means = np.where(swap, -1.0, 1.0) @ (a - b) / len(a)
    scale = float(np.abs([a, b]).max())
    ties = np.abs(np.abs(null) - seen) <= _TIES * scale
    less = ties & (np.abs(means) < seen_mean - _TIES * scale)
    return share_as_extreme(np.where(less, -np.inf, np.abs(null)), seen, scale, exact=is_exact(len(a), permutations))


@takes(differences=NUMBERS, limits=optional(NUMBERS), permutations=COUNT, seed=seed_number)
def max_t(
    differences: ArrayLike, *, limits: ArrayLike | None = None, permutations: int = PERMUTATIONS, seed: int = 0
) -> Floats:
    """Return the p-values of K paired comparisons, corrected by the step-down max-T method, shape (K,).

    A seed's K differences change sign together, which keeps their dependence (they share a baseline): with
    dependent comparisons this rejects more than Holm does. Statistic: |t_k| = |mean| / (sd / sqrt(N)).
    From the largest |t| down, p is the share of sign patterns whose largest |t| among those not yet passed
    is at least the one seen, made monotone (Westfall & Young 1993, algorithm 4.1).

    Args:
        differences: shape (N, K): treated minus baseline, seeds by comparisons; NaN where a comparison lacks a seed,
            and at least two numbers in each column.
        limits: what each |t_k| counts as at most, shape (K,): how far the intervals are from 0 in Student's units
            (`interval_t`), where a comparison is to be called different only if its interval agrees.
        permutations: patterns at most.
        seed: seed of the random patterns.

    Raises:
        ShapeError: not of shape (N, K), or a column has fewer than two numbers, or limits are not of shape (K,).
        NonFiniteError: a difference is infinite.
    """
    d, runs = as_columns(differences)
    d = np.nan_to_num(d, nan=0.0)
    signs = np.where(swap_patterns(len(d), permutations, seed), -1.0, 1.0)
    seen = _abs_t(d.sum(axis=0) / runs, d, runs)
    if limits is not None:
        if np.shape(limits) != seen.shape:
            raise ShapeError(f"Limits must be of shape {seen.shape}, but got shape {np.shape(limits)}.")
        seen = np.minimum(seen, limits)
    null = _abs_t(signs @ d / runs, d, runs)
    order = np.argsort(-seen, kind="stable")
    largest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    exact = is_exact(len(d), permutations)
    p = [share_as_extreme(m, s, s, exact=exact) for m, s in zip(largest.T, seen[order], strict=True)]
    adjusted = np.empty(len(seen))
    adjusted[order] = np.maximum.accumulate(p) if p else []
    return adjusted


def _abs_t(means: Floats, differences: Floats, runs: NDArray[np.intp]) -> Floats:
    """|t| of means under sign flips, which leave the sum of squares as it is; 0 / 0 is 0."""
    squares = (differences**2).sum(axis=0)
    variance = np.maximum(squares - runs * means**2, _TIES * squares) / (runs - 1)
    size = np.abs(means)
    return np.asarray(np.divide(size, np.sqrt(variance / runs), out=np.zeros_like(size), where=variance > 0))


@takes(p_values=reals(finite=True))
def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, shape (K,): reject where adjusted <= alpha.

    With p_(1) <= ... <= p_(K), adjusted p_(j) = max over i <= j of min(1, (K - i + 1) p_(i)). The chance
    of even one false alarm in the family is at most alpha, whatever the dependence (Holm 1979, Scand. J.
    Statist. 6, 65-70).

    Raises:
        ShapeError: they are not (K,).
        ConfigError: one is no chance.
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


@takes(treated=NUMBERS, baseline=NUMBERS, permutations=COUNT, seed=seed_number)
def share_distance_test(
    treated: ArrayLike, baseline: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> tuple[float, float]:
    """Return how far two strategies' mean shares are apart, and the p-value of that by permutation within seeds.

    Each seed's counts, of visits to S states say, become shares; the statistic is the total variation distance of
    their means over seeds, ``sum_s |mean treated_s - mean baseline_s| / 2``, in [0, 1]. The p-value is that of
    `paired_permutation_test`: the share of swap patterns that do as much.

    Args:
        treated: counts, shape (N, S), each row with a positive sum.
        baseline: shape (N, S), paired by position.
        permutations: patterns at most.
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
    seen = float(np.abs(difference.mean(0)).sum() / 2)
    return seen, share_as_extreme(null, seen, 1.0, exact=is_exact(len(a), permutations))
