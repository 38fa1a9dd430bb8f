"""The report of a study: one HTML file, with every figure and table beside it as SVG, PNG and CSV.

It reads the study's folder alone and never imports the training code. The same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jinja2

from replaylab.errors import SpecError
from replaylab.files.atomic import write_text
from replaylab.plotting import palette, svg
from replaylab.study.analysis import comparisons as analysis
from replaylab.study.report import contrast_section as contrast_report
from replaylab.study.report import effect_sizes as effects
from replaylab.study.report import looks, methods
from replaylab.study.report import measure_sections as beside
from replaylab.study.report import over_environments as overall
from replaylab.study.report import return_sections as sections
from replaylab.study.report import sentences as words
from replaylab.study.report.page import Page, ReportFigure, Section
from replaylab.study.report.return_sections import Told

if TYPE_CHECKING:
    from pathlib import Path

    from replaylab.study.report.reported import ReportedStudy

SECTIONS: tuple[Callable[[Page, Told], Section | None], ...] = (
    sections.learning,
    sections.heights,
    sections.distances,
    effects.section,
    overall.section,
    beside.section,
    sections.inside,
)
"""What stands between the answer and the methods, in this order; a section that has nothing to show is None."""


def write_report(study: ReportedStudy, out: Path, *, figure_files: bool = True) -> Path:
    """Write ``report.html``, ``figures/`` and ``tables/`` into a folder and return the page's path.

    Args:
        study: what is reported; its own folder is only read.
        out: the folder to write to, made where it is missing; the study's own remembers with which seeds.
        figure_files: whether to write ``figures/``.

    Raises:
        SpecError: the folder holds no results of these settings.
    """
    rows = study.results()
    curves = analysis.curves_of(rows, study.spec, analysis.RETURN)
    if not curves:
        raise SpecError(f"{study.folder}: the results hold no {analysis.RETURN}, so there is nothing to compare.")
    page = Page(study, rows, curves, out, figure_files=figure_files)
    spec = study.spec
    told = Told(analysis.levels(curves), analysis.differences(curves, spec.baseline), analysis.spending(rows, spec))
    with svg.style():
        asked = contrast_report.section(page, page.curves_of)
        shown = [section for make in SECTIONS if (section := make(page, told))]
    html = _template().render(
        spec=spec,
        fonts=svg.FONTS,
        figure_files=figure_files,
        variables=palette.variables(),
        looks=page.looks,
        answers=words.answers(told.differences, told.levels, spec) if told.differences and not asked else [],
        compared=words.compared(spec),
        budgets=words.budgets(told.spent, spec),
        warnings=_warnings(page),
        asked=asked,
        sections=shown,
        is_figure=lambda one: isinstance(one, ReportFigure),
        methods=methods.of(study),
    )
    path = out / "report.html"
    write_text(path, html)
    if out.resolve() == study.folder.resolve():
        looks.note(study, looks.seeds_of(curves))
    return path


def _warnings(page: Page) -> list[str]:
    study, found = page.study, []
    missing = [p for p in study.populations if not study.file_of(p).is_file()]
    if missing:
        found.append(
            f"Incomplete: {sum(len(p.seeds) for p in missing)} of {words.counted(page.spec.runs, 'run')} "
            f"are missing. What follows is about those that are there."
        )
    if not any(c.strategy == page.spec.baseline for c in page.curves):
        found.append(f"The runs of the baseline, {page.spec.baseline}, are missing, so nothing is compared with it.")
    found += filter(None, (words.few_seeds(page.spec), looks.warning(study, looks.seeds_of(page.curves))))
    made_with = _versions_of_files(study)
    if len(made_with) > 1:
        found.append(f"The runs were made with different library versions: {'; '.join(sorted(made_with))}.")
    return found


def _versions_of_files(study: ReportedStudy) -> set[str]:
    from replaylab.study.results.store import read_metadata

    versions = (read_metadata(study.file_of(p))["versions"] for p in study.present)
    return {", ".join(f"{k} {v}" for k, v in each.items()) for each in versions}


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("replaylab", "study/report/templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.jinja")
