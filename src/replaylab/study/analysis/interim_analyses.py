"""Results of an interim analysis, judged at the level of that analysis.

A p-value p of an analysis with level α_k is below it exactly if p · α/α_k is below α. So p-values are multiplied by
α/α_k, and everything that compares them with α is unchanged. An equivalence test uses the interval of level 1 − 2 α_k.
If an early analysis has too few runs for that level, the interval is infinite, and nothing is equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from replaylab.statistics import Interval
from replaylab.statistics.bootstrap import resolves
from replaylab.statistics.permutation import least_p
from replaylab.study.spec.interim_analyses import SIGNIFICANCE


def p_at_level(p: float, level: float) -> float:
    """Return a p-value of an interim analysis with this level, scaled so that it can be compared with α."""
    return min(1.0, p * (SIGNIFICANCE / level))


def inner_interval(error: float, runs: Sequence[NDArray[np.float64]], of: Callable[..., Interval]) -> Interval:
    """Return the interval of two one-sided tests, without ends where there are too few seeds for them.

    N values on one side of a bound are as likely as 1 in 2^N where their median is there, whatever is resampled.

    Args:
        error: of each of both tests.
        runs: what ``of`` takes, each of shape (N,).
        of: gives the interval of these runs at a level.
    """
    if float(least_p(len(runs[0]))) > 2.0 * error:
        return Interval(of(*runs).estimate, -np.inf, np.inf)
    return interval_at(1.0 - 2.0 * error, runs, of)


def interval_at(level: float, runs: Sequence[NDArray[np.float64]], of: Callable[..., Interval]) -> Interval:
    """Return the interval of an interim analysis's level; infinite if the resamples are too few for it.

    Args:
        level: for example 1 − α_k.
        runs: what ``of`` takes, each of shape (N,).
        of: gives the interval of these runs at a level.
    """
    if resolves(level, len(runs[0])):
        return of(*runs, level=level)
    return Interval(of(*runs).estimate, -np.inf, np.inf)
