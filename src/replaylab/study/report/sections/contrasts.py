"""What a report says and shows of a study's contrasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from replaylab.number_format import counted, equals_p, p_value, signed_significant, significant
from replaylab.plotting import palette
from replaylab.study.analysis.contrast_results import ContrastResult, ContrastResults, evaluate_contrasts
from replaylab.study.analysis.planned_looks import contrasts_at_look
from replaylab.study.report import figures, verdict_matrix
from replaylab.study.report.page import keys_of
from replaylab.study.report.verdict_matrix import MatrixCell, VerdictMatrix

if TYPE_CHECKING:
    from replaylab.plotting.drawing import Drawing
    from replaylab.study.analysis.comparisons import Curve
    from replaylab.study.report.page import Page, ReportFigure, ReportTable

_VERDICTS = {
    "higher": "higher",
    "lower": "lower",
    "equivalent": "equivalent within the bounds",
    "undecided": "undecided",
    "passed": "passed",
    "failed": "failed",
}

_READING = (
    "Small dots: one seed each. Large dot and bar: {} with its 95 % interval. Grey bands: differences declared "
    "beforehand not to matter."
)
_TOGETHER = (
    "Interquartile mean over seeds of the difference within a seed, with its 95 % bootstrap interval; p by "
    "flipping the signs of whole seeds or by the interval, whichever is larger, alone and corrected over all "
    "contrasts (max-T). Cells: results that were compared."
)
_BY_ROLE = (
    "Mean over seeds of the difference within a seed, with its 95 % interval: of the primary contrast and of checks "
    "alone, of the others simultaneous; p alone, and corrected over those others (max-T). Cells: results that were "
    "compared."
)


@dataclass(frozen=True)
class ContrastSection:
    """What a report has of contrasts: verdicts at a glance, the first as a picture, sentences, warnings, numbers."""

    results: Sequence[ContrastResult]
    matrix: VerdictMatrix
    picture: ReportFigure | None
    """The primary contrast; None where no contrast has a result."""

    sentences: Sequence[str]
    warnings: Sequence[str]
    figures: Sequence[ReportFigure]
    table: ReportTable

    legend: str = (
        "▲ and ▼: shown by the corrected test, beside the 95 % interval (small); better and worse where the study "
        "says which is the good one, else higher and lower. ≈ equivalent: within the bounds that were declared not to "
        "matter. ○ undecided: none of these, which does not mean that there is no difference."
    )

    @property
    def answer(self) -> tuple[str, str] | None:
        """The primary contrast's question and, in words, what came out; None without one."""
        primary = next((f for f in self.results if f.contrast.primary), None)
        return None if primary is None else (primary.contrast.question or primary.contrast.name, sentence(primary))


def section(page: Page, curves_of: Callable[[str], Sequence[Curve]]) -> ContrastSection | None:
    """Return what the page shows of the study's contrasts, or None where it has none; writes their files."""
    if not page.spec.contrasts:
        return None
    evaluated = contrasts_at_look(evaluate_contrasts(page.spec, curves_of), page.spec)
    units = list(dict.fromkeys(f.contrast.unit for f in evaluated.results))
    shown = [
        _forest(page, [f for f in evaluated.results if f.contrast.unit == unit], unit, key, _reading(page))
        for unit, key in zip(units, keys_of("contrasts", units), strict=True)
    ]
    return ContrastSection(
        evaluated.results,
        _matrix(evaluated.results),
        _picture(page, evaluated.results),
        [sentence(f) for f in evaluated.results],
        evaluated.warnings,
        shown,
        table(page, evaluated.results),
    )


def _reading(page: Page) -> str:
    return _READING.format("mean" if page.spec.judged_by_role else "interquartile mean")


def word(found: ContrastResult) -> str:
    """Return the verdict in one word: better or worse where the study says which is which, else as it is."""
    if found.contrast.better is None or found.verdict not in ("higher", "lower"):
        return found.verdict
    return "better" if found.verdict == found.contrast.better else "worse"


def _matrix(found: Sequence[ContrastResult]) -> VerdictMatrix:
    """Return the verdicts: a row for each contrast."""
    rows = [(f.contrast.name, [_cell(f)]) for f in found]
    units = list(dict.fromkeys(f.contrast.unit for f in found))
    column = f"Difference, in {units[0]}" if len(units) == 1 else "Difference"
    return VerdictMatrix("What the study asked", "Contrast", [column], rows)


def _cell(found: ContrastResult) -> MatrixCell:
    """Return the verdict with its numbers, as the sentence on the contrast has them."""
    effect, low, high = _numbers(found)
    return MatrixCell(word(found), verdict_matrix.SIGNS[word(found)], effect, f"{low} to {high}")


def _numbers(found: ContrastResult) -> list[str]:
    """Return the estimate and the interval's ends; what is only rounding of a sum, beside the others, is 0."""
    scale = max(abs(one) for one in found.size if math.isfinite(one))
    return [signed_significant(one if abs(one) > _ROUNDING * scale else 0.0) for one in found.size]


_ROUNDING = 1e-9


def _picture(page: Page, found: Sequence[ContrastResult]) -> ReportFigure | None:
    """Return the primary contrast as a picture, with what it is in each environment; without one, the first."""
    if not found:
        return None
    main = next((f for f in found if f.contrast.primary), found[0])
    of_environments = {f"{main.contrast.name}, {environment}" for environment in page.spec.environments}
    parts = [f for f in found if f.contrast.name in of_environments]
    return page.figure(
        "primary_contrast",
        main.contrast.question or main.contrast.name,
        f"{sentence(main)} {_reading(page)}",
        forest([main, *parts]),
        ("contrast", "seed", "difference"),
        _seed_rows([main, *parts]),
    )


def lines(evaluated: ContrastResults) -> list[str]:
    """Return the results as lines for a terminal."""
    return [
        *(f"{f.contrast.name}: {sentence(f)}" for f in evaluated.results),
        *(f"warning: {w}" for w in evaluated.warnings),
    ]


def sentence(found: ContrastResult) -> str:
    """Return the verdict on one contrast in words, with its numbers.

    Differences are in the contrast's own unit; "undecided" is not "no difference".
    """
    one = found.contrast
    if found.verdict == "not interpretable":
        return f"Not interpretable: {'; '.join(found.failed_checks)} (see there)."
    if one.check is not None:
        return _of_check(found, one.check)
    bounded = ""
    judged = f" ({word(found)})" if word(found) != found.verdict else ""
    verdict, corrected = _VERDICTS[found.verdict], f"p {equals_p(found.p_max_t)} after max-T correction"
    if one.primary:
        corrected = f"p {equals_p(found.p)}, the study's one primary contrast"
    if one.equivalence is not None:
        bounds = f"±{significant(one.equivalence)}"
        verdict = verdict.replace("the bounds", bounds)
        bounded = "" if found.verdict == "equivalent" else f"bounds {bounds}; "
    estimate, low, high = _numbers(found)
    return (
        f"{verdict[0].upper()}{verdict[1:]}{judged}: {estimate} {unit(one.unit)} "
        f"(95 % interval {low} to {high}; {bounded}{corrected}; "
        f"{counted(len(found.each.seeds), 'seed')}, {counted(found.cells, 'cell')})."
    )


def _of_check(found: ContrastResult, bounds: tuple[float, float]) -> str:
    """Return what came of a manipulation check."""
    estimate, low, high = _numbers(found)
    wanted = " to ".join(map(signed_significant, bounds))
    return (
        f"Check {found.verdict}: {estimate} {unit(found.contrast.unit)} (95 % interval {low} to {high}; it must lie "
        f"within {wanted}; {counted(len(found.each.seeds), 'seed')}, {counted(found.cells, 'cell')})."
    )


def unit(name: str) -> str:
    """Return a unit in words."""
    return {"score": "score", "return": "of return"}.get(name, f"of {name}")


def table(page: Page, found: Sequence[ContrastResult]) -> ReportTable:
    """Return all numbers of the contrasts."""
    return page.table(
        "contrasts",
        "Every contrast",
        _BY_ROLE if page.spec.judged_by_role else _TOGETHER,
        ("Contrast", "Unit", "Difference", "95 %", "p", "p (max-T)", "Bounds", "Seeds", "Cells", "Verdict"),
        [
            (
                f.contrast.name,
                f.contrast.unit,
                effect,
                f"{low} to {high}",
                p_value(f.p),
                p_value(f.p_max_t),
                "–" if f.contrast.equivalence is None else f"±{significant(f.contrast.equivalence)}",
                str(len(f.each.seeds)),
                str(f.cells),
                f.verdict,
            )
            for f in found
            for effect, low, high in [_numbers(f)]
        ],
        (
            *("contrast", "question", "metric", "measure", "unit", "difference", "low", "high", "inner_low"),
            *("inner_high", "p", "p_max_t", "equivalence", "seeds", "groups", "cells", "verdict"),
        ),
        (_row(f) for f in found),
    )


def _row(f: ContrastResult) -> tuple[Any, ...]:
    one = f.contrast
    named = (one.name, one.question, one.metric, one.measure, one.unit)
    sizes = (*f.size, f.inner.low, f.inner.high, f.p, f.p_max_t, "" if one.equivalence is None else one.equivalence)
    return (*named, *sizes, len(f.each.seeds), f.groups, f.cells, f.verdict)


def _forest(page: Page, found: Sequence[ContrastResult], unit_name: str, key: str, reading: str) -> ReportFigure:
    return page.figure(
        key,
        f"Contrasts, in {unit_name}",
        reading,
        forest(found),
        ("contrast", "seed", "difference"),
        _seed_rows(found),
    )


def _seed_rows(found: Sequence[ContrastResult]) -> Iterator[Sequence[Any]]:
    for f in found:
        for seed, value in zip(f.each.seeds.tolist(), f.each.values.tolist(), strict=True):
            yield f.contrast.name, seed, value


def forest(found: Sequence[ContrastResult]) -> Drawing:
    """Draw the contrasts of one unit: every seed, the estimate with its interval, the equivalence bounds."""
    rows = [
        figures.Row(
            f.contrast.name,
            palette.HUES[0][0] if f.verdict in ("higher", "lower") else palette.BASELINE[0],
            f.size,
            f.each.values,
            f.contrast.equivalence,
        )
        for f in found
    ]
    ends = np.abs(np.concatenate([[*r.runs, *r.middle, r.bound or 0.0] for r in rows]))
    edge = 1.06 * float(ends[np.isfinite(ends)].max()) or 1.0  # an interval without ends goes from edge to edge
    name = found[0].contrast.unit
    drawn = figures.Dots(f"Difference in {name}", rows, reference=0.0, limits=(-edge, edge))
    return figures.dots([("", [drawn])], f"across: difference in {name}; blue: decided by the test")
