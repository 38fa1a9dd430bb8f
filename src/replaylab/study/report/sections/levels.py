"""How high each strategy came: every run's level by both measures, and the table."""

from __future__ import annotations

from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import figures, sentences, tables
from replaylab.study.report.page import KEYS, Page, Section


def section(page: Page, results: ComparisonResults) -> Section:
    """Return how high the strategies came: every run's level, and the table."""
    of = {(*c.cell, c.strategy): c for c in page.curves}
    panels = [
        (
            page.heading(*cell),
            [
                figures.Dots(
                    sentences.MEASURE_TITLES[measure],
                    [
                        figures.Row(lv.strategy, page.line_styles[lv.strategy].light, lv.iqm, c.of_runs(measure))
                        for lv in results.levels
                        if (lv.environment, lv.learner, lv.measure) == (*cell, measure)
                        for c in [of[*cell, lv.strategy]]
                    ],
                )
                for measure in comparisons.MEASURES
            ],
        )
        for cell in dict.fromkeys(c.cell for c in page.curves)
    ]
    figure = page.figure(
        "levels",
        "Level of every run",
        "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}"),
        (*KEYS, "measure", "seed", "value"),
        (
            (*c.cell, c.strategy, m, seed, value)
            for m in comparisons.MEASURES
            for c in page.curves
            for seed, value in zip(c.seeds.tolist(), c.of_runs(m).tolist(), strict=True)
        ),
    )
    text = (
        f"Two measures of a run, both in units of the return. Its final level is the mean of its evaluations in the "
        f"last {100 * comparisons.FINAL_SHARE:.0f} % of the budget; its average over training is the area under its "
        f"learning curve, divided by the curve’s length (where budgets differ, up to the shortest)."
    )
    return Section("How high they came", [tables.level_table(page, results.levels), figure], [text])
