"""How many seeds a study needs: the chance that it finds a difference of a given size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from replaylab.arguments import FINITE, INSIDE, optional, seed_number, takes, whole
from replaylab.errors import ConfigError
from replaylab.statistics.interquartile_means import iqm_difference
from replaylab.statistics.paired import paired_test
from replaylab.statistics.proportions import wilson_interval
from replaylab.statistics.resampling import COUNT, NUMBERS, Interval, as_pairs

_RESAMPLES = 1_000
"""Of each simulated study's interval."""


@dataclass(frozen=True)
class Power:
    """The chance that a planned study shows the difference."""

    seeds: int
    chance: Interval
    """Its interval is the simulation's own error; that of a small pilot comes on top."""


MOST_SEEDS = 100_000


@takes(
    treated=NUMBERS,
    baseline=NUMBERS,
    seeds=whole(most=MOST_SEEDS),
    effect=optional(FINITE),
    alpha=INSIDE,
    comparisons=whole(),
    studies=COUNT,
    permutations=COUNT,
    seed=seed_number,
)
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

    Each study draws ``seeds`` pairs of the pilot with replacement, its treated runs moved so that the pilot's
    difference of IQMs is ``effect``. With several comparisons the threshold is alpha / comparisons, Holm's first
    step, so the answer errs to the careful side.

    Args:
        treated: a pilot's runs, shape (N,).
        baseline: shape (N,), paired by position.
        seeds: number of seeds planned.
        effect: the difference to find, in the unit of the return; by default the pilot's own.
        alpha: error rate of the whole family.
        comparisons: how many comparisons the study makes.
        studies: how many studies to simulate.
        permutations: of each test; the smallest p is 1 / (permutations + 1).
        seed: seed of everything.

    Raises:
        ConfigError: no test of this size could ever reject.
    """
    a, b = as_pairs(treated, baseline)
    threshold = alpha / comparisons
    least = 2 / 2**seeds if 2**seeds <= permutations else 1 / (permutations + 1)
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
    found = wilson_interval(np.count_nonzero(np.asarray(p) <= threshold), studies)
    return Power(seeds, Interval(float(found.estimate), float(found.low), float(found.high)))
