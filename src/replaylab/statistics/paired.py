"""Whether two strategies' levels differ, over the same seeds: what a test and an interval say together."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike

from replaylab.arguments import INSIDE, optional, seed_number, takes
from replaylab.statistics.interquartile_means import paired_difference
from replaylab.statistics.permutation import PERMUTATIONS, paired_permutation_test
from replaylab.statistics.resampling import COUNT, NUMBERS, Interval, as_pairs, interval_p


class PairedTest(NamedTuple):
    """A difference of levels with its interval, and its p-value."""

    difference: Interval
    p: float


@takes(
    treated=NUMBERS,
    baseline=NUMBERS,
    level=INSIDE,
    resamples=optional(COUNT),
    permutations=COUNT,
    seed=seed_number,
)
def paired_test(
    treated: ArrayLike,
    baseline: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Return IQM(treated) - IQM(baseline) with its interval, and the p-value that both of them carry.

    The p-value is the larger of the interval's (`interval_p`) and that of `paired_permutation_test`. Where the two
    strategies do not differ in anything, the second alone keeps false alarms at most at what p says, at every number of
    seeds; where their levels are equal and their spreads are not, the first keeps them about there. So it is below
    1 - level only where the interval leaves out 0. docs/explanation/statistics.md has the false alarms of all three.

    Args:
        treated: shape (N,).
        baseline: shape (N,), paired by position.
        level: of the interval.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        permutations: patterns at most.
        seed: seed of resamples and patterns.

    Raises:
        ShapeError: the shapes differ, or are not (N,).

    Examples:
        >>> found = paired_test([480.0, 455, 490, 470, 500, 460], [430.0, 410, 425, 415, 433, 420])
        >>> found.p < 0.05 and found.difference.low > 0
        True
    """
    p = paired_permutation_test(treated, baseline, permutations=permutations, seed=seed)
    found = paired_difference(treated, baseline, level=level, resamples=resamples, seed=seed)
    return PairedTest(found, max(p, interval_p(found, len(as_pairs(treated, baseline)[0]), level=level)))
