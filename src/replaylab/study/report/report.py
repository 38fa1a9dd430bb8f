"""The report of a study: one HTML file, with every figure and table beside it as SVG, PNG and CSV.

It reads the study's folder alone and never imports the training code. The same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from replaylab.errors import SpecError
from replaylab.files.atomic import write_text
from replaylab.plotting import svg
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import earlier_reports, methods, pages, sentences, verdict_matrix
from replaylab.study.report.caveats import caveats
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
    visits,
)
from replaylab.study.report.what_ran import what_ran

if TYPE_CHECKING:
    from pathlib import Path

    from replaylab.study.report.reported_study import ReportedStudy
    from replaylab.study.report.sections.contrasts import ContrastSection

SECTIONS: tuple[Callable[[Page, ComparisonResults], Section | None], ...] = (
    learning_curves.section,
    levels.section,
    differences.section,
    planned_looks.section,
    other_metrics.section,
    effect_sizes.section,
    all_environments.section,
    visits.section,
    looks.section,
    replay_measures.section,
    learner_internals.section,
)
"""What stands between the answer and the methods, in this order; a section that has nothing to show is None."""


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
    answers = (
        sentences.answers(results.differences, results.levels, spec)
        if results.differences and not contrast_section
        else []
    )
    words = "What came out" if answers else "In words" if contrast_section else "What was compared"
    html = pages.render(
        "report",
        spec=spec,
        figure_files=figure_files,
        line_styles=page.line_styles,
        matrices=verdict_matrix.matrices(page, results.differences),
        matrix_legend=verdict_matrix.legend(spec),
        picture=picture,
        words=words,
        contents=[(words, "part-words"), *((one.title, one.anchor) for one in shown), ("Methods", "part-methods")],
        answers=answers,
        compared=sentences.compared(what_ran(study)),
        budgets=sentences.budgets(results.spent, spec),
        warnings=caveats(page),
        contrasts=contrast_section,
        sections=shown,
        methods=methods.of(study),
    )
    path = out / "report.html"
    _remove_left_over(path, html)
    write_text(path, html)
    if out.resolve() == study.folder.resolve():
        earlier_reports.note(study, earlier_reports.seeds_of(curves))
    return path


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
        for one in section.shown:
            if isinstance(one, ReportFigure) and one.key == "learning_curves":
                rest = replace(section, shown=[other for other in section.shown if other is not one])
                return one, [*shown[:i], rest, *shown[i + 1 :]]
    return None, list(shown)
