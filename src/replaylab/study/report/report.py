"""The report of a study: one HTML file, with every figure and table beside it as SVG, PNG and CSV.

It reads only the study's folder, and never imports the training code. The same data give the same bytes.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from replaylab.errors import SpecError
from replaylab.files.atomic import write_text
from replaylab.plotting import svg
from replaylab.study.analysis import comparisons
from replaylab.study.report import earlier_reports, methods
from replaylab.study.report.page import Page, render
from replaylab.study.report.sections import SECTIONS, contrasts
from replaylab.study.report.summary import summarized
from replaylab.study.results.folder import is_published

if TYPE_CHECKING:
    from pathlib import Path

    from replaylab.study.report.reported_study import ReportedStudy


def write_report(study: ReportedStudy, out: Path, *, figure_files: bool = True, refresh: int | None = None) -> Path:
    """Write ``report.html``, ``figures/`` and ``tables/`` into a folder and return the page's path.

    Args:
        study: the study; its own folder is only read.
        out: the folder to write to, made where it is missing; the study's own remembers with which seeds.
        figure_files: whether to write ``figures/``; moving pictures that the page links to are written all the same.
        refresh: seconds after which browsers load the page again, while the study is running. The page is then also
            written before there are results, and the study does not remember it.

    Raises:
        SpecError: the folder holds no results of these settings.
    """
    if refresh is not None and not study.present:
        return _write_page(out, render(spec=study.spec, refresh=refresh, summary=None))
    rows = study.results()
    curves = comparisons.curves_of(rows, study.spec, comparisons.RETURN)
    if not curves:
        raise SpecError(f"{study.folder}: the results hold no {comparisons.RETURN}, so there is nothing to compare.")
    page = Page(study, rows, curves, out, figure_files=figure_files)
    results = comparisons.compare(rows, study.spec, curves)
    with svg.style():
        contrast_section = contrasts.section(page)
        sections = [section for make in SECTIONS if (section := make(page, results))]
    summary, sections = summarized(page, results, contrast_section, sections)
    html = render(
        spec=study.spec,
        refresh=refresh,
        figure_files=figure_files,
        swatches=page.swatches,
        summary=summary,
        contents=[
            ("Summary", "part-summary"),
            *{section.title: section.anchor for section in sections}.items(),
            ("Methods", "part-methods"),
        ],
        contrasts=contrast_section,
        parts=[list(part) for _, part in groupby(sections, lambda section: section.title)],
        methods=methods.of(study),
    )
    path = _write_page(out, html)
    if refresh is None and out.resolve() == study.folder.resolve() and not is_published(out):
        earlier_reports.note(study, earlier_reports.seeds_of(curves))
    return path


def _write_page(out: Path, html: str) -> Path:
    """Write the page, remove files that only the previous one linked to, and return its path."""
    path = out / "report.html"
    _remove_left_over(path, html)
    write_text(path, html)
    return path


_LINKED = re.compile(r'(?:href|src)="((?:figures|tables)/[\w.-]+)"')


def _remove_left_over(page: Path, html: str) -> None:
    """Remove files that only the previous page links to, such as those of a dropped contrast."""
    if page.exists():
        before = page.read_text(encoding="utf-8", errors="replace")
        for name in set(_LINKED.findall(before)).difference(_LINKED.findall(html)):
            (page.parent / name).unlink(missing_ok=True)
