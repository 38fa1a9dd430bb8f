"""The contrasts of a report: verdicts, sentences, figures and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replaylab.number_format import decimals, p_value, signed_significant
from replaylab.plotting import palette
from replaylab.study.analysis.contrast_results import ByEnvironment, ContrastResult, evaluate_contrasts, heterogeneity
from replaylab.study.report import figures, headline, sentences, tables, verdict_matrix
from replaylab.study.report.headline import sentence
from replaylab.study.report.page import Column, keys_of, seed_rows
from replaylab.study.report.sections import replay_measures
from replaylab.study.report.verdict_matrix import MatrixCell, VerdictMatrix

if TYPE_CHECKING:
    from replaylab.plotting.drawing import Drawing
    from replaylab.study.report.page import Page, ReportFigure, ReportTable
    from replaylab.study.spec.declared_contrasts import PublishedStatement

_READING = "Small dots: one seed each. Large dot and bar: {}. Grey band: the equivalence margin."
_BAR = (
    "interquartile mean with its uncorrected 95 % interval, or, if the verdict is “equivalent”, with the interval that "
    "decides that"
)
_BAR_BY_ROLE = (
    "mean with its 95 % interval, simultaneous for the contrasts of the family, or, if the primary contrast is "
    "“equivalent”, with the 90 % interval that decides that"
)
_TOGETHER = (
    "Interquartile mean over seeds of the difference within a seed, with its 95 % bootstrap interval, uncorrected; p "
    "by flipping the signs of whole seeds or by the interval, whichever is larger, alone and corrected over all "
    "contrasts (max-T). The equivalence interval decides “equivalent”, for each contrast by itself. Margin: the "
    "declared equivalence margin. Cells: an environment, a learner and a strategy each whose results are compared."
)
_BY_ROLE = (
    "Mean over seeds of the difference within a seed, with its 95 % interval: of the primary contrast and of checks "
    "alone, of the others simultaneous; p alone, and corrected over those others (max-T). The equivalence interval "
    "decides “equivalent”; for the others it is the simultaneous one. Margin: the declared equivalence margin. Cells: "
    "combinations of an environment, a learner and a strategy whose results are compared."
)
_LEGEND = (
    "▲ higher, ▼ lower: {}. ≈ equivalent: the interval lies within the margin that was declared beforehand. "
    "○ inconclusive: none of these; there may be a difference.{}{}"
)
_DECIDED_TOGETHER = "the first side is, by the test corrected for all contrasts and by the uncorrected 95 % interval"
_DECIDED_BY_ROLE = "the first side is, by the interval beside it"
_MAY_EXCLUDE = " The uncorrected interval beside it may exclude 0, because the verdict is corrected."
_EFFECTIVE = (
    " Effective rows: effective batch size of the first side vs the second, the mean over its cells. If the sides "
    "differ in it, part of the difference may come from the noise of their updates."
)
_IN_ENVIRONMENTS = (
    "Each manipulation check, with 95 % intervals, on the mean of all environments and in each environment. The mean "
    "decides whether the contrasts are interpreted, and each environment if the study declares it. If a check fails in "
    "an environment, the contrasts there are weaker evidence."
)
_HETEROGENEITY = (
    "Whether a contrast differs between environments: Q, the squared distances of their means from the common mean in "
    "standard errors, and its p-value from resampled seeds, not corrected. Where p is small, the mean of the "
    "environments describes no single one."
)
_PUBLISHED = (
    "Each contrast that tests a published statement. Reproduced: its verdict agrees with the statement. Not "
    "reproduced: its verdict contradicts it. Contested: it is inconclusive or not interpretable."
)
_CHECKS = " Checks test whether the strategies changed what they were meant to change; ✓ passed, ✗ failed."


@dataclass(frozen=True)
class ContrastSection:
    """The contrasts on a page: verdicts at a glance, a picture of the first, sentences, warnings, numbers."""

    results: Sequence[ContrastResult]
    matrix: VerdictMatrix
    picture: ReportFigure | None
    """The primary contrast; None where no contrast has a result."""

    warnings: Sequence[str]
    figures: Sequence[ReportFigure]
    tables: Sequence[ReportTable]
    legend: str

    @property
    def others(self) -> list[tuple[str, str]]:
        """Question or name, and verdict in words, of all contrasts except the one in the headline."""
        main = headline.main_contrast(self.results)
        return [(f.contrast.question or f.contrast.name, sentence(f)) for f in self.results if f is not main]


def section(page: Page) -> ContrastSection | None:
    """Return what the page shows of the study's contrasts, or None where it has none; writes their files."""
    if not page.spec.contrasts:
        return None
    evaluated = evaluate_contrasts(page.spec, page.curves_of)
    units = list(dict.fromkeys(f.contrast.unit for f in evaluated.results))
    shown = []
    for unit_name, key in zip(units, keys_of("contrasts", units), strict=True):
        of_unit = [f for f in evaluated.results if f.contrast.unit == unit_name]
        title = f"All contrasts: differences in {headline.unit(of_unit[0].contrast)}"
        shown.append(_figure(page, key, title, _reading(page), of_unit))
    return ContrastSection(
        evaluated.results,
        matrix(evaluated.results),
        _picture(page, evaluated.results),
        evaluated.warnings,
        shown,
        [
            table(page, evaluated.results),
            *published_table(page, evaluated.results),
            *checks_table(page, evaluated.results),
            *heterogeneity_table(page, evaluated.results),
        ],
        _legend(page, evaluated.results),
    )


def _reading(page: Page) -> str:
    return _READING.format(_BAR_BY_ROLE if page.spec.judged_by_role else _BAR)


def _legend(page: Page, results: Sequence[ContrastResult]) -> str:
    by_role = page.spec.judged_by_role
    checks = _CHECKS if any(f.contrast.check is not None for f in results) else ""
    decided = _DECIDED_BY_ROLE if by_role else _DECIDED_TOGETHER
    return _LEGEND.format(decided, "" if by_role else _MAY_EXCLUDE, checks) + headline.meanings(results, page.spec)


def matrix(results: Sequence[ContrastResult]) -> VerdictMatrix:
    """Return the verdicts, a row for each contrast, with the numbers that its sentence has."""
    units = list(dict.fromkeys(headline.unit(f.contrast) for f in results))
    column = f"Difference in {units[0]}" if len(units) == 1 else "Difference"
    return VerdictMatrix("What was compared", "Comparison", [column], [(_named(f), [_cell(f)]) for f in results])


def _cell(result: ContrastResult) -> MatrixCell:
    """Return the verdict on a contrast, with the difference and its interval in words."""
    seeds, better = len(result.each.seeds), result.contrast.better
    return verdict_matrix.cell(result.verdict, result.reported, seeds, headline.margin(result), better)


def _named(result: ContrastResult) -> str:
    """Return a contrast's name with its comparison."""
    contrast = result.contrast
    what = f"{contrast.versus}, {headline.measured(contrast)}"
    return what if contrast.name == contrast.versus else f"{contrast.name}: {what}"


def _picture(page: Page, results: Sequence[ContrastResult]) -> ReportFigure | None:
    """Return the primary contrast as a picture, with what it is in each environment; without one, the first."""
    main = headline.main_contrast(results)
    if main is None:
        return None
    of_environments = {f"{main.contrast.name}, {environment}" for environment in page.spec.environments}
    parts = [f for f in results if f.contrast.name in of_environments]
    title = f"{main.contrast.versus}, seed by seed"
    return _figure(page, "primary_contrast", sentences.capital(title), _reading(page), [main, *parts])


def table(page: Page, results: Sequence[ContrastResult], key: str = "contrasts") -> ReportTable:
    """Return all numbers of the contrasts, in a file of that name."""
    interval = "95 %" if page.spec.judged_by_role else tables.UNCORRECTED_HEAD
    columns: list[Column[ContrastResult]] = [
        Column("Contrast", lambda f: f.contrast.name, "contrast", lambda f: f.contrast.name),
        Column("Comparison", lambda f: f.contrast.versus),
        Column(names="question", numbers=lambda f: f.contrast.question),
        Column(names="metric", numbers=lambda f: f.contrast.metric),
        Column(names="measure", numbers=lambda f: f.contrast.measure),
        Column("Unit", lambda f: headline.unit(f.contrast), "unit", lambda f: f.contrast.unit),
        Column("Difference", lambda f: sentences.effect(f.size), "difference low high", lambda f: f.size),
        Column(
            interval,
            lambda f: sentences.effect_interval(f.size, len(f.each.seeds)),
            "inner_low inner_high",
            lambda f: f.inner[1:],
        ),
        Column("p", lambda f: p_value(f.p), "p", lambda f: f.p),
        Column("p (max-T)", lambda f: p_value(f.p_max_t), "p_max_t", lambda f: f.p_max_t),
        Column(
            "Margin", headline.margin, "equivalence", lambda f: "" if f.equivalence is None else f.contrast.equivalence
        ),
        Column(tables.EQUIVALENCE_HEAD, lambda f: tables.equivalence_interval(f.equivalence)),
        Column("Seeds", lambda f: str(len(f.each.seeds)), "seeds", lambda f: len(f.each.seeds)),
        Column(names="groups", numbers=lambda f: f.groups),
        Column("Cells", lambda f: str(f.cells), "cells", lambda f: f.cells),
        Column("Verdict", lambda f: sentences.in_words(f.verdict, headline.margin(f)), "verdict", lambda f: f.verdict),
    ]
    caption = _BY_ROLE if page.spec.judged_by_role else _TOGETHER
    rows = replay_measures.effective_rows(page.curves_of)
    if any(effective := [replay_measures.effective_of_sides(f.contrast, rows) for f in results]):
        columns.insert(-1, _effective_column(dict(zip((f.contrast.name for f in results), effective, strict=True))))
        caption += _EFFECTIVE
    return page.table(key, "Every contrast", caption, results, columns)


def _effective_column(of: Mapping[str, tuple[float, float] | None]) -> Column[ContrastResult]:
    """Return the column of effective rows, from those of both sides by the contrast's name."""

    def text(result: ContrastResult) -> str:
        sides = of[result.contrast.name]
        return " vs ".join(map(decimals, sides)) if sides else "–"

    def numbers(result: ContrastResult) -> tuple[float, float] | tuple[str, str]:
        return of[result.contrast.name] or ("", "")

    return Column("Effective rows", text, "effective_rows_more effective_rows_less", numbers)


def published_table(page: Page, results: Sequence[ContrastResult]) -> list[ReportTable]:
    """Return the table of published statements beside the results; none without statements."""
    stated = [(result, result.contrast.published) for result in results if result.contrast.published is not None]
    if not stated:
        return []
    columns: list[Column[tuple[ContrastResult, PublishedStatement]]] = [
        Column("Contrast", lambda s: s[0].contrast.name, "contrast", lambda s: s[0].contrast.name),
        Column("Published", lambda s: s[1].says, "published", lambda s: s[1].says),
        Column("Source", lambda s: s[1].source, "source", lambda s: s[1].source),
        Column(
            "Difference here", lambda s: _cell(s[0]).effect, "difference low high", lambda s: s[0].reported.interval
        ),
        Column("Interval", lambda s: _cell(s[0]).interval, "interval", lambda s: s[0].reported.label),
        Column("Verdict", lambda s: _cell(s[0]).word),
        Column("Outcome", lambda s: str(s[0].outcome), "outcome", lambda s: s[0].outcome),
    ]
    return [page.table("published", "Published statements", _PUBLISHED, stated, columns)]


def checks_table(page: Page, results: Sequence[ContrastResult]) -> list[ReportTable]:
    """Return the table of manipulation checks by environment; none for a single environment or without checks."""
    parts = [
        (f, environment, part)
        for f in results
        if f.by_environment
        for environment, part in [(_MEAN, f), *f.by_environment.items()]
    ]
    if not parts:
        return []
    columns: list[Column[tuple[ContrastResult, str, ContrastResult]]] = [
        Column("Contrast", lambda p: p[0].contrast.name, "check", lambda p: p[0].contrast.name),
        Column("Environment", lambda p: p[1], "environment", lambda p: p[1]),
        Column(names="metric", numbers=lambda p: p[0].contrast.metric),
        Column("Difference", lambda p: sentences.effect(p[2].size), "difference low high", lambda p: p[2].size),
        Column("95 %", lambda p: sentences.effect_interval(p[2].size, len(p[2].each.seeds))),
        Column(
            "Must lie within",
            lambda p: " to ".join(map(signed_significant, p[0].contrast.check or ())),
            "least most",
            lambda p: p[0].contrast.check,
        ),
        Column("Seeds", lambda p: str(len(p[2].each.seeds)), "seeds", lambda p: len(p[2].each.seeds)),
        Column("Cells", lambda p: str(p[2].cells), "cells", lambda p: p[2].cells),
        Column("Verdict", lambda p: p[2].verdict, "verdict", lambda p: p[2].verdict),
    ]
    return [page.table("checks", "Checks by environment", _IN_ENVIRONMENTS, parts, columns)]


def heterogeneity_table(page: Page, results: Sequence[ContrastResult]) -> list[ReportTable]:
    """Return the table of tests whether contrasts differ between environments; none without such contrasts."""
    tested = heterogeneity(results)
    if not tested:
        return []
    columns: list[Column[ByEnvironment]] = [
        Column("Contrast", lambda t: t[0].contrast.name, "contrast", lambda t: t[0].contrast.name),
        Column("Environments", lambda t: str(t[1]), "environments", lambda t: t[1]),
        Column("Q", lambda t: decimals(t[2].q), "q", lambda t: t[2].q),
        Column("p", lambda t: p_value(t[2].p), "p", lambda t: t[2].p),
    ]
    return [page.table("heterogeneity", "Differences between environments", _HETEROGENEITY, tested, columns)]


_MEAN = "mean"
"""In the column of environments: all of them."""


def _figure(page: Page, key: str, title: str, caption: str, results: Sequence[ContrastResult]) -> ReportFigure:
    numbers = (row for f in results for row in seed_rows((f.contrast.name,), f.each.seeds, f.each.values))
    return page.figure(key, title, caption, forest(results), ("contrast", "seed", "difference"), numbers)


def forest(results: Sequence[ContrastResult]) -> Drawing:
    """Draw the contrasts of one unit: every seed, the estimate with its interval, the equivalence bounds."""
    rows = [
        figures.Row(
            f.contrast.name,
            palette.HUES[0][0] if f.verdict in ("higher", "lower") else palette.BASELINE[0],
            f.reported.interval,
            f.each.values,
            f.contrast.equivalence,
        )
        for f in results
    ]
    ends = np.abs(np.concatenate([[*r.runs, *r.middle, r.bound or 0.0] for r in rows]))
    edge = 1.06 * float(ends[np.isfinite(ends)].max()) or 1.0  # an interval without ends goes from edge to edge
    name = headline.unit(results[0].contrast)
    sides = {f.contrast.sides for f in results}
    first, second = sides.pop() if len(sides) == 1 else ("first side", "second side")
    verb = "gains more" if any(f.contrast.of or f.contrast.weighted for f in results) else "higher"
    ends = (f"{second} {verb}", f"{first} {verb}")
    drawn = figures.Dots(f"Difference in {name}", rows, reference=0.0, limits=(-edge, edge), ends=ends)
    return figures.dots([("", [drawn])], f"across: difference in {name}; blue: higher or lower, by the test")
