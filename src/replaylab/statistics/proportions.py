"""Success rates with Wilson's score intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import INSIDE, reals, takes
from replaylab.errors import ConfigError
from replaylab.statistics.distributions import normal_quantile
from replaylab.statistics.resampling import Floats


class Shares(NamedTuple):
    """Success rates with their intervals, each of the shape of the counts."""

    estimate: Floats
    low: Floats
    high: Floats


@takes(successes=reals(), trials=reals(), level=INSIDE)
def wilson_interval(successes: ArrayLike, trials: ArrayLike, *, level: float = 0.95) -> Shares:
    """Return success rates with Wilson's score interval, which stays sensible at 0, at 1, and for few trials.

    With p = successes / n and z the normal (1 + level) / 2 quantile,
    (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n) (Wilson 1927,
    https://doi.org/10.1080/01621459.1927.10502953). Trials must be independent: runs, not episodes of one run.

    Args:
        successes: any shape.
        trials: of a shape that broadcasts with it.
        level: share of studies whose interval should hold the true rate.

    Raises:
        ConfigError: 0 <= successes <= trials does not hold, or trials is 0.

    Examples:
        >>> rate = wilson_interval(10, 10)
        >>> float(rate.estimate), round(float(rate.low), 3), float(rate.high)
        (1.0, 0.722, 1.0)
    """
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not ((k >= 0) & (k <= n) & (n > 0)).all():
        raise ConfigError(
            f"0 <= `successes` <= `trials` and `trials` > 0 must hold, but got {k.tolist()} of {n.tolist()}."
        )
    p, z = k / n, float(normal_quantile((1 + level) / 2))
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low = np.where(k == 0, 0.0, np.maximum(centre - half, 0.0))
    return Shares(p, low, np.where(k == n, 1.0, np.minimum(centre + half, 1.0)))
