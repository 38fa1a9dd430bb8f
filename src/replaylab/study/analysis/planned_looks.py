"""Results at a planned look: judged at the level of that look.

A p-value p of a look with level α_k is below it exactly where p · α/α_k is below α. So p-values are multiplied by
α/α_k, and everything that compares them with α stays as it is; an equivalence test has the interval of level 1 − 2 α_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from replaylab import statistics
from replaylab.study.spec.planned_looks import SIGNIFICANCE

if TYPE_CHECKING:
    from replaylab.study.analysis.comparisons import Difference
    from replaylab.study.analysis.contrast_results import ContrastResults
    from replaylab.study.spec.study_file import Spec


def differences_at_look(found: Sequence[Difference], spec: Spec) -> list[Difference]:
    """Return differences with p-values of the study's present look; without planned looks as they are."""
    if spec.looks is None:
        return list(found)
    times = SIGNIFICANCE / spec.look_level
    return [replace(one, p=min(1.0, one.p * times), p_holm=min(1.0, one.p_holm * times)) for one in found]


def contrasts_at_look(found: ContrastResults, spec: Spec) -> ContrastResults:
    """Return contrasts with p-values and equivalence tests of the present look; without planned looks as they are."""
    if spec.looks is None:
        return found
    level, times = spec.look_level, SIGNIFICANCE / spec.look_level
    results = tuple(
        replace(
            one,
            p=min(1.0, one.p * times),
            p_max_t=min(1.0, one.p_max_t * times),
            inner=statistics.bootstrap_interval(one.each.values, level=1.0 - 2.0 * level),
        )
        for one in found.results
    )
    return replace(found, results=results)
