"""Means of several contrasts over seeds, with simultaneous intervals and matching p-values.

Estimate, interval and p-value of a contrast are of one estimand, its mean over seeds, and never disagree: p is below
1 - level exactly if the interval excludes 0. Shapes: N seeds, K contrasts, S studies that are evaluated at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import reals, takes
from replaylab.statistics.distributions import student_quantile, student_share
from replaylab.statistics.permutation import least_p
from replaylab.statistics.resampling import FIXED_BOOTSTRAP, NUMBERS, Floats, as_columns

MEANS_RESAMPLES = 19_999
"""Bootstrap resamples; with the observed sample 20,000."""

_BLOCK = 20_000_000
"""Largest number of resampled values in memory at once."""

_TINY = 1e-12
"""A variance below this share of the mean square is rounding error."""


class Means(NamedTuple):
    """Means over seeds, with intervals and p-values; each of shape (K,), or (S, K) of S studies."""

    estimate: Floats
    low: Floats
    high: Floats
    p: Floats


class Heterogeneity(NamedTuple):
    """Spread of several means around their common one, and its p-value if all are equal."""

    q: float
    p: float


@takes(**FIXED_BOOTSTRAP, values=NUMBERS)
def mean_intervals(values: ArrayLike, *, level: float = 0.95, resamples: int = MEANS_RESAMPLES, seed: int = 0) -> Means:
    """Return the means of K contrasts over seeds, with simultaneous intervals and p-values.

    Single-step max-T by the bootstrap of t: seeds are drawn with replacement, all K values of a seed together, and
    t*_k = (mean*_k - mean_k) / (sd*_k / sqrt(N)) with the resample's own spread, so that skewed contrasts have the wide
    intervals that they need. q is the (level) quantile of the largest |t*| over the K; an interval is mean ± q sd /
    sqrt(N), and a p-value the share of resamples, the observed sample included, whose largest |t*| is at least |t|. So
    in about ``level`` of studies all K intervals cover their true values, however the contrasts depend on each other
    and however their spreads differ. q is at least Student's quantile, and p at least Student's p-value. With K = 1
    there is no correction.

    If all values of a contrast are equal there is no spread to resample, and an infinite t is no evidence: N fair coins
    of -1 and 1 are all equal in 2 / 2^N of studies. So p is then K 2 / 2^N, the smallest that sign flips can give,
    corrected over the K; the interval is the single value if that is below 1 - level, else it is infinite. With one
    contrast at 95 % that takes six equal seeds. The coverage is ``level`` only if a contrast is as likely to be above
    its mean as below: if nine of ten seeds share a value, six equal ones are common.

    Sources: Hall 1988 (https://doi.org/10.1214/aos/1176350933) for the symmetric interval; Westfall & Young 1993,
    chapter 2, for the largest.

    Args:
        values: shape (N, K), NaN where a contrast lacks a seed, at least two numbers in each column.
        level: probability that all intervals cover the true means.
        resamples: number of resamples of the seeds.
        seed: seed of the resamples.

    Raises:
        ShapeError: not of shape (N, K), or a column has fewer than two numbers.
        NonFiniteError: a value is infinite.

    Examples:
        >>> means = mean_intervals([[1.0], [2.0], [1.5], [2.5], [1.2]])
        >>> round(float(means.estimate[0]), 2), bool(means.low[0] > 0), bool(means.p[0] < 0.05)
        (1.64, True, True)
    """
    array, _ = as_columns(values)
    means = decisions(array[None], level=level, resamples=resamples, seed=seed)
    return Means(*(field[0] for field in means))


@takes(resamples=FIXED_BOOTSTRAP["resamples"], seed=FIXED_BOOTSTRAP["seed"], values=NUMBERS)
def heterogeneity_test(values: ArrayLike, *, resamples: int = MEANS_RESAMPLES, seed: int = 0) -> Heterogeneity:
    """Test whether the means of K contrasts over seeds differ from each other.

    Q = Σ_k (m_k − m)² / e_k², with the mean m_k of a contrast, its standard error e_k, and m = Σ m_k/e_k² / Σ 1/e_k².
    Its distribution without differences is that of resamples of the seeds, all K values of a seed together, from
    values less their means, each resample with its own standard errors. p is the share of resamples, the observed
    sample included, whose Q is at least the observed one. Contrasts whose values are all equal are left out.

    Sources: Cochran 1954 (https://doi.org/10.2307/3001666) for Q; the resampling is that of `mean_intervals`.

    Args:
        values: shape (N, K), NaN where a contrast lacks a seed, at least two numbers in each column.
        resamples: number of resamples of the seeds.
        seed: seed of the resamples.

    Raises:
        ShapeError: not of shape (N, K), or a column has fewer than two numbers.
        NonFiniteError: a value is infinite.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> alike = rng.normal(size=(60, 5))
        >>> bool(heterogeneity_test(alike).p > 0.05), bool(heterogeneity_test(alike + [0, 0, 0, 0, 2]).p < 0.001)
        (True, True)
    """
    array, _ = as_columns(values)
    array = array[:, np.nanmax(array, axis=0) > np.nanmin(array, axis=0)]
    if array.shape[1] < 2:
        return Heterogeneity(0.0, 1.0)
    present = ~np.isnan(array)
    counts = np.concatenate([np.ones((1, len(array))), _counts(len(array), resamples, seed)])
    mean = np.nanmean(array, axis=0)
    residuals = np.where(present, array - mean, 0.0)
    runs = np.maximum(counts @ present, 2.0)
    shift, square = counts @ residuals / runs, counts @ residuals**2 / runs
    variance = np.maximum(square - shift**2, _TINY * square + _TINY**2) / (runs - 1.0)
    shift[0] = mean  # the observed sample, the others are without differences
    common = (shift / variance).sum(1, keepdims=True) / (1.0 / variance).sum(1, keepdims=True)
    q = ((shift - common) ** 2 / variance).sum(1)
    return Heterogeneity(float(q[0]), float((q >= q[0]).mean()))


@takes(**FIXED_BOOTSTRAP, values=reals("S", "N", "K", leading=False))
def decisions(values: ArrayLike, *, level: float = 0.95, resamples: int = MEANS_RESAMPLES, seed: int = 0) -> Means:
    """Return `mean_intervals` of many studies of the same size at once, each corrected separately, (S, K).

    All studies use the same resamples of seeds.

    Args:
        values: shape (S, N, K).
        level: as in `mean_intervals`.
        resamples: as in `mean_intervals`.
        seed: as in `mean_intervals`.
    """
    array = np.asarray(values, dtype=np.float64)
    studies, seeds, contrasts = array.shape
    counts = _counts(seeds, resamples, seed)
    block = max(1, _BLOCK // (resamples * max(contrasts, 1)))
    parts = [_decided(array[k : k + block], counts, level) for k in range(0, studies, block)]
    return Means(*(np.concatenate(field) for field in zip(*parts, strict=True)))


@lru_cache(maxsize=1)  # drawing takes nine tenths of the time, and a study uses the same resamples many times
def _counts(seeds: int, resamples: int, seed: int) -> Floats:
    """Return how often each seed is drawn, (resamples, N)."""
    drawn = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples)
    counts = drawn.astype(np.float64)
    counts.flags.writeable = False
    return counts


def _decided(values: Floats, counts: Floats, level: float) -> Means:
    """Return means, interval ends and p-values, (S, K) each."""
    studies = len(values)
    present = ~np.isnan(values)
    runs = present.sum(axis=1)
    filled = np.where(present, values, 0.0)
    mean = filled.sum(axis=1) / runs
    residuals = np.where(present, values - mean[:, None], 0.0)
    variance = (residuals**2).sum(axis=1) / (runs - 1)
    variance = np.where(variance > _TINY * (filled**2).sum(axis=1) / runs, variance, 0.0)
    error, varies = np.sqrt(variance / runs), variance > 0
    size = np.abs(mean)
    observed = np.divide(size, error, out=np.where(size > 0, np.inf, 0.0), where=varies)
    null = _null(counts, residuals, present, varies)
    largest = np.sort(null.max(axis=2), axis=0)
    quantile = np.maximum(_critical(largest, 1.0 - level)[:, None], student_quantile(runs - 1, (1.0 + level) / 2.0))
    above = np.stack([len(counts) - np.searchsorted(largest[:, k], observed[k]) for k in range(studies)])
    resampled = np.maximum((above + 1) / (len(counts) + 1), 2.0 * student_share(runs - 1, -observed))
    alike = np.maximum(1.0 / (len(counts) + 1), least_p(runs, values.shape[2]))
    half_width = np.where(alike < 1.0 - level, 0.0, np.inf)
    np.multiply(quantile, error, out=half_width, where=varies)
    p = np.where(varies, resampled, alike)
    return Means(mean, mean - half_width, mean + half_width, np.where(observed > 0, p, 1.0))


def _null(counts: Floats, residuals: Floats, present: NDArray[np.bool_], varies: NDArray[np.bool_]) -> Floats:
    """|t*| of resamples, (resamples, S, K), each by its own spread; 0 for contrasts that do not vary.

    Args:
        counts: how often each seed is drawn, (resamples, N).
        residuals: values minus their means, 0 where missing, (S, N, K).
        present: whether a value is present, (S, N, K).
        varies: whether a contrast's values differ, (S, K).
    """
    seeds = counts.shape[1]

    def drawn(values: Floats) -> Floats:
        flat = counts @ np.moveaxis(values, 1, 0).reshape(seeds, -1)
        return flat.reshape(len(counts), *varies.shape)

    runs = np.float64(seeds) if present.all() else np.maximum(drawn(present.astype(np.float64)), 2.0)
    mean, square = drawn(residuals) / runs, drawn(residuals**2) / runs
    variance = np.maximum(square - mean**2, _TINY * square) / (runs - 1.0)
    size = np.abs(mean)
    return np.asarray(np.divide(size, np.sqrt(variance), out=np.zeros_like(size), where=varies & (variance > 0)))


def _critical(largest: Floats, alpha: float) -> Floats:
    """Return the critical |t| at alpha, (S,), from the sorted largest |t*| of resamples, (resamples, S)."""
    resamples = len(largest)
    allowed = int(np.ceil(alpha * (resamples + 1) - 1e-9)) - 2  # number of resamples that may be as large
    return np.asarray(largest[resamples - 1 - allowed] if allowed >= 0 else np.full(largest.shape[1], np.inf))
