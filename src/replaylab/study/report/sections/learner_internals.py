"""Learner diagnostics: budgets, and curves of what the learner logged. Shown, not tested."""

from __future__ import annotations

from collections.abc import Iterable

from replaylab.learners.metrics import REGISTRY
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import figures, tables
from replaylab.study.report.page import BAND, Page, ReportFigure, Section, Shown, band_rows, cells_of

_CURVES = (
    "rollout/ep_rew",
    "eval/held_out_q",
    "eval/value_error",
    "train/q_mean",
    "train/td_error_mean",
    "train/loss",
    "trace/q_minus_return",
)
"""Metrics whose curves are shown, where they were recorded."""

_OF_MANY = ("eval/held_out_q",)
"""Those of many strategies, each of which has its own panel."""

_POINTS = 50
"""Points of those curves; more would not be seen."""

TITLE = "Learner diagnostics"


def section(page: Page, results: ComparisonResults) -> Section | None:
    """Return the learner's budgets and the curves of its logged metrics, fewer if there are many strategies."""
    shown: list[Shown] = [tables.budget_table(page, results.spent)] if results.spent else []
    shown.extend(_figures(page))
    return Section(TITLE, shown) if shown else None


def _figures(page: Page) -> Iterable[ReportFigure]:
    for metric in _OF_MANY if page.many_strategies else _CURVES:
        shown = REGISTRY[metric]
        curves = [comparisons.thinned(curve, _POINTS) for curve in page.curves_of(metric)]
        if curves:
            cells = cells_of(curves)
            yield page.figure(
                metric.replace("/", "_"),
                shown.title,
                f"{metric}: interquartile mean over runs, with pointwise 95 % bootstrap intervals, at up to "
                f"{_POINTS} points. Shown, not tested.",
                figures.curves(cells, page.curve_style(shown.axis), small=len(cells) > 2),
                BAND,
                band_rows(cells),
            )
