"""Cumulative distributions and quantiles of the normal and Student's distributions, by SciPy.

SciPy is imported at the first call: importing it takes about half as long as importing everything else, and neither
training workers nor `replaylab --help` need it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def normal_share(x: ArrayLike) -> Floats:
    """Return the normal distribution function, Phi(x)."""
    from scipy.special import ndtr

    return _floats(ndtr(_floats(x)))


def normal_quantile(share: ArrayLike) -> Floats:
    """Return the normal quantile: the x whose `normal_share` is ``share``."""
    from scipy.special import ndtri

    return _floats(ndtri(_floats(share)))


def student_share(freedom: ArrayLike, t: ArrayLike) -> Floats:
    """Return the distribution function at t of Student's distribution with ``freedom`` degrees of freedom."""
    from scipy.special import stdtr

    return _floats(stdtr(_floats(freedom), _floats(t)))


def student_quantile(freedom: ArrayLike, share: ArrayLike) -> Floats:
    """Return the quantile of Student's distribution: the t whose `student_share` is ``share``."""
    from scipy.special import stdtrit

    return _floats(stdtrit(_floats(freedom), _floats(share)))


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
