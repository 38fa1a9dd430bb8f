"""Results at a planned look: judged at the level of that look.

A p-value p of a look with level α_k is below it exactly where p · α/α_k is below α. So p-values are multiplied by
α/α_k, and everything that compares them with α stays as it is; an equivalence test has the interval of level 1 − 2 α_k.
Where so few runs cannot tell that, as at an early look, it has no ends, and nothing is equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from replaylab.statistics import Interval
from replaylab.statistics.bootstrap import resolves
from replaylab.statistics.permutation import least_p
from replaylab.study.spec.planned_looks import SIGNIFICANCE


def p_at_look(p: float, level: float) -> float:
    """Return a p-value as it is compared with α at a look of this level."""
    return min(1.0, p * (SIGNIFICANCE / level))


def inner_interval(error: float, runs: Sequence[NDArray[np.float64]], of: Callable[..., Interval]) -> Interval:
    """Return the interval of two one-sided tests, without ends where so few seeds cannot tell them.

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
    """Return the interval of a look's level, without ends where resamples cannot tell them.

    Args:
        level: 1 − α_k, say.
        runs: what ``of`` takes, each of shape (N,).
        of: gives the interval of these runs at a level.
    """
    if resolves(level, len(runs[0])):
        return of(*runs, level=level)
    return Interval(of(*runs).estimate, -np.inf, np.inf)
