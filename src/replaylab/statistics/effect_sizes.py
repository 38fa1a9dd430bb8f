"""Effect sizes: probability of improvement, standardized difference, performance profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import flag, reals, takes
from replaylab.errors import ShapeError
from replaylab.statistics import resampling
from replaylab.statistics.resampling import FIXED_BOOTSTRAP, NUMBERS, PAIRED, RESAMPLES, Band, Floats, Interval


@takes(**PAIRED, **FIXED_BOOTSTRAP, paired=flag, calibrated=flag)
def probability_of_improvement(
    treated: ArrayLike,
    baseline: ArrayLike,
    *,
    paired: bool = True,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
    calibrated: bool = True,
) -> Interval:
    """Return the chance that a run of one strategy beats a run of the other, averaged over strata.

    P = 1/M sum over strata of 1/(N N') sum over i, j of [a_i > b_j] + [a_i = b_j] / 2: the Mann-Whitney
    statistic, over any two runs, not only those of the same seed (Agarwal et al. 2021, section 4.3). If all runs
    of one group are better, the interval has zero width; with few runs that is weak evidence.

    Args:
        treated: shape (N,) or (N, M).
        baseline: shape (N,) or (N, M), or another number of runs if not paired.
        paired: whether row i of both is the same seed, to be resampled together.
        level: share of studies whose interval should hold the true value.
        resamples: number of bootstrap resamples; each takes N N' M comparisons.
        seed: seed of the resampling.
        calibrated: False gives the plain percentile interval, which is what rliable gives.

    Raises:
        ShapeError: the shapes do not fit together.

    Examples:
        >>> probability_of_improvement([3, 4, 5, 6], [1, 2, 3, 2], resamples=50).estimate
        0.96875
    """
    a, b = resampling.as_strata(treated), resampling.as_strata(baseline)
    if a.shape[1] != b.shape[1] or (paired and len(a) != len(b)):
        raise ShapeError(
            f"Compared values must have equally many strata, and runs if paired, but got shapes {a.shape} and "
            f"{b.shape}; paired=False takes groups of different size."
        )
    rng, runs = np.random.default_rng(seed), min(len(a), len(b))
    if paired:
        samples = resampling.resample(_improvement, a, b, resamples=resamples, rng=rng)
    else:
        first = resampling.resample(lambda x: x, a, resamples=resamples, rng=rng)
        second = resampling.resample(lambda x: x, b, resamples=resamples, rng=rng)
        samples = _improvement(first, second)
    share = resampling.tail(level, runs, a.shape[1], difference=True, calibrated=calibrated)
    low, high = resampling.ends(samples, share)
    return Interval(float(_improvement(a, b)), float(low), float(high))


def _improvement(treated: Floats, baseline: Floats) -> Floats:
    """Probability of improvement of (..., N, M) over (..., N', M), (...); loops over N to save memory."""
    wins = sum(
        np.mean((row > baseline) + 0.5 * (row == baseline), axis=(-2, -1))
        for row in np.moveaxis(treated[..., None, :], -3, 0)
    )
    return np.asarray(wins / treated.shape[-2])


@takes(**PAIRED, **FIXED_BOOTSTRAP)
def standardised_difference(
    treated: ArrayLike, baseline: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean paired difference in units of its standard deviation, with a bootstrap interval.

    d_z = mean(a - b) / sd(a - b), sd with N - 1 (Cohen 1988, section 2.3.5; Lakens 2013,
    https://doi.org/10.3389/fpsyg.2013.00863, formula 6). It is 0 where no pair differs, and infinite where all differ
    by the same. It is NaN for a single pair, which has no standard deviation. The interval's ends are quantiles over
    resampled pairs. They are approximate: resamples repeat pairs, so d_z is slightly larger in them.

    Args:
        treated: shape (N,).
        baseline: shape (N,), paired by position.
        level: share of studies whose interval should hold the true value.
        resamples: number of bootstrap resamples.
        seed: seed of the resampling.

    Raises:
        ShapeError: the shapes differ, or are not (N,).

    Examples:
        >>> round(standardised_difference([3.0, 5, 4, 8], [1.0, 2, 3, 4]).estimate, 3)
        1.936
    """
    a, b = resampling.as_pairs(treated, baseline)
    if a.shape[1] != 1:
        raise ShapeError(f"A standardised difference takes one environment, shape (N,), but got shape {a.shape}.")
    differences = a[:, 0] - b[:, 0]
    if len(differences) == 1:
        return Interval(np.nan, np.nan, np.nan)
    draws = np.random.default_rng(seed).integers(0, len(differences), size=(resamples, len(differences)))
    share = resampling.tail(level, len(differences), difference=True)
    low, high = np.quantile(_standardised(differences[draws]), [share, 1.0 - share], method="closest_observation")
    return Interval(float(_standardised(differences)), float(low), float(high))


def _standardised(differences: Floats) -> Floats:
    """Mean over standard deviation, (..., N) to (...)."""
    mean = differences.mean(axis=-1)
    spread = differences.std(axis=-1, ddof=1)
    limit = np.where(mean == 0.0, 0.0, np.copysign(np.inf, mean))
    varies = spread > 1e-12 * np.abs(differences).max(axis=-1)
    return np.asarray(np.divide(mean, spread, out=limit, where=varies))


@takes(**FIXED_BOOTSTRAP, values=NUMBERS, thresholds=reals("T", leading=False), calibrated=flag)
def performance_profile(
    values: ArrayLike,
    thresholds: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    calibrated: bool = True,
) -> Band:
    """Return the share of runs above each threshold, with pointwise intervals.

    F(tau) = 1/(N M) sum over runs and strata of [x > tau] (Agarwal et al. 2021, section 4.2). A profile that
    lies above another everywhere belongs to the better strategy; where they cross, it depends on the threshold.

    Args:
        values: shape (N,) or (N, M).
        thresholds: shape (T,), in the unit of the values.
        level: pointwise level.
        resamples: number of bootstrap resamples.
        seed: seed of the resampling.
        calibrated: False gives the plain percentile interval, which is what rliable gives.
    """
    array = resampling.as_strata(values)
    runs, strata = array.shape
    above = (array[:, :, None] > np.asarray(thresholds, dtype=np.float64)).astype(np.float64)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(runs, np.full(runs, 1.0 / runs), size=(resamples, strata))
    samples = np.einsum("bmn,nmt->bt", counts.astype(np.float64), above, optimize=True) / (runs * strata)
    low, high = resampling.ends(samples, resampling.tail(level, runs, strata, calibrated=calibrated))
    return Band(above.mean(axis=(0, 1)), low, high)
