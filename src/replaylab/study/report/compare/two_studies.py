"""The results of two folders, matched by environment, learner and strategy: what differs in outcome and in settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import comb
from typing import Any

import numpy as np

from replaylab import statistics
from replaylab.errors import SpecError
from replaylab.number_format import counted
from replaylab.statistics import Interval
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import SIGNIFICANCE, Curve, Measure, MeasureResult
from replaylab.study.report import machines, methods
from replaylab.study.report.reported_study import ReportedStudy
from replaylab.study.spec.study_file import Spec

_Key = tuple[str, str, str]

LEAST_RUNS = 2
"""Runs that each needs for a comparison at all."""

LEAST_GROUP = 3
"""Runs that each group needs for a difference between groups to be shown.

Beside 20 runs two had a difference that was not there in 11 % of simulated studies, three in 5 %.
"""


@dataclass(frozen=True)
class FolderDifference(MeasureResult):
    """The second study's strategy minus the first one's, by one measure."""

    first: Interval
    """Interquartile mean of the first one's runs."""

    second: Interval
    runs: tuple[int, int]
    pairs: int
    """Seeds in common that are compared in pairs; 0: groups of runs are compared."""

    size: Interval
    p: float
    """p-value; for groups of runs at least `least_p`."""

    p_holm: float
    """Corrected over all comparisons of the measure but those of the same runs."""

    same: bool
    """Whether the paired runs are of the same settings, and equal to the last bit."""

    @property
    def fewest(self) -> int:
        """Pairs, or without any the runs of the smaller group."""
        return self.pairs or min(self.runs)

    @property
    def too_few(self) -> bool:
        """Whether the groups are so small that they show no difference, as far as they may be apart."""
        return not self.pairs and self.p == least_p(*self.runs) and self.p_holm >= SIGNIFICANCE

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        if self.same:
            return "same runs"
        if self.p_holm >= SIGNIFICANCE:
            return "inconclusive"
        return "higher" if self.size.estimate > 0 else "lower"


@dataclass(frozen=True)
class TwoStudies:
    """Two studies, and what a comparison of them gave."""

    first: ReportedStudy
    second: ReportedStudy
    curves: Sequence[tuple[Curve, Curve]]
    """Curves of environments, learners and strategies that both have."""

    differences: Sequence[FolderDifference]
    not_compared: Sequence[tuple[str, str]]
    """Combinations with too few runs, and the reason."""

    unmatched: Sequence[tuple[str, str]]
    """Combinations that only one study has, and which one: "A" or "B"."""

    settings: Sequence[tuple[str, str, str]]
    """Settings that differ: name, the first one's value, the second one's."""

    versions: Sequence[tuple[str, str, str]]
    """The same of versions and hardware."""


def compared(first: ReportedStudy, second: ReportedStudy) -> TwoStudies:
    """Return what differs between two studies' results.

    Differences are paired where the seeds in common are most of the runs of one of the two: equal seeds share the
    environment's randomness, the first weights and exploration, but the other runs count for nothing. Runs whose number
    is not finite are left out. Groups of runs are judged by their interval, which is too narrow of few of them, and so
    their p-value is at least what exchanging runs between the groups could give. Holm's correction is over all
    comparisons of one measure, except for those of the same runs, where nothing is tested.

    Raises:
        SpecError: they have nothing in common that could be compared, or one counts steps and the other episodes.
    """
    units = [study.spec.budget.counted for study in (first, second)]
    if units[0] != units[1]:
        raise SpecError(
            f"{second.folder} must count its budget as {first.folder} does, in {units[0]}, but counts {units[1]}. "
            f"Compare studies that count alike."
        )
    returns = [comparisons.curves_of(study.results(), study.spec, comparisons.RETURN) for study in (first, second)]
    by_key = [{curve.key: curve for curve in curves} for curves in returns]
    keys = [key for key in by_key[0] if key in by_key[1]]
    if not keys:
        raise SpecError(
            f"{second.folder} must have an environment, learner and strategy in common with {first.folder}, by name, "
            f"but has none with results. Compare results of studies that have."
        )
    pairs = [_of_equal_length(by_key[0][key], by_key[1][key], (first.spec, second.spec)) for key in keys]
    settled = [_decided(study) for study in (first, second)]
    alike = {key for key in keys if settled[0][key] == settled[1][key]}
    differences, few = [], []
    for measure in comparisons.MEASURES:
        enough = [min(_runs(a, b, measure)) >= LEAST_RUNS for a, b in pairs]
        differences += _corrected(list(compress(pairs, enough)), measure, alike)
        few += [_too_few(a, b, measure) for (a, b), does in zip(pairs, enough, strict=True) if not does]
    only = [
        (" · ".join(key), name)
        for name, of_study in zip("AB", by_key, strict=True)
        for key in of_study
        if key not in keys
    ]
    settings = _unequal(*(methods.settings_of(study.spec) for study in (first, second)))
    versions = _unequal(*(machines.used(study) for study in (first, second)))
    return TwoStudies(first, second, pairs, differences, list(dict.fromkeys(few)), only, settings, versions)


def _of_equal_length(a: Curve, b: Curve, specs: tuple[Spec, Spec]) -> tuple[Curve, Curve]:
    """Return both with averages over training up to the end of the shorter one, whatever budgets others have."""
    shared = min(spec.budget_of(a.strategy).total for spec in specs)
    return replace(a, shared=shared), replace(b, shared=shared)


def _decided(study: ReportedStudy) -> dict[_Key, dict[str, Any]]:
    """Return by environment, learner and strategy what decides the rows of a seed."""
    return {p.key: {k: v for k, v in p.identity.items() if k != "seeds"} for p in study.present}


def least_p(first: int, second: int) -> float:
    """Return the smallest two-sided p-value that exchanging runs between groups of two sizes can give.

    Of the ways of naming the runs two are the most extreme, one at either end. Groups below `LEAST_GROUP` have 1.
    """
    return 1.0 if min(first, second) < LEAST_GROUP else 2 / comb(first + second, first)


def _runs(a: Curve, b: Curve, measure: Measure) -> tuple[int, int]:
    """Return how many runs of each have a number."""
    first, second = (len(comparisons.finite(c.of_runs(measure))) for c in (a, b))
    return first, second


def _too_few(a: Curve, b: Curve, measure: Measure) -> tuple[str, str]:
    """Return what is not compared, and why."""
    counts = [
        f"{name} has {counted(len(c.seeds), 'run')}"
        + (f", {with_number} with a number" if with_number < len(c.seeds) else "")
        for name, c, with_number in zip("AB", (a, b), _runs(a, b, measure), strict=True)
    ]
    return " · ".join(a.key), f"{'; '.join(counts)}; it takes {LEAST_RUNS} of each"


def _corrected(
    pairs: Sequence[tuple[Curve, Curve]], measure: Measure, alike: Collection[_Key]
) -> list[FolderDifference]:
    differences = [_difference(a, b, measure, alike=a.key in alike) for a, b in pairs]
    tested = [k for k, d in enumerate(differences) if not d.same]
    for k, p in zip(tested, statistics.holm([differences[k].p for k in tested]), strict=True):
        differences[k] = replace(differences[k], p_holm=float(p))
    return differences


def _difference(a: Curve, b: Curve, measure: Measure, *, alike: bool) -> FolderDifference:
    """Return the difference of two strategies, of the same settings or not, not yet corrected."""
    first, second = (comparisons.finite(c.of_runs(measure)) for c in (a, b))
    runs = (len(first), len(second))
    levels = [statistics.bootstrap_interval(values) for values in (first, second)]
    paired_second, paired_first = comparisons.paired_values(b, a, measure)
    pairs, same = len(paired_second), False
    if pairs >= LEAST_RUNS and 2 * pairs > min(runs):
        size, p = statistics.paired_test(paired_second, paired_first)
        same = alike and np.array_equal(a.steps, b.steps) and bool(np.array_equal(paired_second, paired_first))
    else:
        pairs = 0
        size = statistics.unpaired_difference(second, first)
        p = max(statistics.interval_p(size, min(runs)), least_p(*runs))
    return FolderDifference(*a.key, measure, levels[0], levels[1], runs, pairs, size, p, p, same)


def _unequal(first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return what differs: name, the first one's value, the second one's; what is not given is as good as nothing."""
    a, b = dict(first), dict(second)
    pairs = ((key, a.get(key, "–"), b.get(key, "–")) for key in dict.fromkeys([*a, *b]))
    return [(key, x, y) for key, x, y in pairs if x != y and not {x, y} <= {"–", *_NOTHING}]


_NOTHING = ("null", "[]")
"""Texts of settings without a value."""
