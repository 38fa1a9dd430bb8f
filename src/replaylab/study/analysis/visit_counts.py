"""Visits of states in a tabular study: each strategy's share of time in each state, against the baseline's.

For each seed the counts of a run become shares. Two questions are tested, both by permutation within seeds:

* whether two strategies differ in where they go at all: the total variation distance of their mean shares
  (`replaylab.statistics.share_distance_test`), Holm-corrected over all comparisons of the study;
* in which states they do: |t| of each state's paired difference, max-T-corrected over all states (`max_t`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.learners.metrics import VISITS, visit_counts
from replaylab.study.analysis.seed_values import StrategyResult, StrategyRuns, by_strategy, pairs_with_baseline

if TYPE_CHECKING:
    import duckdb

    from replaylab.study.spec.spec import Spec

_MOST_NUMBERS = 2_000_000
"""Statistics of states times sign patterns: with many states fewer patterns are drawn, to bound the memory."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StrategyVisits(StrategyRuns):
    """The visited states of the runs of one strategy, on one environment with one learner."""

    counts: Floats
    """Steps taken in each state, shape (N, S)."""

    @property
    def shares(self) -> Floats:
        """Share of a run's steps taken in each state, shape (N, S)."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    def at(self, cells: NDArray[np.intp], number: int) -> StrategyVisits:
        """Return the visits of places that hold several states each.

        Args:
            cells: the place of each state, shape (S,).
            number: of places.
        """
        return replace(self, counts=self.counts @ (cells[:, None] == np.arange(number)))


@dataclass(frozen=True)
class VisitDifference(StrategyResult):
    """A strategy's visits against the baseline's, on the seeds that both have."""

    baseline: str
    seeds: int
    distance: float
    """Total variation distance of the mean shares: the share of visits that are to other states, 0 to 1."""

    p: float
    p_holm: float


def visits_of(rows: duckdb.DuckDBPyRelation, spec: Spec) -> list[StrategyVisits]:
    """Return the visits of every strategy, in the order of the study file; empty where nothing counted them."""
    each = []
    for key, columns in by_strategy(rows.filter(f"starts_with(metric, '{VISITS}')"), spec):
        seeds, counts = visit_counts(*(columns[name] for name in ("seed", "metric", "value")))
        acted = counts.sum(axis=1) > 0
        each.append(StrategyVisits(*key, seeds[acted], counts[acted]))
    return [visits for visits in each if len(visits.seeds)]


def paired_visits(visits: Sequence[StrategyVisits], baseline: str) -> list[tuple[StrategyVisits, StrategyVisits]]:
    """Return each strategy's visits with the baseline's, both on the seeds that both have."""
    pairs = []
    for compared, base in pairs_with_baseline(visits, baseline):
        seeds, rows, base_rows = np.intersect1d(compared.seeds, base.seeds, return_indices=True)
        sides = ((compared, rows), (base, base_rows))
        shared_visits, base_visits = (replace(side, seeds=seeds, counts=side.counts[common]) for side, common in sides)
        pairs.append((shared_visits, base_visits))
    return pairs


def visit_differences(visits: Sequence[StrategyVisits], baseline: str) -> list[VisitDifference]:
    """Return how far each strategy's visits are from the baseline's, tested, and Holm-corrected over all of them."""
    differences = []
    for compared, base in paired_visits(visits, baseline):
        distance, p = statistics.share_distance_test(compared.counts, base.counts)
        differences.append(VisitDifference(*compared.key, baseline, len(compared.seeds), distance, p, p))
    corrected = statistics.holm([d.p for d in differences])
    return [replace(d, p_holm=float(p)) for d, p in zip(differences, corrected, strict=True)]


def state_p_values(compared: StrategyVisits, base: StrategyVisits) -> Floats:
    """Return the max-T-corrected p-value of each state's difference in share, shape (S,); 1 with a single seed.

    States that neither strategy ever visited take no part, and have 1.
    """
    difference = compared.shares - base.shares
    p = np.ones(difference.shape[1])
    seen = (compared.counts + base.counts).sum(axis=0) > 0
    if len(difference) > 1:
        permutations = min(statistics.PERMUTATIONS, max(2_000, _MOST_NUMBERS // int(seen.sum())))
        p[seen] = statistics.max_t(difference[:, seen], permutations=permutations)
    return p
