"""Final performance: every run's final and average return, and the table."""

from __future__ import annotations

from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import figures, tables
from replaylab.study.report.page import KEYS, Page, Section, seed_rows

TITLE = "Final performance"


def section(page: Page, results: ComparisonResults) -> Section:
    """Return every run's final and average return, and the table."""
    of = {c.key: c for c in page.curves}
    panels = page.dots_by_measure(
        results.levels, lambda level: page.row(level.strategy, level.iqm, of[level.key].of_runs(level.measure))
    )
    figure = page.figure(
        "levels",
        "Final and average return of every run",
        "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}"),
        (*KEYS, "measure", "seed", "value"),
        (
            row
            for m in comparisons.MEASURES
            for c in page.curves
            for row in seed_rows((*c.key, m), c.seeds, c.of_runs(m))
        ),
    )
    text = (
        f"Two measures of a run, both in units of the return. Its final return is the mean of its evaluations in the "
        f"last {100 * comparisons.FINAL_SHARE:.0f} % of the budget. Its average return is the area under its learning "
        f"curve, divided by the curve’s length (if budgets differ, up to the shortest)."
    )
    return Section(TITLE, [tables.level_table(page, results.levels), figure], [text])
