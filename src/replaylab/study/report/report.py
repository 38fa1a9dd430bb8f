"""The report of a study: one HTML file, with every figure and table beside it as SVG, PNG and CSV.

It reads the study's folder alone and never imports the training code. The same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from replaylab.errors import SpecError
from replaylab.files.atomic import write_text
from replaylab.plotting import svg
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import earlier_reports, methods, pages, sentences, verdict_matrix
from replaylab.study.report.caveats import caveats
from replaylab.study.report.headline import of_differences
from replaylab.study.report.page import Page, ReportFigure, Section
from replaylab.study.report.sections import (
    all_environments,
    contrasts,
    differences,
    effect_sizes,
    learner_internals,
    learning_curves,
    levels,
    looks,
    other_metrics,
    planned_looks,
    replay_measures,
    traces,
    visits,
)
from replaylab.study.report.what_ran import what_ran
from replaylab.study.results.folder import is_published

if TYPE_CHECKING:
    from pathlib import Path

    from replaylab.study.report.reported_study import ReportedStudy
    from replaylab.study.report.sections.contrasts import ContrastSection

SECTIONS: tuple[Callable[[Page, ComparisonResults], Section | None], ...] = (
    learning_curves.section,
    levels.section,
    all_environments.section,
    differences.section,
    planned_looks.section,
    other_metrics.section,
    effect_sizes.section,
    replay_measures.section,
    learner_internals.section,
    traces.section,
    visits.section,
    looks.section,
)
"""What stands between the summary and the methods, in this order; a section that has nothing to show is None.

Neighbours with the same title are one part of the page.
"""


def write_report(study: ReportedStudy, out: Path, *, figure_files: bool = True) -> Path:
    """Write ``report.html``, ``figures/`` and ``tables/`` into a folder and return the page's path.

    Args:
        study: what is reported; its own folder is only read.
        out: the folder to write to, made where it is missing; the study's own remembers with which seeds.
        figure_files: whether to write ``figures/``; moving pictures that the page links to are written all the same.

    Raises:
        SpecError: the folder holds no results of these settings.
    """
    rows = study.results()
    curves = comparisons.curves_of(rows, study.spec, comparisons.RETURN)
    if not curves:
        raise SpecError(f"{study.folder}: the results hold no {comparisons.RETURN}, so there is nothing to compare.")
    page = Page(study, rows, curves, out, figure_files=figure_files)
    spec = study.spec
    results = comparisons.compare(rows, spec, curves)
    with svg.style():
        contrast_section = contrasts.section(page, page.curves_of)
        shown = [section for make in SECTIONS if (section := make(page, results))]
    picture, shown = _picture(contrast_section, shown)
    line = contrasts.of_report(contrast_section.results) if contrast_section else of_differences(results, spec)
    html = pages.render(
        "report",
        spec=spec,
        figure_files=figure_files,
        swatches=page.swatches,
        headline=line,
        definitions=sentences.DEFINITIONS,
        matrices=verdict_matrix.matrices(page, results.differences),
        matrix_legend=verdict_matrix.legend(spec),
        picture=picture,
        contents=[
            (SUMMARY, "part-summary"),
            *{section.title: section.anchor for section in shown}.items(),
            (METHODS, "part-methods"),
        ],
        compared=sentences.compared(what_ran(study)),
        budgets=sentences.budgets(results.spent, spec),
        warnings=caveats(page),
        contrasts=contrast_section,
        parts=[list(part) for _, part in groupby(shown, lambda section: section.title)],
        methods=methods.of(study),
    )
    path = out / "report.html"
    _remove_left_over(path, html)
    write_text(path, html)
    if out.resolve() == study.folder.resolve() and not is_published(out):
        earlier_reports.note(study, earlier_reports.seeds_of(curves))
    return path


SUMMARY, METHODS = "Summary", "Methods"
"""Titles of the first and the last part."""

_LINKED = re.compile(r'(?:href|src)="((?:figures|tables)/[\w.-]+)"')


def _remove_left_over(page: Path, html: str) -> None:
    """Remove the files that the page of before links to and the one of now does not, such as a dropped contrast's."""
    if page.exists():
        before = page.read_text(encoding="utf-8", errors="replace")
        for name in set(_LINKED.findall(before)).difference(_LINKED.findall(html)):
            (page.parent / name).unlink(missing_ok=True)


def _picture(
    contrast_section: ContrastSection | None, shown: Sequence[Section]
) -> tuple[ReportFigure | None, list[Section]]:
    """Return the picture beside the verdicts, and the sections without it.

    It is the primary contrast, or, without contrasts, the learning curves where they fit into one panel each.
    """
    if contrast_section is not None:
        return contrast_section.picture, list(shown)
    for i, section in enumerate(shown):
        for part in section.shown:
            if isinstance(part, ReportFigure) and part.key == "learning_curves":
                rest = replace(section, shown=[other for other in section.shown if other is not part])
                return part, [*shown[:i], rest, *shown[i + 1 :]]
    return None, list(shown)
