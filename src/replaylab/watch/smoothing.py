"""Moving averages over episodes, for all seeds at once."""

import math

import numpy as np
import numpy.typing as npt

from replaylab.arguments import number, reals, takes, whole

Floats = npt.NDArray[np.float64]


@takes(values=reals("T"), span=number("at least 1", lambda span: 1.0 <= span < math.inf))
def ewma(values: npt.ArrayLike, span: float = 100.0) -> Floats:
    """Return the exponentially weighted moving average along the last axis.

    ``y_t = Σᵢ (1−α)ⁱ x_{t−i} / Σᵢ (1−α)ⁱ`` for i = 0 … t, with α = 2/(span + 1): unlike in a plain recursion, the
    first values are not weighted too much. It equals pandas' ``ewm(span=span, adjust=True).mean()`` if no value is
    missing; after a NaN all results are NaN.

    Args:
        values: (..., T).
        span: At least 1; half of the weight is on about the last ``span / 3`` values.

    Returns:
        float64 (..., T).

    Example:
        >>> ewma([1.0, 2.0, 3.0], span=3).round(4).tolist()
        [1.0, 1.6667, 2.4286]
    """
    from scipy.signal import lfilter  # takes a second, also in worker processes that smooth nothing

    x = np.asarray(values, np.float64)
    keep = 1.0 - 2.0 / (span + 1.0)
    if keep == 1.0:  # the span is so long that all weights are equal
        return running_mean(x, x.shape[-1])
    weights = (1.0 - keep ** np.arange(1, x.shape[-1] + 1)) / (1.0 - keep)
    sums: Floats = lfilter([1.0], [1.0, -keep], x, axis=-1)
    return sums / weights


@takes(values=reals("T"), window=whole())
def running_mean(values: npt.ArrayLike, window: int = 100) -> Floats:
    """Return the mean of the last `window` values along the last axis, at the beginning of all values so far.

    It uses running sums: after a NaN or an infinite value all results are NaN, and after a huge value small ones lose
    precision.

    Args:
        values: (..., T).
        window: At least 1.

    Returns:
        float64 (..., T).

    Example:
        >>> running_mean([1.0, 2.0, 3.0, 7.0], window=2).tolist()
        [1.0, 1.5, 2.5, 5.0]
    """
    sums = np.cumsum(np.asarray(values, np.float64), axis=-1)
    means: Floats = sums / np.minimum(np.arange(1, sums.shape[-1] + 1), window)
    means[..., window:] = (sums[..., window:] - sums[..., :-window]) / window
    return means
