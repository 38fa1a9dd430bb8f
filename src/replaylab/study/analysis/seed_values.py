"""Results by strategy and by seed: grouping of rows, pairs with the baseline, corrected p-values of a family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.statistics import Interval

if TYPE_CHECKING:
    import duckdb

    from replaylab.study.spec.spec import Spec


@dataclass(frozen=True)
class StrategyResult:
    """Something of one strategy, on one environment with one learner."""

    environment: str
    learner: str
    strategy: str

    @property
    def cell(self) -> tuple[str, str]:
        """The environment and the learner: what comparisons stay within."""
        return self.environment, self.learner

    @property
    def key(self) -> tuple[str, str, str]:
        """The environment, the learner and the strategy."""
        return self.environment, self.learner, self.strategy


@dataclass(frozen=True)
class StrategyRuns(StrategyResult):
    """Something of each run of a strategy, on one environment with one learner."""

    seeds: NDArray[np.int64]
    """Shape (N,), increasing."""


R = TypeVar("R", bound=StrategyRuns)

KEYS = ("environment", "learner", "strategy")
"""Columns that identify the runs of a row."""


def by_strategy(
    rows: duckdb.DuckDBPyRelation, spec: Spec
) -> Iterator[tuple[tuple[str, str, str], dict[str, NDArray[Any]]]]:
    """Yield each environment, learner and strategy that has rows, with their columns, in the order of the study file.

    Rows are ordered by seed and step.
    """
    columns = {k: np.asarray(column) for k, column in rows.order(f"{', '.join(KEYS)}, seed, step").fetchnumpy().items()}
    labels = [columns[name] for name in KEYS]
    begins = np.flatnonzero(np.any([label[1:] != label[:-1] for label in labels], axis=0)) + 1
    parts = np.split(np.arange(len(labels[0])), begins) if len(labels[0]) else []
    part_of = {tuple(str(label[part[0]]) for label in labels): part for part in parts}
    for key in product(spec.environments, spec.learners, spec.strategies):
        if key in part_of:
            yield key, {name: column[part_of[key]] for name, column in columns.items()}


def pairs_with_baseline(results: Sequence[R], baseline: str) -> Iterator[tuple[R, R]]:
    """Yield each strategy's runs with the baseline's of the same environment and learner, if they share a seed."""
    bases = {result.cell: result for result in results if result.strategy == baseline}
    for result in results:
        base = bases.get(result.cell)
        if base is not None and result is not base and np.isin(result.seeds, base.seeds).any():
            yield result, base


@dataclass(frozen=True)
class SeedValues:
    """A number of each seed: a contrast's c_s, a cell's runs, or how two strategies differ."""

    seeds: NDArray[np.int64]
    """Shape (N,), increasing."""

    values: NDArray[np.float64]
    """Shape (N,)."""

    def at(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values of some of the seeds."""
        return self.values[np.searchsorted(self.seeds, seeds)]


def table_of(each: Sequence[SeedValues]) -> NDArray[np.float64]:
    """Return them as one array, seeds by comparisons, NaN where one lacks a seed."""
    seeds = np.unique(np.concatenate([comparison.seeds for comparison in each]))
    table = np.full((len(seeds), len(each)), np.nan)
    for column, comparison in zip(table.T, each, strict=True):
        column[np.searchsorted(seeds, comparison.seeds)] = comparison.values
    return table


def corrected(each: Sequence[SeedValues], sizes: Sequence[Interval]) -> NDArray[np.float64]:
    """Return the max-T p-values of a family, shape (K,), each |t| being at most what its interval says, and p at least.

    |t| is of a mean, and counts as 0 where that has not the sign of the interval's estimate. A contrast without some of
    the seeds uses those it has; one with a single seed is left out, and has p = 1.
    """
    p = np.ones(len(each))
    tested = [k for k, comparison in enumerate(each) if len(comparison.seeds) > 1]
    if tested:
        counted = [(sizes[k], len(each[k].seeds)) for k in tested]
        agree = [each[k].values.mean() * sizes[k].estimate > 0.0 for k in tested]
        limits = np.where(agree, [statistics.interval_t(size, seeds) for size, seeds in counted], 0.0)
        p_max_t = statistics.max_t(table_of([each[k] for k in tested]), limits=limits)
        p[tested] = np.maximum(p_max_t, [statistics.interval_p(size, seeds) for size, seeds in counted])
    return p
