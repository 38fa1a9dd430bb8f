"""The numbers of a report: curves, levels, paired differences, budgets.

Two measures of a run, both in the unit of the return:

* **final**: the mean of its evaluations in the last `FINAL_SHARE` of the budget;
* **area**: the time-average of its evaluations (normalised area under the learning curve) over the budget; where
  strategies have unlike budgets, over the part that all of that environment and learner have, so that like is compared
  with like.

Differences are against the study's baseline, within one environment and learner, over the seeds both have.
The correction, by max-T, is over all comparisons of one measure in the study: a seed's runs of all strategies and
environments change sides together. Where the study file declares which differences do not matter, a strategy is
equivalent to the baseline if an interval wide enough for all such comparisons of the measure lies within the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.statistics import Bounds, Equivalence, Interval
from replaylab.statistics.bootstrap import resolves
from replaylab.statistics.permutation import least_p
from replaylab.study.analysis import seed_values
from replaylab.study.analysis.seed_values import SeedValues, StrategyResult, StrategyRuns
from replaylab.study.plan import Chunk
from replaylab.study.spec.declared_contrasts import RETURN as RETURN
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb

Measure = Literal["final", "area"]
MEASURES: tuple[Measure, ...] = ("final", "area")

SIGNIFICANCE = 0.05
"""The error of a study's tests."""

FINAL_SHARE = 0.1
"""Evaluations in this last part of the budget make the final level; at least the last one."""

_MOST_POINTS = 200
"""Points of a curve whose runs share no common steps."""


@dataclass(frozen=True)
class Curve(StrategyRuns):
    """All runs of one strategy, on one environment with one learner."""

    steps: NDArray[np.int64]
    """Shape (T,), environment steps, or episodes, as the budget counts."""

    values: NDArray[np.float64]
    """Shape (N, T)."""

    shared: float = np.inf
    """The smallest budget of its environment's and learner's strategies that have such a curve."""

    def of_runs(self, measure: Measure) -> NDArray[np.float64]:
        """Return the measure of every run, shape (N,)."""
        if measure == "area":
            return self._area()
        late = (self.steps > (1.0 - FINAL_SHARE) * self.steps[-1]) | (self.steps == self.steps[-1])
        return np.asarray(self.values[:, late].mean(axis=1))

    def _area(self) -> NDArray[np.float64]:
        """Return the average over training up to the shared budget; where nothing is within that, there is none."""
        k = int(np.searchsorted(self.steps, self.shared, "right"))
        if k == 0:
            return np.full(len(self.seeds), np.nan)
        steps, values = self.steps[:k], self.values[:, :k]
        if k < len(self.steps) and steps[-1] < self.shared:  # it continues: to what lies between two of its points
            share = (self.shared - steps[-1]) / (self.steps[k] - steps[-1])
            last = values[:, -1:] * (1.0 - share) + self.values[:, k : k + 1] * share
            steps, values = np.append(steps, self.shared), np.hstack([values, last])
        if steps[0] == steps[-1]:  # points within one episode, of a budget in episodes
            return np.asarray(values.mean(axis=1))
        return statistics.area_under_curve(steps, values)


@dataclass(frozen=True)
class MeasureResult(StrategyResult):
    """Something of one strategy by one measure, on one environment with one learner."""

    measure: Measure


@dataclass(frozen=True)
class Level(MeasureResult):
    """The level of a strategy by one measure."""

    runs: int
    iqm: statistics.Interval


@dataclass(frozen=True)
class ReportedInterval:
    """The interval that is printed beside a verdict."""

    interval: Interval
    label: str
    """Its level in words, such as "90 %"; "uncorrected" if the verdict is corrected for more comparisons than it is."""


UNCORRECTED = "uncorrected 95 %"
"""Label of the interval of one comparison, printed beside a verdict that is corrected for several."""


def percent(level: float) -> str:
    """Return a level in words, such as "96.7 %"."""
    return f"{100.0 * level:.3g} %"


@dataclass(frozen=True)
class Difference(MeasureResult):
    """A strategy against the baseline, by one measure, paired over seeds."""

    baseline: str
    pairs: int
    iqm: statistics.Interval
    p: float
    p_max_t: float
    """Corrected over all comparisons of the measure."""

    equivalence: Equivalence | None = None
    """Whether it is too small to matter; None where the study file declares nothing for the environment. Its inner
    interval is of level 1 - 2 * 0.05 / K, for K comparisons of the measure that have bounds (two one-sided tests each,
    corrected by Bonferroni's inequality)."""

    @property
    def equivalent(self) -> bool:
        """Whether the data rule out every difference that matters; a smaller difference may be shown."""
        return self.equivalence is not None and self.equivalence.equivalent

    @property
    def shown(self) -> bool:
        """Whether the data show a difference, by the corrected p-value."""
        return self.p_max_t < SIGNIFICANCE

    @property
    def reported(self) -> ReportedInterval:
        """The interval to print: the one of the equivalence test if that decides, else the uncorrected one of 95 %."""
        if self.equivalence is not None and self.equivalence.equivalent:
            return ReportedInterval(self.equivalence.inner, percent(self.equivalence.level))
        return ReportedInterval(self.iqm, UNCORRECTED)

    @property
    def covers_zero(self) -> bool:
        """Whether the interval leaves both signs open."""
        return self.iqm.low <= 0.0 <= self.iqm.high


@dataclass(frozen=True)
class BudgetSpent(StrategyResult):
    """The budget, updates and transitions of a run of a strategy, on average over its seeds."""

    budget: int
    """In the study's unit: environment steps or episodes."""

    updates: float
    transitions_replayed: float


@dataclass(frozen=True)
class ComparisonResults:
    """The numbers that several sections of a report share."""

    levels: Sequence[Level]
    differences: Sequence[Difference]
    spent: Sequence[BudgetSpent]


def compare(rows: duckdb.DuckDBPyRelation, spec: Spec, curves: Sequence[Curve]) -> ComparisonResults:
    """Return the levels of all strategies, their differences from the baseline, and their budgets.

    Args:
        rows: a study's results.
        spec: the study.
        curves: the evaluation returns, as `curves_of` gives them.
    """
    return ComparisonResults(levels(curves), differences_of(curves, spec), budgets_spent(rows, spec, curves))


def differences_of(curves: Sequence[Curve], spec: Spec, metric: str = RETURN) -> list[Difference]:
    """Return every strategy's difference from the baseline in a metric, judged by the rules of the study file.

    Bounds of equivalence are of the return.
    """
    return differences(curves, spec.baseline, spec.equivalence if metric == RETURN else {})


def curves_of(rows: duckdb.DuckDBPyRelation, spec: Spec, metric: str) -> list[Curve]:
    """Return the curves of a metric, in the order of the study file; empty where nothing logged it."""
    quoted = metric.replace("'", "''")
    curves = [
        Curve(*key, *_aligned(columns["seed"], columns["step"], columns["value"].astype(np.float64)))
        for key, columns in seed_values.by_strategy(rows.filter(f"metric = '{quoted}'"), spec)
    ]
    shared: dict[tuple[str, str], int] = {}
    for curve in curves:
        total = spec.budget_of(curve.strategy).total
        shared[curve.cell] = min(total, shared.get(curve.cell, total))
    return [replace(curve, shared=shared[curve.cell]) for curve in curves]


def thinned(curve: Curve, most: int) -> Curve:
    """Return the curve at up to ``most`` of its points, evenly spread, the last one always among them."""
    points = np.unique(np.linspace(0, len(curve.steps) - 1, min(len(curve.steps), most)).round().astype(np.intp))
    return replace(curve, steps=curve.steps[points], values=curve.values[:, points])


def curve_of_runs(
    chunk: Chunk, seeds: NDArray[np.int64], steps: NDArray[np.int64], values: NDArray[np.float64]
) -> Curve:
    """Return the curve of one chunk from the rows of one metric, in any order; each of shape (rows,)."""
    order = np.lexsort((steps, seeds))
    aligned = _aligned(seeds[order], steps[order], values[order])
    return Curve(chunk.environment, chunk.learner, chunk.strategy, *aligned)


def _aligned(
    seeds: NDArray[np.int64], steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return runs on one grid of steps: their common steps, or evenly spaced ones."""
    each, starts = np.unique(seeds, return_index=True)
    runs = list(zip(np.split(steps, starts[1:]), np.split(values, starts[1:]), strict=True))
    grid = runs[0][0]
    shared = all(np.array_equal(grid, x) for x, _ in runs)
    if shared and (np.diff(grid) > 0).all():
        return each, grid, np.stack([y for _, y in runs])
    if not shared:
        grid = np.linspace(0, steps.max(), _MOST_POINTS + 1).round().astype(np.int64)[1:]
    return each, grid, np.stack([statistics.on_grid(x, y, grid) for x, y in runs])


def levels(curves: Sequence[Curve]) -> list[Level]:
    """Return the level of every strategy by every measure."""
    return [
        Level(*c.key, m, len(runs), statistics.bootstrap_interval(runs))
        for m in MEASURES
        for c in curves
        if len(runs := _finite(c.of_runs(m)))
    ]


def _finite(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return those of the runs that have a number."""
    return runs[np.isfinite(runs)]


def differences(curves: Sequence[Curve], baseline: str, bounds: Mapping[str, float] | None = None) -> list[Difference]:
    """Return every strategy's difference from the baseline by every measure, corrected per measure.

    Args:
        curves: of all strategies.
        baseline: the strategy that the others are compared with.
        bounds: of environments, which differences do not matter.
    """
    return [d for m in MEASURES for d in _family(curves, baseline, m, bounds or {})]


def paired_values(curve: Curve, base: Curve, measure: Measure) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both strategies' measure on the seeds that have a number of both, row by row; each of shape (pairs,)."""
    return _paired(curve, base, measure)[1:]


def _paired(
    curve: Curve, base: Curve, measure: Measure
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    seeds, rows, base_rows = np.intersect1d(curve.seeds, base.seeds, return_indices=True)
    pair = curve.of_runs(measure)[rows], base.of_runs(measure)[base_rows]
    both = np.isfinite(pair).all(axis=0)
    return seeds[both], pair[0][both], pair[1][both]


def _family(curves: Sequence[Curve], baseline: str, measure: Measure, bounds: Mapping[str, float]) -> list[Difference]:
    pairs = [(c, _paired(c, base, measure)) for c, base in seed_values.pairs_with_baseline(curves, baseline)]
    pairs = [(curve, pair) for curve, pair in pairs if len(pair[0])]
    error = SIGNIFICANCE / max(1, sum(curve.environment in bounds for curve, _ in pairs))
    results, each = [], []
    for curve, (seeds, values, base_values) in pairs:
        size, p = statistics.paired_test(values, base_values)
        equivalence = None
        if (bound := bounds.get(curve.environment)) is not None:
            inner = inner_interval(error, [values, base_values], statistics.paired_difference)
            equivalence = Equivalence(size, inner, Bounds(-bound, bound), 1.0 - 2.0 * error)
        results.append(Difference(*curve.key, measure, baseline, len(values), size, p, p, equivalence))
        each.append(SeedValues(seeds, values - base_values))
    if len(results) == 1:  # nothing to correct for
        return results
    family = seed_values.corrected(each, [d.iqm for d in results])
    return [replace(d, p_max_t=max(d.p, float(p))) for d, p in zip(results, family, strict=True)]


def inner_interval(error: float, runs: Sequence[NDArray[np.float64]], of: Callable[..., Interval]) -> Interval:
    """Return the interval of two one-sided tests, without ends if there are too few seeds or resamples for its level.

    N values on one side of a bound are as likely as 1 in 2^N if their median is there, whatever is resampled.

    Args:
        error: of each of both tests.
        runs: what ``of`` takes, each of shape (N,).
        of: gives the interval of these runs at a level.
    """
    level, seeds = 1.0 - 2.0 * error, len(runs[0])
    if float(least_p(seeds)) <= 2.0 * error and resolves(level, seeds):
        return of(*runs, level=level)
    return Interval(of(*runs).estimate, -np.inf, np.inf)


def budgets_spent(rows: duckdb.DuckDBPyRelation, spec: Spec, curves: Sequence[Curve]) -> list[BudgetSpent]:
    """Return the cost of a run of each strategy: steps, updates, transitions replayed; NaN if not recorded.

    Args:
        rows: a study's results.
        spec: the study.
        curves: of what is there.
    """
    spent = [
        {curve.key: float(curve.values[:, -1].mean()) for curve in curves_of(rows, spec, metric)}
        for metric in ("train/updates", "replay/transitions_replayed")
    ]
    keys = [curve.key for curve in curves]
    return [BudgetSpent(*k, spec.budget_of(k[2]).total, *(of.get(k, np.nan) for of in spent)) for k in keys]
