"""Warnings about a study's numbers: missing runs, missing comparisons, deviations from the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from replaylab.learners.training.metrics_recorder import OF_DIVERGENCE
from replaylab.number_format import counted
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.analysis.seed_values import pairs_with_baseline
from replaylab.study.plan import runs_of
from replaylab.study.report import earlier_reports, sentences
from replaylab.study.report.page import Page
from replaylab.study.report.what_ran import what_ran

if TYPE_CHECKING:
    import duckdb

    from replaylab.study.report.reported_study import ReportedStudy


def caveats(page: Page) -> list[str]:
    """Return the warnings of a page or an export, except those about contrasts."""
    study, warnings = page.study, []
    missing = [p for p in study.chunks if not study.file_of(p).is_file()]
    if missing:
        warnings.append(
            f"Incomplete: {runs_of(missing)} of {counted(page.spec.runs, 'run')} "
            f"are missing. The report is about the others."
        )
    baseline, title = page.spec.baseline, page.spec.title_of(page.spec.baseline)
    if not any(c.strategy == baseline for c in page.curves):
        warnings.append(f"The runs of the baseline, {title}, are missing, so nothing is compared with it.")
    elif alone := what_ran(study).without_baseline():
        places = sentences.some([f"{page.spec.title_of(c.strategy)} on {page.spec.place_of(*c[:2])}" for c in alone])
        warnings.append(f"{places}: the baseline, {title}, does not run there, so nothing is compared.")
    pairs = [np.isin(c.seeds, base.seeds).sum() for c, base in pairs_with_baseline(page.curves, baseline)]
    few = sentences.few_seeds(page.spec, (len(c.seeds) for c in page.curves), map(int, pairs))
    below = sentences.below_enough_seeds(page.spec, min((len(c.seeds) for c in page.curves), default=1))
    before = earlier_reports.warning(study, earlier_reports.seeds_of(page.curves))
    warnings += filter(None, (few, below, before, diverged(page.rows, page.curves)))
    differ = _versions_that_differ(study)
    if differ:
        warnings.append(f"The runs were made with different library versions: {'; '.join(differ)}.")
    return warnings


def _versions_that_differ(study: ReportedStudy) -> list[str]:
    """Return the libraries of which runs had several versions, each with these; one may lack what it did not need."""
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for made_with in study.versions():
        for library, version in made_with.items():
            versions[library].add(version)
    return [f"{library} {sentences.joined(sorted(used))}" for library, used in versions.items() if len(used) > 1]


def diverged(rows: duckdb.DuckDBPyRelation, curves: Sequence[Curve]) -> str | None:
    """Return which runs have losses or TD errors that are infinite or NaN, in the order of the curves, or None."""
    names = " OR ".join(f"metric = '{name}'" for name in OF_DIVERGENCE)
    lost = rows.filter(f"({names}) AND NOT isfinite(value)")
    cells = lost.aggregate("environment, learner, strategy, list(DISTINCT seed ORDER BY seed)").fetchall()
    if not cells:
        return None
    places = {curve.key: i for i, curve in enumerate(curves)}
    cells.sort(key=lambda row: places.get(row[:3], len(places)))
    counts = [
        f"{strategy} on {environment} with {learner} ({'seed' if len(seeds) == 1 else 'seeds'} "
        f"{sentences.some([str(seed) for seed in seeds])})"
        for environment, learner, strategy, seeds in cells
    ]
    runs = sum(len(seeds) for *_, seeds in cells)
    return (
        f"The networks of {counted(runs, 'run')} diverged (losses that are infinite, or no numbers): "
        f"{sentences.some(counts)}. Their returns are counted as they were; a lower learning rate, or a limit to the "
        "gradients’ norm, may keep them from it."
    )
