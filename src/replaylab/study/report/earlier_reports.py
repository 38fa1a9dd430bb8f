"""Which seeds a study was reported with before: who looks again with more of them finds more than there is.

A p-value holds for a number of seeds that was settled before the first look. Whoever adds seeds until something is
shown has given chance several tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import sentences
from replaylab.study.results import records

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

_NAME = "looks"


def seeds_of(curves: Sequence[Curve]) -> list[int]:
    """Return all seeds that are compared, in order."""
    return [int(seed) for seed in np.unique(np.concatenate([c.seeds for c in curves]))]


def note(study: ReportedStudy, seeds: Sequence[int]) -> None:
    """Write into the study's folder that it was reported with these seeds."""
    looks = _looks(study)
    if list(seeds) not in looks:
        records.write(study.folder / f"{_NAME}.json", {"seeds": [*looks, list(seeds)]})


def warning(study: ReportedStudy, seeds: Sequence[int]) -> str | None:
    """Return what to say where the study was reported with other seeds than these before, or None."""
    others = [len(look) for look in _looks(study) if look != list(seeds)]
    if not others:
        return None
    seeds_before = sentences.joined([str(n) for n in sorted(set(others))])
    return (
        f"Looked at before, with {seeds_before} seeds; now with {len(seeds)}. "
        f"The p-values and intervals hold for one look, at a number of seeds that was settled beforehand. With three "
        f"looks 8 to 10 % of studies show a difference that is not there, not 5 %: confirm with new seeds what is "
        f"shown here."
    )


def _looks(study: ReportedStudy) -> list[list[int]]:
    found: list[list[int]] = study.record(_NAME).get("seeds", [])
    return found
