"""A number of each seed, several of these as a table, and what is left of their p-values when they are one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.statistics import Interval


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
    seeds = np.unique(np.concatenate([one.seeds for one in each]))
    table = np.full((len(seeds), len(each)), np.nan)
    for column, one in zip(table.T, each, strict=True):
        column[np.searchsorted(seeds, one.seeds)] = one.values
    return table


def corrected(each: Sequence[SeedValues], sizes: Sequence[Interval]) -> NDArray[np.float64]:
    """Return the max-T p-values of a family, shape (K,), each |t| being at most what its interval says, and p at least.

    |t| is of a mean, and counts as 0 where that has not the sign of the interval's estimate. One that lacks a seed
    takes part with those it has; one with a single seed does not, and has 1.
    """
    p = np.ones(len(each))
    told = [k for k, one in enumerate(each) if len(one.seeds) > 1]
    if told:
        of = [(sizes[k], len(each[k].seeds)) for k in told]
        agree = [each[k].values.mean() * sizes[k].estimate > 0.0 for k in told]
        limits = np.where(agree, [statistics.interval_t(*one) for one in of], 0.0)
        found = statistics.max_t(table_of([each[k] for k in told]), limits=limits)
        p[told] = np.maximum(found, [statistics.interval_p(*one) for one in of])
    return p
