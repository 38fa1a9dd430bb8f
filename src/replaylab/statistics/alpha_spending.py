"""Significance levels of planned interim analyses, by α-spending functions.

A study that is analysed K times, with more seeds each time, and stopped at the first significant result has K chances
of a false alarm. An α-spending function α*(t) limits the error used until a share t of the planned seeds has been run
(Lan & DeMets 1983, "Discrete sequential boundaries for clinical trials", Biometrika). Analysis k is tested at level
α*(t_k) − α*(t_{k−1}).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import INSIDE, one_of, reals, takes
from replaylab.errors import ConfigError
from replaylab.statistics.distributions import normal_quantile, normal_share
from replaylab.statistics.resampling import Floats

Spending = Literal["obrien_fleming", "pocock"]


@takes(shares=reals("K", leading=False), spending=one_of(*get_args(Spending)), alpha=INSIDE)
def interim_levels(shares: ArrayLike, spending: Spending = "obrien_fleming", alpha: float = 0.05) -> Floats:
    """Return the significance level of each interim analysis, (K,): analysis k rejects if its p-value is below it.

    With z the normal quantile at 1 − α/2,

        obrien_fleming: α*(t) = 2 − 2Φ(z / √t)     little at first, most at the last analysis
        pocock:         α*(t) = α ln(1 + (e − 1) t)  about as much at each analysis

    The levels add up to at most α. By Bonferroni's inequality the probability of any false alarm in any analysis is
    therefore at most α. This holds however the analyses depend on each other, and also if each analysis corrects its
    p-values for several comparisons (Holm, max-T). Boundaries that assume normal test statistics of one comparison are
    less strict later: of three equally spaced analyses the last has .034 here, and .045 with O'Brien and Fleming's.

    Args:
        shares: Share of the planned number of seeds that has been run at each analysis, increasing, in (0, 1].
        spending: The α-spending function.
        alpha: α, the error of all analyses together.

    Raises:
        ConfigError: The shares are not increasing, or not in (0, 1].

    Examples:
        >>> interim_levels([1.0]).round(4).tolist()
        [0.05]
        >>> interim_levels([1 / 3, 2 / 3, 1]).round(4).tolist()
        [0.0007, 0.0157, 0.0336]
    """
    t = np.asarray(shares, dtype=np.float64)
    if not len(t) or t[0] <= 0.0 or t[-1] > 1.0 or not (np.diff(t) > 0.0).all():
        raise ConfigError(f"`shares` must be increasing numbers in (0, 1], but got {t.tolist()}")
    pocock = spending == "pocock"
    spent = (
        alpha * np.log1p((np.e - 1.0) * t) if pocock else 2.0 * normal_share(normal_quantile(alpha / 2.0) / np.sqrt(t))
    )
    return np.diff(spent, prepend=0.0)
