"""Which seeds a study was reported with before: who looks again with more of them finds more than there is.

A p-value holds for a number of seeds that was settled before the first look. Whoever adds seeds until something is
shown has given chance several tries; unless the looks were planned (``[looks]``), and are those that were planned.
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

_NAME = "looks"
Look = tuple[list[int], dict[str, Any] | None]
"""The seeds of a report, and the looks that were planned then."""


def seeds_of(curves: Sequence[Curve]) -> list[int]:
    """Return the seeds that every curve has, in order: a strategy with fewer is looked at again with the others."""
    return [int(seed) for seed in reduce(np.intersect1d, [c.seeds for c in curves])] if curves else []


def note(study: ReportedStudy, seeds: Sequence[int]) -> None:
    """Write into the study's folder that it was reported with these seeds, and which looks were planned."""
    looks, now = _looks(study), (list(seeds), _plan(study))
    if now in looks or not now[0]:  # no seed is compared
        return
    looks.append(now)
    record: dict[str, Any] = {"seeds": [seen for seen, _ in looks]}
    if any(plan is not None for _, plan in looks):
        record["planned"] = [plan for _, plan in looks]
    records.write(study.folder / f"{_NAME}.json", record)


def warning(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    """Return what to say where p-values do not hold: after looks that were not planned, or None."""
    return _without_plan(study, seeds) if study.spec.looks is None else _off_plan(study, seeds)


def _without_plan(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    others = [len(seen) for seen, _ in _looks(study) if seen != list(seeds)]
    if not others:
        return None
    return (
        f"Looked at before, with {_counts(others)} seeds; now with {len(seeds)}. "
        f"The p-values and intervals hold for one look, at a number of seeds that was settled beforehand. With three "
        f"looks 8 to 10 % of studies show a difference that is not there, not 5 %: confirm with new seeds what is "
        f"shown here, or plan the looks of the next study."
    )


def _off_plan(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    plan = study.spec.looks
    assert plan is not None
    if sorted(seeds) != sorted(study.spec.seeds):
        return (
            f"No planned look: there are results of {len(seeds)} of the {len(study.spec.seeds)} seeds of this look. "
            f"Wait until all are there; who acts on this page looks once more than planned."
        )
    now = set(seeds)
    others = [
        len(seen)
        for seen, planned in _looks(study)
        if planned != _plan(study) or len(seen) not in plan.seeds or not (now.issuperset(seen) or now.issubset(seen))
    ]
    if not others:
        return None
    return (
        f"Looked at outside the planned looks ({plan}), with {_counts(others)} seeds: before they were planned as they "
        f"are, or between them. The p-values hold for planned looks alone: confirm with new seeds what is shown here."
    )


def _counts(numbers: Sequence[int]) -> str:
    return sentences.joined([str(n) for n in sorted(set(numbers))])


def _plan(study: ReportedStudy) -> dict[str, Any] | None:
    return None if study.spec.looks is None else study.spec.looks.model_dump(mode="json")


def _looks(study: ReportedStudy) -> list[Look]:
    record = study.record(_NAME)
    seeds = record.get("seeds", [])
    return list(zip(seeds, record.get("planned", [None] * len(seeds)), strict=True))
