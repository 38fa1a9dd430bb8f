"""What a reader of a study's numbers has to know first: what is missing, not compared, or not as it was planned."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from replaylab.number_format import counted
from replaylab.study.analysis import comparisons
from replaylab.study.plan.populations import runs_of
from replaylab.study.report import divergence, earlier_reports, sentences
from replaylab.study.report.page import Page
from replaylab.study.report.what_ran import what_ran

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy


def caveats(page: Page) -> list[str]:
    """Return what to warn of, whatever form the numbers are written in; contrasts have warnings of their own."""
    study, found = page.study, []
    missing = [p for p in study.populations if not study.file_of(p).is_file()]
    if missing:
        found.append(
            f"Incomplete: {runs_of(missing)} of {counted(page.spec.runs, 'run')} "
            f"are missing. What follows is about those that are there."
        )
    baseline = page.spec.baseline
    if not any(c.strategy == baseline for c in page.curves):
        found.append(f"The runs of the baseline, {baseline}, are missing, so nothing is compared with it.")
    elif alone := what_ran(study).without_baseline():
        places = sentences.some([f"{c.strategy} on {c.environment} with {c.learner}" for c in alone])
        found.append(f"{places}: the baseline, {baseline}, does not run there, so nothing is compared.")
    pairs = [np.isin(c.seeds, base.seeds).sum() for c, base in comparisons.pairs_with_baseline(page.curves, baseline)]
    few = sentences.few_seeds(page.spec, (len(c.seeds) for c in page.curves), map(int, pairs))
    before = earlier_reports.warning(study, earlier_reports.seeds_of(page.curves))
    found += filter(None, (few, before, divergence.warning(page.rows, page.curves)))
    differ = _versions_that_differ(study)
    if differ:
        found.append(f"The runs were made with different library versions: {'; '.join(differ)}.")
    return found


def _versions_that_differ(study: ReportedStudy) -> list[str]:
    """Return the libraries of which runs had several versions, each with these; one may lack what it did not need."""
    from replaylab.study.results.store import read_metadata

    versions: defaultdict[str, set[str]] = defaultdict(set)
    for population in study.present:
        for library, version in read_metadata(study.file_of(population))["versions"].items():
            versions[library].add(version)
    return [f"{library} {sentences.joined(sorted(found))}" for library, found in versions.items() if len(found) > 1]
