"""Summaries of learning curves: area under the curve, values on a step grid, normalised scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import FINITE, reals, takes
from replaylab.errors import ConfigError
from replaylab.statistics.resampling import NUMBERS, Floats


@takes(steps=reals("T", leading=False), values=reals("T"))
def area_under_curve(steps: ArrayLike, values: ArrayLike) -> Floats:
    """Return the normalised area under learning curves: the time average of the values, in their unit.

    area = 1 / (x_T - x_1) * sum over t of (x_{t+1} - x_t) (y_t + y_{t+1}) / 2, the trapezoid rule.

    Args:
        steps: shape (T,), increasing.
        values: shape (..., T).

    Raises:
        ConfigError: the steps decrease somewhere, or are all equal.
    """
    x = _in_order(steps)
    y = np.asarray(values, dtype=np.float64)
    if len(x) == 1:
        return np.asarray(y[..., 0])
    if x[-1] == x[0]:
        raise ConfigError(f"`steps` must increase, but are all {x[0]:g}.")
    return np.asarray(np.trapezoid(y, x, axis=-1) / (x[-1] - x[0]))


@takes(steps=reals("n", leading=False), values=reals("n", leading=False), grid=reals("T", leading=False))
def on_grid(steps: ArrayLike, values: ArrayLike, grid: ArrayLike) -> Floats:
    """Return a run's irregular series on a step grid: at each grid point the newest value logged up to it.

    Points before the first logged value take that first value, so every run has every point.

    Args:
        steps: shape (n,), non-decreasing, n >= 1.
        values: shape (n,).
        grid: shape (T,).

    Raises:
        ConfigError: the steps decrease somewhere.
    """
    x = _in_order(steps)
    newest = np.searchsorted(x, np.asarray(grid), side="right") - 1
    return np.asarray(values, dtype=np.float64)[np.maximum(newest, 0)]


def _in_order(steps: ArrayLike) -> Floats:
    x = np.asarray(steps, dtype=np.float64)
    if not (np.diff(x) >= 0).all():
        first = int(np.argmin(np.diff(x) >= 0))
        raise ConfigError(
            f"`steps` must not decrease, but {x[first]:g} is followed by {x[first + 1]:g}; sort them before."
        )
    return x


@takes(values=NUMBERS, low=FINITE, high=FINITE)
def normalised_score(values: ArrayLike, low: float, high: float) -> Floats:
    """Return (x - low) / (high - low): 0 at ``low``, 1 at ``high``, so that environments can be averaged.

    Args:
        values: shape (...), in the unit of ``low`` and ``high``.
        low: the return of random actions, for instance.
        high: the return of a good agent, for instance; must differ from ``low``.

    Raises:
        ConfigError: ``low`` equals ``high``.

    Examples:
        >>> normalised_score([-200.0, -110.0], low=-200.0, high=-100.0).tolist()
        [0.0, 0.9]
    """
    if low == high:
        raise ConfigError(f"`low` and `high` must differ, but got {low=} and {high=}.")
    return np.asarray((np.asarray(values, dtype=np.float64) - low) / (high - low))
