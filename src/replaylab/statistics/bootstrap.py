"""Bootstrap intervals whose ends do not depend on the resampling seed.

An interval's end is a mean of quantiles, at shares from 0.5 to 1.5 times the tail share. A single quantile of resampled
returns with two peaks may jump from one peak to the other with the next resample; the mean moves smoothly with the
share. With up to `MOST_ENUMERATED` runs all resamples are enumerated, each with its probability, so the ends are exact.
With more runs, random resamples are drawn until an end's standard error is at most `STEADY` of the interval's width, or
until there are `MOST_RESAMPLES`. Where that is not enough (almost constant runs), a 95 % end of one environment's
paired runs is uncertain by less than 4 % of the gap between its two neighbouring resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations_with_replacement
from math import lgamma

import numpy as np
from numpy.typing import NDArray

from replaylab.statistics.resampling import RESAMPLES, Floats, ends, resample, tail

MOST_ENUMERATED = 8
"""Largest number of runs of one environment whose resamples are all enumerated: 6,435 for 8 runs."""

MOST_RESAMPLES = 200_000
"""Largest number of random resamples."""

STEADY = 0.01
"""Resampling stops when the standard error of an end is at most this share of the interval's width."""


def resolves(level: float, runs: int) -> bool:
    """Return whether resamples of N paired runs are fine enough for the ends of an interval of this level.

    The tail share must exceed the probability of the resample that repeats a single run, if all are enumerated, or else
    ten of `MOST_RESAMPLES`. At smaller shares the end is the most extreme resample, however high the level.
    """
    finest = float(runs) ** -runs if runs <= MOST_ENUMERATED else 10.0 / MOST_RESAMPLES
    return tail(level, runs, difference=True) > finest


def enumerated(statistic: Callable[..., Floats], *paired: Floats) -> tuple[Floats, Floats]:
    """Return the statistic of every resample of N runs, (K,), in increasing order, and their probabilities, (K,).

    Args:
        statistic: takes arrays (b, N, 1), one for each of ``paired``, and returns (b,).
        paired: arrays (N, 1), N at most `MOST_ENUMERATED`.
    """
    draws, chances = _all_resamples(len(paired[0]))
    values = statistic(*(a[draws] for a in paired))
    order = np.argsort(values)
    return values[order], chances[order]


@cache
def _all_resamples(runs: int) -> tuple[NDArray[np.intp], Floats]:
    """Return all multisets of N draws from N runs, (K, N), and the probability of each, (K,)."""
    draws = np.array(list(combinations_with_replacement(range(runs), runs)), dtype=np.intp)
    counts = (draws[:, :, None] == np.arange(runs)).sum(axis=1)
    factorial = np.array([lgamma(k + 1.0) for k in range(runs + 1)])
    return draws, np.exp(factorial[runs] - factorial[counts].sum(axis=1) - runs * np.log(runs))


def steady_ends(draw: Callable[[int], Floats], share: float) -> tuple[float, float]:
    """Return both ends of an interval from as many random resamples as its ends need.

    Args:
        draw: returns a given number of resampled statistics, independent of previous ones, shape (b,).
        share: tail share that the interval cuts off at either end.
    """
    samples = np.sort(draw(RESAMPLES))
    while True:
        low, high = smooth_ends(samples, share)
        error = max(_error(samples, share), _error(-samples[::-1], share))
        if len(samples) >= MOST_RESAMPLES or error <= STEADY * (high - low):
            return low, high
        wanted = (error / (STEADY * (high - low))) ** 2 if high > low else np.inf
        size = int(min(MOST_RESAMPLES, len(samples) * max(2.0, 1.1 * wanted)))
        samples = np.sort(np.concatenate([samples, draw(size - len(samples))]))


def smooth_ends(ordered: Floats, share: float, chances: Floats | None = None) -> tuple[float, float]:
    """Return both ends of an interval, each a mean of quantiles at 0.5 to 1.5 times the tail share.

    Args:
        ordered: resampled statistics in increasing order, shape (b,).
        share: tail share that the interval cuts off at either end.
        chances: probability of each statistic, adding up to 1; None: all equal.
    """
    until = np.arange(1, len(ordered) + 1) / len(ordered) if chances is None else np.cumsum(chances)
    above = 1.0 - np.append(0.0, until[:-1])[::-1]
    return _lowest(ordered, until, share), 0.0 - _lowest(-ordered[::-1], above, share)


def _lowest(ordered: Floats, until: Floats, share: float) -> float:
    """Mean of the quantiles at 0.5 to 1.5 times the share; ``until`` is the cumulative distribution at each value."""
    first, last = np.searchsorted(until[:-1], [0.5 * share, 1.5 * share])
    inside = np.diff(np.clip(until[first : last + 1], None, 1.5 * share), prepend=0.5 * share)
    least = ordered[first]  # subtracted first, so that equal values give exactly that value
    return float(least + (ordered[first : last + 1] - least) @ inside / inside.sum())


def _error(ordered: Floats, share: float) -> float:
    """Standard error of the lower end: that of the mean of resamples clipped to the range of its quantiles."""
    count = len(ordered)
    bounds = ordered[np.minimum((np.array([0.5, 1.5]) * share * count).astype(np.intp), count - 1)]
    return float(np.clip(ordered, *bounds).std() / (share * np.sqrt(count)))


def bootstrap_ends(
    statistic: Callable[..., Floats],
    *paired: Floats,
    share: float,
    rng: np.random.Generator,
    resamples: int | None,
    calibrated: bool,
) -> tuple[float, float]:
    """Return the ends of an interval from resamples of runs within their strata, paired ones together.

    Args:
        statistic: takes arrays (b, N, M), one for each of ``paired``, and returns (b,).
        paired: arrays (N, M).
        share: tail share that the interval cuts off at either end.
        rng: generator of the random resamples.
        resamples: number of random resamples; None: as many as the ends need, or all if few runs are enumerated.
        calibrated: False gives plain quantiles of random resamples.
    """
    runs, strata = paired[0].shape
    if calibrated and resamples is None and strata == 1 and runs <= MOST_ENUMERATED:
        values, chances = enumerated(statistic, *paired)
        return smooth_ends(values, share, chances)

    def draw(count: int) -> Floats:
        return resample(statistic, *paired, resamples=count, rng=rng)

    return random_ends(draw, share, resamples=resamples, calibrated=calibrated)


def random_ends(
    draw: Callable[[int], Floats], share: float, *, resamples: int | None, calibrated: bool
) -> tuple[float, float]:
    """Return the ends of an interval from random resamples; see `steady_ends` and `bootstrap_ends`."""
    if not calibrated:
        low, high = ends(draw(RESAMPLES if resamples is None else resamples), share)
        return float(low), float(high)
    return steady_ends(draw, share) if resamples is None else smooth_ends(np.sort(draw(resamples)), share)
