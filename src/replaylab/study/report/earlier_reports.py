"""Seeds of earlier reports of a study; a report with further seeds warns.

A p-value holds for a number of seeds that was fixed before the first report. Adding seeds until a result is significant
raises the probability of a false alarm, unless the interim analyses were planned (``[interim]``) and the plan was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import sentences
from replaylab.study.results import records

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

_NAME = "reports"
Report = tuple[list[int], dict[str, Any] | None]
"""The seeds of a report, and the interim analyses that were planned then."""


def seeds_of(curves: Sequence[Curve]) -> list[int]:
    """Return the seeds that every curve has, in order: a strategy with fewer is reported again with the others."""
    return [int(seed) for seed in reduce(np.intersect1d, [c.seeds for c in curves])] if curves else []


def note(study: ReportedStudy, seeds: Sequence[int]) -> None:
    """Write into the study's folder that it was reported with these seeds, and which interim analyses were planned."""
    reports, now = _reports(study), (list(seeds), _plan(study))
    if now in reports or not now[0]:  # no seed is compared
        return
    reports.append(now)
    record: dict[str, Any] = {"seeds": [seen for seen, _ in reports]}
    if any(plan is not None for _, plan in reports):
        record["planned"] = [plan for _, plan in reports]
    records.write(study.folder / f"{_NAME}.json", record)


def warning(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    """Return a warning if p-values do not hold, after analyses that were not planned; else None."""
    return _without_plan(study, seeds) if study.spec.interim is None else _off_plan(study, seeds)


def _without_plan(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    others = [len(seen) for seen, _ in _reports(study) if seen != list(seeds)]
    if not others:
        return None
    return (
        f"Reported before with {_counts(others)} seeds; now with {len(seeds)}. "
        f"The p-values and intervals hold for one analysis, at a number of seeds that was fixed beforehand. With "
        f"three analyses 8 to 10 % of studies show a difference that does not exist, not 5 %. Confirm the results with "
        f"new seeds, or plan interim analyses for the next study."
    )


def _off_plan(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    plan = study.spec.interim
    assert plan is not None
    if sorted(seeds) != sorted(study.spec.seeds):
        return (
            f"Not a planned interim analysis: there are results of {len(seeds)} of its {len(study.spec.seeds)} seeds. "
            f"Wait for the others; a decision from this page is one more analysis than planned."
        )
    now = set(seeds)
    others = [
        len(seen)
        for seen, planned in _reports(study)
        if planned != _plan(study) or len(seen) not in plan.seeds or not (now.issuperset(seen) or now.issubset(seen))
    ]
    if not others:
        return None
    return (
        f"Reported outside the planned interim analyses ({plan}), with {_counts(others)} seeds: before the plan was "
        f"made or changed, or between two analyses. The p-values hold only for planned analyses. Confirm the results "
        f"with new seeds."
    )


def _counts(numbers: Sequence[int]) -> str:
    return sentences.joined([str(n) for n in sorted(set(numbers))])


def _plan(study: ReportedStudy) -> dict[str, Any] | None:
    return None if study.spec.interim is None else study.spec.interim.model_dump(mode="json")


def _reports(study: ReportedStudy) -> list[Report]:
    record = study.record(_NAME)
    seeds = record.get("seeds", [])
    return list(zip(seeds, record.get("planned", [None] * len(seeds)), strict=True))
