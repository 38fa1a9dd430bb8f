"""The top of a report: the answer, the verdicts at a glance, a picture, the comparison, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import headline, sentences, verdict_matrix
from replaylab.study.report.caveats import caveats
from replaylab.study.report.headline import Headline
from replaylab.study.report.page import Page, ReportFigure, Section
from replaylab.study.report.sections.contrasts import ContrastSection
from replaylab.study.report.verdict_matrix import VerdictMatrix
from replaylab.study.report.what_ran import what_ran


@dataclass(frozen=True)
class Summary:
    """The part of a page above its sections."""

    headline: Headline | None
    matrices: Sequence[VerdictMatrix]
    legend: str
    picture: ReportFigure | None
    compared: str
    budgets: str
    warnings: Sequence[str]
    definitions: str = sentences.DEFINITIONS


def summarized(
    page: Page, results: ComparisonResults, contrasts: ContrastSection | None, sections: Sequence[Section]
) -> tuple[Summary, list[Section]]:
    """Return the summary of a study, and the sections without the figure that the summary shows."""
    spec = page.spec
    picture, sections = _picture(contrasts, sections)
    summary = Summary(
        headline.of_contrasts(contrasts.results) if contrasts else headline.of_differences(results, spec),
        verdict_matrix.matrices(spec, results.differences),
        verdict_matrix.legend(spec),
        picture,
        sentences.compared(what_ran(page.study)),
        sentences.budgets(results.spent, spec),
        caveats(page),
    )
    return summary, sections


def _picture(
    contrasts: ContrastSection | None, sections: Sequence[Section]
) -> tuple[ReportFigure | None, list[Section]]:
    """Return the picture beside the verdicts, and the sections without it.

    It is the primary contrast, or, without contrasts, the learning curves where they fit into one panel each.
    """
    if contrasts is not None:
        return contrasts.picture, list(sections)
    figures = (part for section in sections for part in section.shown if isinstance(part, ReportFigure))
    picture = next((figure for figure in figures if figure.key == "learning_curves"), None)
    rest = [replace(section, shown=[part for part in section.shown if part is not picture]) for section in sections]
    return picture, rest
