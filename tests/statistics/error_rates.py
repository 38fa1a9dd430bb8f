"""Rates at which equal levels are called different in simulated studies: docs/explanation/statistics-appendix.md.

    python -m tests.statistics.error_rates            # all of it: 2,000 studies a cell, some minutes
    python -m tests.statistics.error_rates 200        # quick

Every distribution is moved so that its IQM is 0, and one strategy's is stretched: the levels are equal, the spreads
are not. The two runs of a seed correlate as in `tests.statistics.coverage`.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

from replaylab import statistics as st
from replaylab.statistics.resampling import interval_p, interval_t
from tests.statistics.coverage import DISTRIBUTIONS, RHO, Floats, true_iqm

SPREADS = (1, 2, 5)
SEEDS = (5, 10, 30)
NAMES = ("normal", "half lost", "30 % lost", "lognormal")
PERMUTATIONS = 999
RESAMPLES = 1_000
CONTRASTS = 5
ANALYSES = (10, 20, 30)


@cache
def level_of(distribution: str) -> float:
    return true_iqm([distribution])


def draw(distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Runs (..., N) of level 0, in the last axis but one correlated through what the seed shares."""
    z = np.sqrt(RHO) * rng.normal(size=shape[-1]) + np.sqrt(1 - RHO) * rng.normal(size=shape)
    return DISTRIBUTIONS[distribution](z) - level_of(distribution)


def pairs(distribution: str, spread: float, seeds: int, studies: int) -> Floats:
    """Shares of studies that call two equal levels different: by swaps, by the interval, by `paired_test`."""
    rng = np.random.default_rng(seeds)
    rejected = np.zeros(3)
    for k in range(studies):
        treated, baseline = draw(distribution, (2, seeds), rng)
        treated = spread * treated
        swapped = st.paired_permutation_test(treated, baseline, permutations=PERMUTATIONS, seed=k)
        interval = interval_p(st.paired_difference(treated, baseline, resamples=RESAMPLES, seed=k), seeds)
        rejected += np.array([swapped, interval, max(swapped, interval)]) < 0.05
    return rejected / studies


def families(distribution: str, seeds: int, studies: int) -> Floats:
    """Shares of studies that answer one contrast of level 0, or any of several: by flips, and with the intervals."""
    rng = np.random.default_rng(seeds)
    rejected = np.zeros(4)
    for k in range(studies):
        each = draw(distribution, (CONTRASTS, seeds), rng).T
        intervals = [st.bootstrap_interval(column, resamples=RESAMPLES, seed=k) for column in each.T]
        limits = [interval_t(interval, seeds) for interval in intervals]
        alone = st.max_t(each[:, :1], permutations=PERMUTATIONS, seed=k)[0]
        together = st.max_t(each, permutations=PERMUTATIONS, seed=k).min()
        agreed = st.max_t(each, limits=limits, permutations=PERMUTATIONS, seed=k).min()
        rejected += np.array([alone, max(alone, interval_p(intervals[0], seeds)), together, agreed]) < 0.05
    return rejected / studies


def repeated_analyses(distribution: str, seeds: tuple[int, ...], studies: int) -> Floats:
    """Shares of studies of two strategies alike that are called different at one of the first 1, 2, ... analyses."""
    rng = np.random.default_rng(len(seeds))
    rejected = np.zeros(len(seeds))
    for k in range(studies):
        both = draw(distribution, (2, seeds[-1]), rng)
        shown = [
            st.paired_test(*both[:, :n], permutations=PERMUTATIONS, resamples=RESAMPLES, seed=k).p < 0.05 for n in seeds
        ]
        rejected += np.logical_or.accumulate(shown)
    return rejected / studies


def main(studies: int) -> None:
    """Print the tables."""
    columns = [f"{spread}, {seeds}" for spread in SPREADS for seeds in SEEDS]
    print(f"| sampling distribution | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}", flush=True)
    for distribution in NAMES:
        cells = [100 * pairs(distribution, spread, seeds, studies) for spread in SPREADS for seeds in SEEDS]
        print(f"| {distribution} |", " | ".join(f"{c[2]:.1f} ({c[0]:.1f}; {c[1]:.1f})" for c in cells), "|", flush=True)
    print(f"| sampling distribution | {' | '.join(f'{seeds} seeds' for seeds in SEEDS)} |\n|---|{'---|' * len(SEEDS)}")
    for distribution in NAMES:
        cells = [100 * families(distribution, seeds, studies) for seeds in SEEDS]
        print(
            f"| {distribution} |",
            " | ".join(f"{c[1]:.1f} ({c[0]:.1f}); {c[3]:.1f} ({c[2]:.1f})" for c in cells),
            "|",
            flush=True,
        )
    for distribution in NAMES:
        print(
            f"{distribution}: analyses with {ANALYSES} seeds:",
            *(f"{100 * share:.1f}" for share in repeated_analyses(distribution, ANALYSES, studies)),
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
