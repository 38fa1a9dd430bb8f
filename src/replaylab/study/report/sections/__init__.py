"""The sections of a report between its summary and its methods: `SECTIONS`, each a function in its own file."""

from __future__ import annotations

from collections.abc import Callable

from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report.page import Page, Section
from replaylab.study.report.sections import (
    all_environments,
    differences,
    effect_sizes,
    learner_internals,
    learning_curves,
    levels,
    other_metrics,
    replay_measures,
    traces,
    videos,
    visits,
)

SECTIONS: tuple[Callable[[Page, ComparisonResults], Section | None], ...] = (
    learning_curves.section,
    levels.section,
    all_environments.section,
    differences.section,
    other_metrics.section,
    effect_sizes.section,
    replay_measures.section,
    learner_internals.section,
    traces.section,
    visits.section,
    videos.section,
)
"""In the order of the page; a section that has nothing to show returns None.

Neighbors with the same title are one part of the page.
"""
