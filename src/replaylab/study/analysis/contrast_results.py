"""The results of a study's contrasts: estimates within seeds, their intervals, tests and verdicts.

Of a run, y is its measure of the contrast's metric, scored where the file says how. For seed s

    c_s = mean over groups g of (mean over the cells of more in g of y - mean over the cells of less in g of y),

or with ``weights`` the mean over environments and learners of the weighted sums, so that whatever a seed does to all
cells alike cancels; the difference of two contrasts is c_s - c'_s. The size is the interquartile mean of c_s over the
seeds, with its bootstrap interval. The p-value is the larger of the interval's own and that of flipping the signs of
whole seeds (`replaylab.statistics.sign_flip_test`); all contrasts of a study are corrected together by max-T, where a
seed's contrasts change sign together, and each has the seeds it has.

A study that declares a primary contrast is evaluated by means in place of interquartile means
(`replaylab.statistics.mean_intervals`), so that estimate, interval and p-value are of one estimand and agree. The
primary contrast and each manipulation check stand alone. The others are one family: their intervals hold together, and
"higher", "lower" and "equivalent" are read from the same simultaneous interval, so that all of it is right in at least
95 % of studies. A check passes if its interval lies between its bounds; the verdicts that a failed one guards are
"not interpretable". The mean of several environments decides; beside it each environment has its own result, because a
mean may pass where an environment does not. With ``each_environment`` that result decides about the contrasts there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from replaylab import statistics
from replaylab.statistics import Bounds, Equivalence, Interval, Verdict
from replaylab.statistics.equivalence import EQUIVALENCE_SEEDS
from replaylab.statistics.permutation import least_p
from replaylab.study.analysis.comparisons import SIGNIFICANCE, UNCORRECTED, Curve, ReportedInterval, percent
from replaylab.study.analysis.seed_values import SeedValues, corrected, table_of
from replaylab.study.spec.contrasts import Cell, ResolvedContrast, named_in, resolve_contrasts
from replaylab.study.spec.declared_contrasts import Score
from replaylab.study.spec.spec import Spec

ContrastVerdict = Verdict | Literal["not interpretable", "passed", "failed"]
"""Verdict on a contrast; the last two are for manipulation checks."""

LEAST_SEEDS = 2
"""With fewer the spread over seeds is unknown."""


@dataclass(frozen=True)
class ContrastResult:
    """The result of one contrast."""

    contrast: ResolvedContrast
    each: SeedValues
    """c_s."""

    groups: int
    """Groups of matched cells that it averages."""

    cells: int
    """Cells of results in them."""

    size: Interval
    """Interquartile mean over seeds, with its 95 % interval; in studies with a primary contrast the mean, and in their
    family the simultaneous interval."""

    inner: Interval
    """The interval that must lie inside the bounds: of 90 %; in the family of such studies `size` itself."""

    p: float
    """p-value of this contrast, not corrected."""

    p_max_t: float = 1.0
    """Corrected over all contrasts of the study, or over its family."""

    failed_checks: tuple[str, ...] = ()
    """Manipulation checks that failed, or could not be made, and that guard it."""

    by_environment: Mapping[str, ContrastResult] = field(default_factory=dict)
    """A manipulation check in each environment by itself; empty for other contrasts and for a single environment."""

    inner_level: float = 1.0 - 2.0 * SIGNIFICANCE
    simultaneous: bool = False
    """Whether `size` is corrected for its family, so that all verdicts of the family are read from such intervals."""

    @property
    def equivalence(self) -> Equivalence | None:
        """The equivalence test, where the study file declares bounds."""
        bound = self.contrast.equivalence
        return None if bound is None else Equivalence(self.size, self.inner, Bounds(-bound, bound), self.inner_level)

    @property
    def reported(self) -> ReportedInterval:
        """The interval to print: the one that decides, or, beside a verdict by a corrected p-value, the uncorrected."""
        if self.simultaneous:
            return ReportedInterval(self.size, "simultaneous 95 %")
        if self.verdict == "equivalent":
            return ReportedInterval(self.inner, percent(self.inner_level))
        alone = self.contrast.primary or self.contrast.check is not None
        return ReportedInterval(self.size, percent(1.0 - SIGNIFICANCE) if alone else UNCORRECTED)

    @property
    def verdict(self) -> ContrastVerdict:
        """Equivalent comes first: a difference may be surely there, and surely too small to matter.

        With fewer seeds than any test of their signs needs, six, nothing is called higher or lower: all few of them may
        be on one side of 0 by chance, however close to each other, and Student's interval counts on normal seeds.
        """
        if self.contrast.check is not None:
            low, high = self.contrast.check
            return "passed" if low < self.size.low and self.size.high < high else "failed"
        if self.failed_checks:
            return "not interpretable"
        enough = len(self.each.seeds) >= EQUIVALENCE_SEEDS
        if enough and self.equivalence is not None and self.equivalence.equivalent:
            return "equivalent"
        mean = float(self.each.values.mean())
        p = max(self.p_max_t, float(least_p(len(self.each.seeds))))
        if p >= SIGNIFICANCE or mean * self.size.estimate <= 0.0:
            return "inconclusive"
        return "higher" if mean > 0.0 else "lower"

    @property
    def outcome(self) -> Literal["reproduced", "not reproduced", "contested"] | None:
        """Whether the verdict agrees with the published statement; None without a statement."""
        published = self.contrast.published
        return None if published is None else published.outcome(self.verdict)


@dataclass(frozen=True)
class ContrastResults:
    """The results of a study's contrasts, and warnings about missing runs."""

    results: tuple[ContrastResult, ...]
    warnings: tuple[str, ...]


def evaluate_contrasts(spec: Spec, curves_of: Callable[[str], Sequence[Curve]]) -> ContrastResults:
    """Return the result of every contrast of a study.

    Args:
        spec: the study.
        curves_of: gives the curves of a metric.
    """
    questions = resolve_contrasts(spec)
    values = _Values(curves_of, spec.scores, {contrast.name: contrast for contrast in questions})
    each: dict[str, _Each] = {}
    warnings: list[str] = []
    for contrast in questions:
        each[contrast.name], incomplete = values.of(contrast)
        warnings += incomplete
    enough = [contrast for contrast in questions if len(each[contrast.name][0].seeds) >= LEAST_SEEDS]
    for contrast in questions:
        if contrast not in enough:
            rule = f"it needs results of all its cells for {LEAST_SEEDS} seeds"
            warnings.append(f"{contrast.name}: not answered: {rule}, but has {len(each[contrast.name][0].seeds)}.")
    if spec.judged_by_role:
        results = _with_environments(_by_role(questions, enough, each), values, spec.environments)
    else:
        results = _together([_finding(contrast, *each[contrast.name]) for contrast in enough])
    return ContrastResults(results, tuple(warnings))


ByEnvironment = tuple[ContrastResult, int, statistics.Heterogeneity]
"""A contrast, the number of its environments, and whether it differs between them."""


def heterogeneity(results: Sequence[ContrastResult]) -> list[ByEnvironment]:
    """Return the test of each contrast that is asked in several environments."""
    by_name = {result.contrast.name: result for result in results}
    environments = dict.fromkeys(r.contrast.environment for r in results if r.contrast.environment is not None)
    tested = []
    for result in results:
        names = [named_in(result.contrast.name, environment) for environment in environments]
        parts = [by_name[name].each for name in names if name in by_name]
        if len(parts) > 1 and result.contrast.check is None:
            tested.append((result, len(parts), statistics.heterogeneity_test(table_of(parts))))
    return tested


_Each = tuple[SeedValues, int, int]
"""c_s, with the numbers of groups and cells behind it."""


class _Values:
    """The values of contrasts within seeds, from curves that are read once for each metric."""

    def __init__(
        self,
        curves_of: Callable[[str], Sequence[Curve]],
        scores: Mapping[str, Score],
        contrasts: Mapping[str, ResolvedContrast],
    ) -> None:
        self._curves_of = curves_of
        self._scores = scores
        self._contrasts = contrasts
        self._of_runs: dict[tuple[str, str, bool, bool], Mapping[Cell, SeedValues]] = {}

    def of(self, contrast: ResolvedContrast, environment: str | None = None) -> tuple[_Each, list[str]]:
        """Return c_s with the numbers of groups and cells behind it, and warnings; of one environment if named."""
        if contrast.of is not None:
            first, second = (self.of(self._contrasts[name], environment)[0] for name in contrast.of)
            return _difference(first, second), []
        key = (contrast.metric, contrast.measure, contrast.scored, contrast.log)
        if key not in self._of_runs:
            self._of_runs[key] = _values(self._curves_of(contrast.metric), contrast, self._scores)
        return _direct(contrast if environment is None else contrast.only_in(environment), self._of_runs[key])


def _with_environments(
    results: Sequence[ContrastResult], values: _Values, environments: Sequence[str]
) -> tuple[ContrastResult, ...]:
    """Return results whose manipulation checks have that of each environment, if there are several."""
    if len(environments) == 1:
        return tuple(results)
    completed = []
    for result in results:
        parts = {}
        check = result.contrast.check is not None and result.contrast.environment is None
        for environment in environments if check else ():
            each, _ = values.of(result.contrast, environment)
            if len(each[0].seeds) >= LEAST_SEEDS:
                parts[environment] = _alone(result.contrast, *each)
        completed.append(replace(result, by_environment=parts))
    return tuple(completed)


def _by_role(
    questions: Sequence[ResolvedContrast], enough: Sequence[ResolvedContrast], each: Mapping[str, _Each]
) -> tuple[ContrastResult, ...]:
    """Return the results of a study with a primary contrast, in its order."""
    alone = {contrast.name: _alone(contrast, *each[contrast.name]) for contrast in enough}
    family = [contrast.name for contrast in enough if not contrast.primary and contrast.check is None]
    if family:
        together = statistics.mean_intervals(table_of([each[name][0] for name in family]))
        for k, name in enumerate(family):
            size = Interval(*(float(ends[k]) for ends in together[:3]))
            alone[name] = replace(
                alone[name],
                size=size,
                inner=size,
                p_max_t=float(together.p[k]),
                inner_level=1.0 - SIGNIFICANCE,
                simultaneous=True,
            )
    checks = [contrast for contrast in questions if contrast.check is not None]
    failed = [contrast for contrast in checks if contrast.name not in alone or alone[contrast.name].verdict == "failed"]
    return tuple(
        replace(
            result,
            failed_checks=tuple(contrast.name for contrast in failed if contrast.guards_contrast(result.contrast)),
        )
        for result in alone.values()
    )


def _alone(contrast: ResolvedContrast, each: SeedValues, groups: int, cells: int) -> ContrastResult:
    outer, inner = (
        statistics.mean_intervals(each.values[:, None], level=level)
        for level in (1.0 - SIGNIFICANCE, 1.0 - 2.0 * SIGNIFICANCE)
    )
    size, within = (Interval(*(float(ends[0]) for ends in intervals[:3])) for intervals in (outer, inner))
    p = float(outer.p[0])
    return ContrastResult(contrast, each, groups, cells, size, within, p, p)


def _values(curves: Sequence[Curve], contrast: ResolvedContrast, scores: Mapping[str, Score]) -> dict[Cell, SeedValues]:
    """Return each cell's runs by their measure, scored; a run whose number is not finite is left out."""
    values = {}
    for curve in curves:
        y = curve.of_runs(contrast.measure)
        if contrast.scored and curve.environment in scores:
            y = scores[curve.environment].of(y)
        if contrast.log:
            y = np.log(y, out=np.full(y.shape, np.nan), where=y > 0.0)
        order = np.argsort(curve.seeds)
        order = order[np.isfinite(y[order])]
        if len(order):
            values[Cell(*curve.key)] = SeedValues(curve.seeds[order], y[order])
    return values


def _direct(contrast: ResolvedContrast, runs: Mapping[Cell, SeedValues]) -> tuple[_Each, list[str]]:
    """Return c_s with the numbers of groups and cells behind it, and warnings."""
    warnings = []
    absent = [cell for cell in contrast.cells if cell not in runs]
    groups = [g for g in contrast.groups if not any(c in absent for side in g for c in side)]
    weighted = [g for g in contrast.weighted if not any(cell in absent for cell, _ in g)]
    if absent:
        planned, left = (len(a) + len(b) for a, b in ((contrast.groups, contrast.weighted), (groups, weighted)))
        warnings.append(
            f"{contrast.name}: {contrast.metric} is missing for {'; '.join(map(str, absent))}. "
            f"{planned - left} of {planned} matched groups are left out."
        )
    direct = [c for g in groups for side in g for c in side]
    used = list(dict.fromkeys(direct + [cell for g in weighted for cell, _ in g]))
    if not used:
        return (SeedValues(np.empty(0, np.int64), np.empty(0)), 0, 0), warnings
    union = np.unique(np.concatenate([runs[c].seeds for c in used]))
    seeds = union[np.all([np.isin(union, runs[c].seeds) for c in used], axis=0)]
    if len(seeds) < len(union):
        short = [str(c) for c in used if len(runs[c].seeds) < len(union)]
        warnings.append(
            f"{contrast.name}: {len(union) - len(seeds)} of {len(union)} seeds are left out because they are missing "
            f"for {'; '.join(short)}."
        )
    differences = []
    for more, less in groups:
        means = [np.mean([runs[cell].at(seeds) for cell in side], axis=0) for side in (more, less)]
        differences.append(means[0] - means[1])
    differences += [np.asarray(sum(weight * runs[cell].at(seeds) for cell, weight in g)) for g in weighted]
    return (SeedValues(seeds, np.mean(differences, axis=0)), len(differences), len(used)), warnings


def _difference(a: _Each, b: _Each) -> _Each:
    seeds = np.intersect1d(a[0].seeds, b[0].seeds)
    return SeedValues(seeds, a[0].at(seeds) - b[0].at(seeds)), a[1] + b[1], a[2] + b[2]


def _finding(contrast: ResolvedContrast, each: SeedValues, groups: int, cells: int) -> ContrastResult:
    tested = statistics.sign_flip_test(each.values)
    inner = statistics.bootstrap_interval(each.values, level=1.0 - 2.0 * SIGNIFICANCE)
    return ContrastResult(contrast, each, groups, cells, tested.difference, inner, tested.p)


def _together(results: Sequence[ContrastResult]) -> tuple[ContrastResult, ...]:
    p = corrected([f.each for f in results], [f.size for f in results])
    return tuple(replace(f, p_max_t=max(f.p, float(each))) for f, each in zip(results, p, strict=True))
