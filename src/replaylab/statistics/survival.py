"""Survival analysis of the steps until runs reach a threshold, with censored times.

A run that has not reached the threshold by the end of its budget takes longer than that, by an unknown amount: its time
is censored. Dropping it, or using the budget as its time, would bias the result in favour of the strategy. Kaplan and
Meier's curve S(t), the share of runs still below the threshold after t steps, accounts for censoring.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import FINITE, INSIDE, check, instance, optional, reals, takes, truths, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.statistics.distributions import student_quantile
from replaylab.statistics.resampling import Band, Floats, Interval


@dataclass(frozen=True)
class Times:
    """The steps until each run reached a threshold, or the steps observed if it did not."""

    steps: Floats
    """Shape (N,), environment steps."""

    reached: NDArray[np.bool_]
    """Shape (N,): False where the run was followed for ``steps`` and had not reached the threshold."""

    def __post_init__(self) -> None:
        check(self, steps=reals(), reached=truths)
        if self.steps.ndim != 1 or self.steps.shape != self.reached.shape or not len(self.steps):
            raise ShapeError(
                f"Times need steps and reached of one shape (N,) with N >= 1, but got {self.steps.shape} and "
                f"{self.reached.shape}."
            )

    def censored(self) -> Any:
        """Return the times as SciPy's ``CensoredData``."""
        from scipy import stats  # imported where needed, as below: it takes a second, also in worker processes

        return stats.CensoredData.right_censored(self.steps, ~self.reached)


TIMES = instance(Times, "Times, as `steps_to_threshold` returns them")


@takes(steps=reals("T", leading=False), values=reals("N", "T", leading=False), threshold=FINITE, hold=whole())
def steps_to_threshold(steps: ArrayLike, values: ArrayLike, threshold: float, *, hold: int = 1) -> Times:
    """Return the steps at which each run's curve first reaches a threshold and stays there for ``hold`` points.

    Args:
        steps: shape (T,), increasing.
        values: shape (N, T).
        threshold: reached where value >= threshold.
        hold: points in a row that must be at the threshold; the first of them counts.

    Raises:
        ConfigError: ``hold`` is not between 1 and T, or the steps do not increase.

    Examples:
        >>> steps_to_threshold([10, 20, 30], [[0, 5, 9], [0, 1, 2]], 5)
        Times(steps=array([20., 30.]), reached=array([ True, False]))
    """
    x = np.asarray(steps, dtype=np.float64)
    if not (np.diff(x) > 0.0).all():
        raise ConfigError(f"steps must be increasing numbers, but got {x.tolist()}.")
    above = np.asarray(values, dtype=np.float64) >= threshold
    if not 1 <= hold <= len(x):
        raise ConfigError(f"hold must be between 1 and the {len(x)} points of the curve, but got {hold}.")
    held = np.asarray(np.lib.stride_tricks.sliding_window_view(above, hold, axis=1).all(axis=2))
    reached = np.asarray(held.any(axis=1))
    return Times(np.where(reached, x[held.argmax(axis=1)], x[-1]), reached)


@takes(times=TIMES, level=INSIDE)
def survival_curve(times: Times, *, level: float = 0.95) -> tuple[Floats, Band]:
    """Return the Kaplan-Meier estimate: steps (K,), and the share of runs still below the threshold after each.

    S(t) = product over event times t_i <= t of (1 - d_i / n_i), d_i runs that reach it at t_i of n_i still
    followed. Intervals are pointwise, log(-log)-transformed, from Greenwood's variance (``scipy.stats.ecdf``).
    """
    from scipy import stats

    survival = stats.ecdf(times.censored()).sf
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)  # at S = 0 and S = 1
        ci: Any = survival.confidence_interval(level, method="log-log")
    share = np.asarray(survival.probabilities, dtype=np.float64)
    low = np.where(share < 1, np.nan_to_num(ci.low.probabilities, nan=0.0), 1.0)
    high = np.where(share < 1, np.nan_to_num(ci.high.probabilities, nan=1.0), 1.0)
    return np.asarray(survival.quantiles, dtype=np.float64), Band(share, low, np.minimum.accumulate(high))


@takes(times=TIMES, level=INSIDE)
def median_steps(times: Times, *, level: float = 0.95) -> Interval:
    """Return the median number of steps, infinite if fewer than half of the runs reached the threshold.

    The first t with S(t) <= 1/2; the interval's ends are where the band of S crosses 1/2 (Brookmeyer & Crowley
    1982, https://doi.org/10.2307/2530286). An infinite end means that the data do not bound the median.
    """
    steps, band = survival_curve(times, level=level)
    return Interval(*(_crossing(steps, curve) for curve in (band.estimate, band.low, band.high)))


def _crossing(steps: Floats, curve: Floats) -> float:
    below = curve <= 0.5 + 1e-12
    return float(steps[below.argmax()]) if below.any() else float("inf")


@takes(times=TIMES, horizon=optional(FINITE), level=INSIDE)
def restricted_mean(times: Times, horizon: float | None = None, *, level: float = 0.95) -> Interval:
    """Return the restricted mean time: the mean steps below the threshold within a horizon, with its interval.

    RMST = integral of S from 0 to the horizon: the mean of min(time, horizon), which is always finite. Its
    variance is Greenwood's, sum over event times of A_i^2 d_i / (n_i (n_i - d_i)), A_i the area of S from t_i to
    the horizon, times N / (N - 1); the interval takes Student's t with N - 1 degrees of freedom, so that without
    censoring before the horizon it is the t interval of min(time, horizon).

    Args:
        times: of N runs.
        horizon: in steps; by default the largest time of any run.
        level: share of studies whose interval should hold the true value.

    Raises:
        ConfigError: the horizon is not positive, or exceeds the time of all runs.
    """
    latest = float(times.steps.max())
    end = latest if horizon is None else float(horizon)
    if not 0.0 < end <= latest:
        raise ConfigError(f"`horizon` must be above 0 and at most {latest:g} steps, but got {end:g}.")
    t, events, at_risk = _life_table(times, end)
    survival = np.cumprod(1.0 - events / at_risk)
    widths = np.diff(np.concatenate([[0.0], t, [end]]))
    areas = np.concatenate([[1.0], survival]) * widths
    after = areas[::-1].cumsum()[::-1][1:]
    alive = at_risk - events
    terms = np.divide(after**2 * events, at_risk * alive, out=np.zeros_like(after), where=alive > 0)
    runs = len(times.steps)
    if runs == 1:
        return Interval(float(areas.sum()), float("-inf"), float("inf"))
    half = student_quantile(runs - 1, (1 + level) / 2) * np.sqrt(terms.sum() * runs / (runs - 1))
    return Interval(float(areas.sum()), float(areas.sum() - half), float(areas.sum() + half))


def _life_table(times: Times, end: float) -> tuple[Floats, Floats, Floats]:
    """Event times before the horizon, events at each, runs at risk at each."""
    t = np.unique(times.steps[times.reached & (times.steps < end)])
    events = (times.steps[times.reached] == t[:, None]).sum(axis=1)
    at_risk = (times.steps >= t[:, None]).sum(axis=1)
    return t, events.astype(np.float64), at_risk.astype(np.float64)


@takes(first=TIMES, second=TIMES)
def logrank_test(first: Times, second: Times) -> float:
    """Return the two-sided p-value of the log-rank test that two groups take equally long (``scipy.stats.logrank``).

    It treats the groups as independent: with positively correlated paired seeds it is conservative. It is a
    large-sample test. If no run of either group reached the threshold, p is 1.
    """
    from scipy import stats

    if not (first.reached.any() or second.reached.any()):
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        p = float(stats.logrank(first.censored(), second.censored()).pvalue)
    return 1.0 if np.isnan(p) else p
