"""Power analysis: the probability that a study with a given number of seeds detects a difference of a given size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import BELOW_HALF, FINITE, INSIDE, POSITIVE, optional, seed_number, takes, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.statistics.equivalence import EQUIVALENCE_SEEDS
from replaylab.statistics.interquartile_means import iqm_difference
from replaylab.statistics.paired import paired_test
from replaylab.statistics.permutation import is_exact, least_p
from replaylab.statistics.proportions import wilson_interval
from replaylab.statistics.resampling import COUNT, PAIRED, VALUES, Interval, as_pairs
from replaylab.statistics.simultaneous import decisions

_RESAMPLES = 1_000
"""Bootstrap resamples of each simulated study's interval."""


@dataclass(frozen=True)
class Power:
    """The power of a planned study: the probability that it rejects."""

    seeds: int
    chance: Interval
    """Its interval covers only the simulation error, not the uncertainty of a small pilot."""


MOST_SEEDS = 100_000


@takes(**PAIRED, seeds=whole(most=MOST_SEEDS), effect=optional(FINITE), alpha=INSIDE, comparisons=whole())
@takes(studies=COUNT, permutations=COUNT, seed=seed_number)
def power(
    treated: ArrayLike,
    baseline: ArrayLike,
    seeds: int,
    *,
    effect: float | None = None,
    alpha: float = 0.05,
    comparisons: int = 1,
    studies: int = 1_000,
    permutations: int = 1_000,
    seed: int = 0,
) -> Power:
    """Return the share of simulated studies in which `paired_test` rejects.

    Each study draws ``seeds`` pairs of the pilot with replacement, its treated runs shifted so that the pilot's
    difference of IQMs is ``effect``. With several comparisons the threshold is alpha / comparisons. A study corrects
    them by `max_t`, which has more power for runs without outliers, so this estimate is conservative. But `max_t` uses
    means: if about one run in ten fails completely, which hardly moves the IQMs, the study has less power than this.

    Args:
        treated: a pilot's runs, shape (N,).
        baseline: shape (N,), paired by position.
        seeds: number of seeds planned.
        effect: the difference to detect, in the unit of the return; by default that of the pilot.
        alpha: error rate of the complete family.
        comparisons: how many comparisons the study makes.
        studies: how many studies to simulate.
        permutations: of each test; the smallest p is 1 / (permutations + 1).
        seed: seed of the simulation and of its tests.

    Raises:
        ConfigError: no test of this size can reject.
        ShapeError: the pilot has fewer than two pairs.
    """
    a, b = as_pairs(treated, baseline)
    if len(a) < 2:
        raise ShapeError(f"A pilot must have at least two pairs, to estimate the spread, but got {len(a)}.")
    threshold = alpha / comparisons
    least = float(least_p(seeds)) if is_exact(seeds, permutations) else 1 / (permutations + 1)
    if least > threshold:
        raise ConfigError(
            f"A test of {seeds} pairs with {permutations:,} permutations cannot reach p <= {threshold:.2g}; its "
            f"smallest p is {least:.2g}. Take more seeds, more permutations, or fewer comparisons."
        )
    if effect is not None:
        a = a + (effect - float(iqm_difference(a, b)))
    draws = np.random.default_rng(seed).integers(0, len(a), size=(studies, seeds))
    p = [
        paired_test(a[i, 0], b[i, 0], resamples=_RESAMPLES, permutations=permutations, seed=k).p
        for k, i in enumerate(draws)
    ]
    return Power(seeds, _chance(np.count_nonzero(np.asarray(p) <= threshold), studies))


def _chance(count: int | np.intp, studies: int) -> Interval:
    """Return the share of simulated studies, with its interval."""
    return Interval(*map(float, wilson_interval(count, studies)))


@dataclass(frozen=True)
class ContrastPower:
    """The probabilities of the verdicts of a planned study on one contrast."""

    seeds: int

    different: Interval
    """Probability of the verdict "different from 0", with the correct sign if the effect is not 0."""

    equivalent: Interval
    """Probability of the verdict "equivalent within the bounds"."""


@takes(pilot=VALUES, seeds=whole(2, MOST_SEEDS), effect=FINITE, bound=POSITIVE, alpha=BELOW_HALF)
@takes(studies=COUNT, resamples=COUNT, seed=seed_number)
def contrast_power(
    pilot: ArrayLike,
    seeds: int,
    effect: float,
    bound: float,
    *,
    alpha: float = 0.05,
    studies: int = 2_000,
    resamples: int = 999,
    seed: int = 0,
) -> ContrastPower:
    """Return the rates at which a study with this many seeds would call a contrast different, and equivalent.

    Each study draws its seeds' contrasts from the pilot's with replacement, shifted so that their mean is ``effect``,
    and scaled by sqrt(n / (n - 1)), with n the pilot's seeds, to an unbiased variance. The verdict is that of a primary
    contrast: different if the interval of level 1 - alpha excludes 0 (`mean_intervals`), equivalent if that of level
    1 - 2 alpha is within ± ``bound``. It can be both: different, and within the margin. As in a study, no contrast is
    called different with so few seeds that sign flips cannot reach alpha (five at 5 %), and none is called equivalent
    with fewer than five.

    Args:
        pilot: a contrast of each pilot seed, shape (n,), n at least 2.
        seeds: number of seeds planned, at least 2.
        effect: the true mean, in the contrast's unit.
        bound: the equivalence margin.
        alpha: error rate, below 0.5.
        studies: how many studies to simulate.
        resamples: of each interval.
        seed: seed of the simulation and of its intervals.

    Raises:
        ConfigError: the pilot has fewer than two seeds.

    Examples:
        >>> chances = contrast_power([0.1, -0.2, 0.0, 0.3, -0.1], 120, effect=0.0, bound=0.05, studies=200)
        >>> chances.equivalent.estimate > 0.7
        True
    """
    contrasts = np.asarray(pilot, dtype=np.float64)
    if contrasts.ndim != 1 or len(contrasts) < 2:
        raise ConfigError(
            f"`pilot` must have the contrasts of at least two seeds, shape (n,), but has shape {contrasts.shape}."
        )
    centred = (contrasts - contrasts.mean()) * np.sqrt(len(contrasts) / (len(contrasts) - 1)) + effect
    draws = centred[np.random.default_rng(seed).integers(0, len(contrasts), size=(studies, seeds))][..., None]
    outer, inner = (decisions(draws, level=1.0 - k * alpha, resamples=resamples, seed=seed) for k in (1, 2))
    sign = np.sign(outer.estimate) == np.sign(effect) if effect else True
    different = np.count_nonzero((outer.p < alpha) & sign & (least_p(seeds) < alpha))
    equivalent = np.count_nonzero((inner.low > -bound) & (inner.high < bound) & (seeds >= EQUIVALENCE_SEEDS))
    return ContrastPower(seeds, _chance(different, studies), _chance(equivalent, studies))
