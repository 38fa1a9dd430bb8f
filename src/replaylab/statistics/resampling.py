"""The stratified bootstrap over runs, and the tail share that its intervals cut off at either end.

Each resample draws N of the N complete runs of each environment (stratum), with replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import INSIDE, Rule, instance, optional, reals, seed_number, takes, whole
from replaylab.errors import NonFiniteError, ShapeError
from replaylab.statistics.distributions import Floats as Floats
from replaylab.statistics.distributions import normal_share, student_quantile, student_share

RESAMPLES = 10_000
"""Bootstrap resamples that an interval starts with (`bootstrap` takes more where its ends are not steady)."""

NUMBERS = reals()
"""Rule for values of any shape, which the function checks itself."""

VALUES = reals("N", finite=True)
"""Rule for finite values with at least one for each run."""

COUNT = whole(most=2**31 - 1)
"""Rule for a number of resamples, patterns or studies."""

_BLOCK = 4_000_000
"""Numbers held at once while resampling, so that large studies need no more memory than small ones."""


class Interval(NamedTuple):
    """An estimate with the ends of its interval, in the unit of the data."""

    estimate: float
    low: float
    high: float


PAIRED: dict[str, Rule[Any]] = {"treated": NUMBERS, "baseline": NUMBERS}
"""Rules for the runs of two strategies."""
BOOTSTRAP: dict[str, Rule[Any]] = {"level": INSIDE, "resamples": optional(COUNT), "seed": seed_number}
"""Rules for an interval whose resamples may be as many as it takes."""
FIXED_BOOTSTRAP = BOOTSTRAP | {"resamples": COUNT}
"""Rules for an interval of so many resamples."""
INTERVAL = instance(Interval, "an Interval")
OF_RUNS = {"interval": INTERVAL, "runs": COUNT, "level": INSIDE}
"""Rules for the arguments of functions of one interval."""


class Band(NamedTuple):
    """A curve of estimates with pointwise intervals; each of shape (T,)."""

    estimate: Floats
    low: Floats
    high: Floats


def as_strata(values: ArrayLike) -> Floats:
    """View values (N,) or (N, M) as (N, M).

    Raises:
        ShapeError: the values have another shape, or there is no run.
        NonFiniteError: a value is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeError(f"Values must be of shape (N,) or (N, M) with N >= 1, but got shape {array.shape}.")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        run, stratum = wrong[0].tolist()
        raise NonFiniteError(
            f"Values must be finite, but got {array[run, stratum]} for run {run}: leave a run without a number out, of "
            f"both groups where they are paired."
        )
    return array


def as_pairs(treated: ArrayLike, baseline: ArrayLike) -> tuple[Floats, Floats]:
    """View two groups as (N, M) each, row i of both being the same seed.

    Raises:
        ShapeError: the shapes differ.
    """
    a, b = as_strata(treated), as_strata(baseline)
    if a.shape != b.shape:
        raise ShapeError(f"Paired values must have equal shapes, but got {a.shape} and {b.shape}.")
    return a, b


def as_columns(values: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """Return values of seeds by comparisons, (N, K), NaN where missing, and the count of numbers in each column, (K,).

    Raises:
        ShapeError: the values have another shape, or a column has fewer than two numbers.
        NonFiniteError: a value is infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    count = np.count_nonzero(~np.isnan(array), axis=0)
    if array.ndim != 2 or (count < 2).any():
        raise ShapeError(
            f"Values must be of shape (N, K) with two numbers in each column, but got shape {array.shape} with "
            f"{count.tolist()} numbers."
        )
    if np.isinf(array).any():
        raise NonFiniteError("Values must be finite, or NaN if missing, but one is infinite.")
    return array, count


def resample(
    statistic: Callable[..., Floats],
    *paired: Floats,
    resamples: int = RESAMPLES,
    rng: np.random.Generator,
) -> Floats:
    """Return the statistic of stratified resamples, shape (resamples, ...).

    Args:
        statistic: takes arrays (b, N, M), one for each of ``paired``, and returns (b, ...).
        paired: arrays (N, M); a drawn row is taken from all of them.
        resamples: number of resamples.
        rng: generator of the draws.
    """
    runs, strata = paired[0].shape
    block = max(1, _BLOCK // (runs * strata))
    values = []
    for start in range(0, resamples, block):
        draws = rng.integers(0, runs, size=(min(block, resamples - start), runs, strata))
        values.append(statistic(*(np.take_along_axis(a[None], draws, axis=1) for a in paired)))
    return np.concatenate(values)


def tail(level: float, runs: int, strata: int = 1, *, difference: bool = False, calibrated: bool = True) -> float:
    """Return the tail share: the share of resamples that an interval cuts off at each end.

    The plain percentile interval cuts off (1 - level) / 2, which is too much for few runs: a resample's
    spread is smaller than a sample's by sqrt((N - 1) / N), and is itself uncertain. The expanded percentile
    interval (Hesterberg 2015, https://doi.org/10.1080/00031305.2015.1089789) cuts off
    Phi(-t sqrt(N / (N - 1))), t being Student's (1 + level) / 2 quantile with M (N - 1) degrees of freedom. The
    interval of the level of a single stratum omits the root: there resampled IQMs spread enough, and with the root
    intervals would cover 97 %. That exception is measured, not derived; for coverage see
    docs/explanation/statistics-appendix.md.

    Args:
        level: share of studies whose interval should hold the true value.
        runs: runs in a stratum, N. The interval of a single run has zero width.
        strata: number of strata, M.
        difference: whether the interval is of a difference.
        calibrated: False gives the plain percentile interval.
    """
    if not calibrated or runs == 1:
        return (1.0 - level) / 2.0
    quantile = float(student_quantile(strata * (runs - 1), (1.0 + level) / 2.0))
    spread = np.sqrt(runs / (runs - 1)) if difference or strata > 1 else 1.0
    return float(normal_share(-quantile * spread))


@takes(**OF_RUNS)
def interval_t(interval: Interval, runs: int, *, level: float = 0.95) -> float:
    """Return the t statistic that matches a calibrated interval: the distance of its estimate from 0.

    The half of the interval towards 0 counts as t, Student's (1 + level) / 2 quantile with N - 1 degrees of
    freedom, so the result is t |estimate| / half. It exceeds t exactly if the interval excludes 0.
    """
    if interval.estimate == 0.0 or runs == 1:
        return 0.0
    arm = interval.estimate - interval.low if interval.estimate > 0.0 else interval.high - interval.estimate
    quantile = float(student_quantile(runs - 1, (1.0 + level) / 2.0))
    return quantile * abs(interval.estimate) / arm if arm > 0.0 else np.inf


@takes(**OF_RUNS)
def interval_p(interval: Interval, runs: int, *, level: float = 0.95) -> float:
    """Return the two-sided p-value of an interval: below 1 - level exactly if it excludes 0.

    At other thresholds it matches intervals whose ends are scaled by Student's quantiles, see `interval_t`.

    Args:
        interval: calibrated, of ``level``.
        runs: number of runs, N. With a single run p is 1.
        level: of the interval.
    """
    if runs == 1:
        return 1.0
    p = float(2.0 * student_share(runs - 1, -interval_t(interval, runs, level=level)))
    return max(p, 1.0 - level) if interval.low <= 0.0 <= interval.high else p  # if an end is 0, rounding would decide


def ends(samples: Floats, share: float) -> tuple[Floats, Floats]:
    """Return the two quantiles over the first axis that cut off a share at either end."""
    shares = [share, 1.0 - share]
    infinite = np.isinf(samples).any(0)
    if not infinite.any():
        low, high = np.quantile(samples, shares, axis=0)
        return low, high
    between = np.quantile(np.where(infinite, 0.0, samples), shares, axis=0)
    low, high = np.where(infinite, np.quantile(samples, shares, axis=0, method="inverted_cdf"), between)
    return low, high
