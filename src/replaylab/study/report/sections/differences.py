"""How far each strategy is from the baseline: every seed's difference, and the tests."""

from __future__ import annotations

import numpy as np

from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report import figures, sentences, tables
from replaylab.study.report.page import KEYS, Page, Section


def section(page: Page, results: ComparisonResults) -> Section | None:
    """Return how far strategies are from the baseline: every seed's difference, the tests, the effect sizes."""
    if not results.differences:
        return None
    baseline = page.spec.baseline
    pairs = list(comparisons.pairs_with_baseline(page.curves, baseline))
    of = {(*c.cell, c.strategy): (c, base) for c, base in pairs}
    panels = [
        (
            page.heading(*cell),
            [
                figures.Dots(
                    sentences.MEASURE_TITLES[measure],
                    [
                        figures.Row(d.strategy, page.line_styles[d.strategy].light, d.iqm, np.subtract(*both))
                        for d in results.differences
                        if (d.environment, d.learner, d.measure) == (*cell, measure)
                        for both in [comparisons.paired_values(*of[*cell, d.strategy], measure)]
                    ],
                    reference=0.0,
                )
                for measure in comparisons.MEASURES
            ],
        )
        for cell in dict.fromkeys((d.environment, d.learner) for d in results.differences)
    ]
    figure = page.figure(
        "differences",
        "Difference of every seed",
        "Small dots: one seed each, its run minus the baseline’s run of the same seed. Large dot and bar: difference "
        "of interquartile means with its paired 95 % interval. Right of the dashed line is better.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}, minus {baseline}"),
        (*KEYS, "baseline", "measure", "pair", "difference"),
        (
            (*c.cell, c.strategy, baseline, m, i, difference)
            for m in comparisons.MEASURES
            for c, base in pairs
            for i, difference in enumerate(np.subtract(*comparisons.paired_values(c, base, m)).tolist())
        ),
    )
    return Section(
        f"Differences from {baseline}",
        [figure, tables.difference_table(page, results.differences)],
        points=[sentences.comparison(d) for d in results.differences]
        if len(panels) == 1
        else [],  # else the table has them
        note="“No difference shown” does not mean that there is none: the interval says which differences the data "
        "leave open.",
    )
