"""Coverage of the intervals in simulated studies: docs/explanation/statistics-appendix.md.

    python -m tests.statistics.coverage            # all of it: 2,000 studies a cell, two minutes
    python -m tests.statistics.coverage 200        # quick

Runs are drawn through a normal copula, so that the two runs of a seed correlate: each distribution below is a function
of a standard normal number, and the numbers of a seed correlate by ``RHO``. A cell of the table is a distribution for a
level, or two guarantees for a paired difference; the truth is the IQM of the sampling distribution itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from replaylab.statistics.bootstrap import smooth_ends
from replaylab.statistics.interquartile_means import iqm_difference, pooled_iqm
from replaylab.statistics.resampling import ends, resample, tail

Floats = NDArray[np.float64]
RHO = 0.5
SEEDS = (5, 10, 30)
RESAMPLES = 1_000


def lost_and_won(share: float) -> Callable[[Floats], Floats]:
    """CartPole as it comes: a share of runs near 120, the others near 470 and never above 500."""

    def distribution(z: Floats) -> Floats:
        u = np.clip(stats.norm.cdf(z), 1e-9, 1 - 1e-9)
        low = 120 + 40 * stats.norm.ppf(np.clip(u / share, 1e-9, 1 - 1e-9))
        high = 470 + 30 * stats.norm.ppf(np.clip((u - share) / (1 - share), 1e-9, 1 - 1e-9))
        return np.where(u < share, low, np.minimum(high, 500))

    return distribution


DISTRIBUTIONS: dict[str, Callable[[Floats], Floats]] = {
    "normal": lambda z: z,
    "lognormal": np.exp,
    "t, 3 degrees": lambda z: stats.t.ppf(stats.norm.cdf(z), 3),
    "ceiling": lambda z: np.minimum(500, 430 + 150 * z),
    "half lost": lost_and_won(0.5),
    "30 % lost": lost_and_won(0.3),
}

LEVELS: list[Sequence[str]] = [*([distribution] for distribution in DISTRIBUTIONS), ["ceiling", "half lost", "ceiling"]]
DIFFERENCES: list[tuple[Sequence[str], Sequence[str]]] = [
    (["normal"], ["normal"]),
    (["lognormal"], ["t, 3 degrees"]),
    (["ceiling"], ["ceiling"]),
    (["ceiling"], ["half lost"]),
    (["half lost"], ["half lost"]),
    (["30 % lost"], ["half lost"]),
    (["ceiling", "half lost", "ceiling"], ["half lost", "30 % lost", "ceiling"]),
]


def true_iqm(distributions: Sequence[str]) -> float:
    """The IQM of the sampling distributions' even mixture, by 400,000 quantiles of each."""
    z = stats.norm.ppf((np.arange(400_000) + 0.5) / 400_000)
    return float(pooled_iqm(np.column_stack([DISTRIBUTIONS[distribution](z) for distribution in distributions])))


def draw(distributions: Sequence[str], shared: Floats, rng: np.random.Generator) -> Floats:
    """Runs (N, M), correlated through what the seed shares."""
    z = np.sqrt(RHO) * shared + np.sqrt(1 - RHO) * rng.normal(size=shared.shape)
    return np.column_stack([DISTRIBUTIONS[distribution](z[:, m]) for m, distribution in enumerate(distributions)])


def coverage(treated: Sequence[str], baseline: Sequence[str] | None, runs: int, studies: int) -> tuple[float, float]:
    """The share of studies whose 95 % interval holds the truth: calibrated, and plain percentile."""
    rng = np.random.default_rng(runs)
    truth = true_iqm(treated) - (true_iqm(baseline) if baseline else 0.0)
    held = [0, 0]
    for _ in range(studies):
        shared = rng.normal(size=(runs, len(treated)))
        groups = [draw(distributions, shared, rng) for distributions in (treated, baseline) if distributions]
        statistic = iqm_difference if baseline else pooled_iqm
        samples = resample(statistic, *groups, resamples=RESAMPLES, rng=rng)
        for i, calibrated in enumerate((True, False)):
            share = tail(0.95, runs, len(treated), difference=baseline is not None, calibrated=calibrated)
            low, high = smooth_ends(np.sort(samples), share) if calibrated else ends(samples, share)
            held[i] += low - 1e-9 <= truth <= high + 1e-9
    return held[0] / studies, held[1] / studies


def main(studies: int) -> None:
    """Print the table."""
    print("| what | 5 seeds | 10 seeds | 30 seeds |\n|---|---|---|---|")
    for treated, baseline in [*((distribution, None) for distribution in LEVELS), *DIFFERENCES]:
        name = ", ".join(treated) + (f" − {', '.join(baseline)}" if baseline else "")
        cells = [coverage(treated, baseline, runs, studies) for runs in SEEDS]
        print(f"| {name} |", " | ".join(f"{100 * new:.1f} ({100 * old:.1f})" for new, old in cells), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
