"""Seeds of earlier reports of a study; a report with further seeds warns.

A p-value holds for a number of seeds that was fixed before the first report. Adding seeds until a result is significant
raises the probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import sentences
from replaylab.study.results import records

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

_NAME = "reports"


def seeds_of(curves: Sequence[Curve]) -> list[int]:
    """Return the seeds that every curve has, in order: a strategy with fewer is reported again with the others."""
    return [int(seed) for seed in reduce(np.intersect1d, [c.seeds for c in curves])] if curves else []


def note(study: ReportedStudy, seeds: Sequence[int]) -> None:
    """Write into the study's folder that it was reported with these seeds."""
    reports = _reports(study)
    if list(seeds) in reports or not seeds:  # no seed is compared
        return
    records.write(study.folder / f"{_NAME}.json", {"seeds": [*reports, list(seeds)]})


def warning(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    """Return a warning if p-values do not hold because the study was reported with other seeds; else None."""
    others = [len(reported) for reported in _reports(study) if reported != list(seeds)]
    if not others:
        return None
    return (
        f"Reported before with {_counts(others)} seeds; now with {len(seeds)}. "
        f"The p-values and intervals hold for one analysis, at a number of seeds that was fixed beforehand. With "
        f"three analyses 8 to 10 % of studies show a difference that does not exist, not 5 %. Confirm the results with "
        f"new seeds."
    )


def _counts(numbers: Sequence[int]) -> str:
    return sentences.joined([str(n) for n in sorted(set(numbers))])


def _reports(study: ReportedStudy) -> list[list[int]]:
    """Return the seeds of each report."""
    reports: list[list[int]] = study.record(_NAME).get("seeds", [])
    return reports
