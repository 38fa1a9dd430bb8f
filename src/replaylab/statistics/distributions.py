"""The normal distribution and Student's, by SciPy, which is imported when one is first asked for.

It takes as long to import as half of the rest, and a worker that trains, or `replaylab --help`, asks for none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def normal_share(x: ArrayLike) -> Floats:
    """Return the chance of at most x, Phi(x), of the normal distribution."""
    from scipy.special import ndtr

    return _floats(ndtr(_floats(x)))


def normal_quantile(share: ArrayLike) -> Floats:
    """Return the x of which `normal_share` is ``share``."""
    from scipy.special import ndtri

    return _floats(ndtri(_floats(share)))


def student_share(freedom: ArrayLike, t: ArrayLike) -> Floats:
    """Return the chance of at most t of Student's distribution with ``freedom`` degrees of freedom."""
    from scipy.special import stdtr

    return _floats(stdtr(_floats(freedom), _floats(t)))


def student_quantile(freedom: ArrayLike, share: ArrayLike) -> Floats:
    """Return the t of which `student_share` is ``share``."""
    from scipy.special import stdtrit

    return _floats(stdtrit(_floats(freedom), _floats(share)))


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
