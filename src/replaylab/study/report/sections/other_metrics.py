"""Differences from the baseline in the metrics that the study file lists."""

from __future__ import annotations

from replaylab.learners.metrics import REGISTRY
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import tables
from replaylab.study.report.page import Page, Section, keys_of
from replaylab.study.report.sections.differences import DIFFERENCES


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return a table of differences for each of the study's `metrics`; None where it lists none."""
    if not page.spec.metrics:
        return None
    shown, absent = [], []
    for metric, key in zip(page.spec.metrics, keys_of("differences", page.spec.metrics), strict=True):
        differences = comparisons.differences_of(page.curves_of(metric), page.spec, metric)
        if not differences:
            absent.append(f"Nothing to compare in {metric}: two strategies of one seed that recorded it are needed.")
            continue
        shown.append(tables.difference_table(page, differences, key, titled(metric)))
    return Section(
        f"{DIFFERENCES} {page.spec.title_of(page.spec.baseline)}",
        shown,
        [
            "Each metric is its own family in the correction. “Higher” does not mean better, and of "
            "several metrics one may differ by chance: declare what the study is to answer as a contrast."
        ],
        points=absent,
        subtitle="Other metrics",
    )


def titled(metric: str) -> str:
    """Return a metric's name, and its title and unit where the library knows them."""
    return f"{metric} ({REGISTRY[metric].title}; {REGISTRY[metric].unit})" if metric in REGISTRY else metric
