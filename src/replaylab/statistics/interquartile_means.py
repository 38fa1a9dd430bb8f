"""Interquartile means of strategies and their differences, with bootstrap intervals.

The interquartile mean (IQM) is the mean of the middle half of the runs. It is less sensitive to single outliers than a
mean, and statistically more efficient than a median (Agarwal et al. 2021, "Deep reinforcement learning at the edge of
the statistical precipice", NeurIPS, https://arxiv.org/abs/2108.13264). Shapes: ``N`` runs (seeds), ``M``
strata (environments), ``T`` points of a curve.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import LARGEST, flag, reals, takes, whole
from replaylab.errors import ShapeError
from replaylab.statistics import resampling
from replaylab.statistics.bootstrap import bootstrap_ends, random_ends
from replaylab.statistics.resampling import BOOTSTRAP, FIXED_BOOTSTRAP, NUMBERS, PAIRED, Band, Floats, Interval


@takes(values=NUMBERS, axis=whole(-LARGEST))
def interquartile_mean(values: ArrayLike, axis: int = 0) -> Floats:
    """Return the interquartile mean along ``axis``.

    With n values sorted as x_(1) <= ... <= x_(n) and g = floor(n / 4),
    IQM = (x_(g+1) + ... + x_(n-g)) / (n - 2g), the 25 % trimmed mean (``scipy.stats.trim_mean(x, 0.25)``);
    NaN if any value is NaN.

    Args:
        values: runs along ``axis``.
        axis: the axis of the runs; it disappears from the result.

    Raises:
        ShapeError: there are no values along ``axis``.
    """
    array = np.asarray(values, dtype=np.float64)
    if not -array.ndim <= axis < array.ndim:
        raise ShapeError(f"The axis of the runs must be one of the {array.ndim} there are, but got {axis}.")
    array = np.sort(array, axis=axis)
    count = array.shape[axis]
    if count == 0:
        raise ShapeError("An interquartile mean needs at least one value, but got none.")
    cut = count // 4
    middle = np.take(array, np.arange(cut, count - cut), axis=axis)
    largest = np.take(array, -1, axis=axis)  # NaN is sorted to the end, and would be cut off as if it were the largest
    return np.where(np.isnan(largest), np.nan, middle.mean(axis=axis))


def pooled_iqm(values: Floats) -> Floats:
    """Return the IQM over all runs of all strata: (..., N, M) to (...)."""
    return interquartile_mean(values.reshape(*values.shape[:-2], -1), axis=-1)


def iqm_difference(treated: Floats, baseline: Floats) -> Floats:
    """Return the difference of pooled IQMs: (..., N, M) each, to (...)."""
    return pooled_iqm(treated) - pooled_iqm(baseline)


@takes(**BOOTSTRAP, values=NUMBERS, calibrated=flag)
def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, resamples: int | None = None, seed: int = 0, calibrated: bool = True
) -> Interval:
    """Return the IQM of the runs with its stratified bootstrap interval.

    Runs are drawn with replacement separately within each stratum (environment), the IQM is taken over all of
    them, and the interval's ends are quantiles of those IQMs, at a tail share adjusted for few runs
    (`resampling.tail`).

    Args:
        values: shape (N,) for one environment, or (N, M) for M environments in a common unit.
        level: share of studies whose interval should hold the true value.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends (`bootstrap`).
        seed: seed of the resampling.
        calibrated: False gives the plain percentile interval, which is what rliable gives.

    Examples:
        >>> interval = bootstrap_interval([480.0, 500, 455, 500, 120, 500, 490, 470, 500, 390])
        >>> round(interval.estimate, 1), bool(interval.low < interval.estimate < interval.high)
        (482.5, True)
    """
    array = resampling.as_strata(values)
    rng, share = np.random.default_rng(seed), resampling.tail(level, *array.shape, calibrated=calibrated)
    bounds = bootstrap_ends(pooled_iqm, array, share=share, rng=rng, resamples=resamples, calibrated=calibrated)
    return Interval(float(pooled_iqm(array)), *bounds)


@takes(**PAIRED, **BOOTSTRAP, calibrated=flag)
def paired_difference(
    treated: ArrayLike,
    baseline: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    calibrated: bool = True,
) -> Interval:
    """Return IQM(treated) - IQM(baseline) with a paired bootstrap interval.

    Row i of both arrays is the same seed. A resample draws seeds and takes both runs of each drawn seed, so a seed's
    common effect on both strategies cancels; the interval is therefore narrower than that of two unpaired groups
    whenever the runs of a seed are positively correlated.

    Args:
        treated: shape (N,) or (N, M), as in `bootstrap_interval`.
        baseline: the same shape, paired row by row.
        level: share of studies whose interval should hold the true value.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends (`bootstrap`).
        seed: seed of the resampling.
        calibrated: False gives the plain percentile interval.

    Raises:
        ShapeError: the shapes differ.
    """
    a, b = resampling.as_pairs(treated, baseline)
    rng, share = np.random.default_rng(seed), resampling.tail(level, *a.shape, difference=True, calibrated=calibrated)
    bounds = bootstrap_ends(iqm_difference, a, b, share=share, rng=rng, resamples=resamples, calibrated=calibrated)
    return Interval(float(iqm_difference(a, b)), *bounds)


@takes(**PAIRED, **BOOTSTRAP, calibrated=flag)
def unpaired_difference(
    treated: ArrayLike,
    baseline: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    calibrated: bool = True,
) -> Interval:
    """Return IQM(treated) - IQM(baseline) with an interval for runs that do not share seeds.

    Each group is resampled separately; the tail share is that of the smaller group.

    Args:
        treated: shape (N,) or (N, M).
        baseline: shape (N',) or (N', M).
        level: share of studies whose interval should hold the true value.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends (`bootstrap`).
        seed: seed of the resampling.
        calibrated: False gives the plain percentile interval.
    """
    a, b = resampling.as_strata(treated), resampling.as_strata(baseline)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> Floats:
        first, second = (resampling.resample(pooled_iqm, group, resamples=count, rng=rng) for group in (a, b))
        return first - second

    share = resampling.tail(level, min(len(a), len(b)), a.shape[1], difference=True, calibrated=calibrated)
    bounds = random_ends(draw, share, resamples=resamples, calibrated=calibrated)
    return Interval(float(iqm_difference(a, b)), *bounds)


@takes(values=reals("N", "T", leading=False), **FIXED_BOOTSTRAP)
def curve_band(values: ArrayLike, *, level: float = 0.95, resamples: int = 2_000, seed: int = 0) -> Band:
    """Return the IQM over runs at every point of a learning curve, with pointwise bootstrap intervals.

    Args:
        values: shape (N, T): runs by points of a common grid.
        level: pointwise level.
        resamples: number of bootstrap resamples; the same runs are drawn at every point.
        seed: seed of the resampling.
    """
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(array), size=(resamples, len(array)))
    low, high = resampling.ends(_resampled_iqms(array, draws), resampling.tail(level, len(array)))
    return Band(interquartile_mean(array, axis=0), low, high)


def _resampled_iqms(values: Floats, draws: NDArray[np.int64]) -> Floats:
    """Return the IQM of every resample at every point, shape (resamples, T), without sorting any resample.

    With a point's values in order, x_1 <= ... <= x_N, and C_i draws of the first i of them, of a resample's N values
    U_i = min(max(C_i, g), N - g) - g of the middle N - 2g are among the first i. Their sum is
    x_N U_N - sum over i < N of U_i (x_{i+1} - x_i).

    Args:
        values: shape (N, T).
        draws: which runs each resample holds, shape (resamples, N).
    """
    runs, cut = len(values), len(values) // 4
    flat_counts = np.bincount((draws + runs * np.arange(len(draws))[:, None]).ravel(), minlength=draws.size)
    counts = flat_counts.reshape(draws.shape).T.astype(np.float64, order="C")
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    finite = np.isfinite(values).all(0)
    gaps = np.diff(np.where(finite, ordered, 0.0), axis=0) / (runs - 2 * cut)
    iqms = np.empty((len(draws), values.shape[1]))
    used = np.empty((runs - 1, len(draws)))
    for point in np.flatnonzero(~finite):
        iqms[:, point] = interquartile_mean(values[draws, point], axis=1)
    for point in np.flatnonzero(finite):
        drawn = np.zeros(len(draws))
        for i, run in enumerate(order[:-1, point]):  # row by row: `cumsum` along this axis takes six times as long
            drawn = np.add(drawn, counts[run], out=used[i])
        np.clip(used, cut, runs - cut, out=used)
        iqms[:, point] = ordered[-1, point] - gaps[:, point] @ (used - cut)
    return iqms
