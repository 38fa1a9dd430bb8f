"""Differences from the baseline: of every seed, and the tests."""

from __future__ import annotations

import numpy as np

from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.analysis.seed_values import pairs_with_baseline
from replaylab.study.report import figures, tables
from replaylab.study.report.page import KEYS, Page, Section

DIFFERENCES = "Differences from"
"""Begins the title; the baseline's follows."""


def section(page: Page, results: ComparisonResults) -> Section | None:
    """Return how far strategies are from the baseline: every seed's difference, and the tests."""
    if not results.differences:
        return None
    baseline = page.spec.baseline
    pairs = list(pairs_with_baseline(page.curves, baseline))
    of = {c.key: (c, base) for c, base in pairs}

    def row(d: comparisons.Difference) -> figures.Row:
        return page.row(d.strategy, d.iqm, np.subtract(*comparisons.paired_values(*of[d.key], d.measure)))

    base = page.spec.title_of(baseline)
    others = {d.strategy for d in results.differences}
    right = page.spec.title_of(others.pop()) if len(others) == 1 else "strategy"
    panels = page.dots_by_measure(results.differences, row, reference=0.0, ends=(f"{base} higher", f"{right} higher"))
    figure = page.figure(
        "differences",
        "Difference of every seed",
        "Small dots: one seed each, its run minus the baseline’s run of the same seed. Large dot and bar: difference "
        "of interquartile means with its paired 95 % interval, uncorrected.",
        figures.dots(panels, f"across: {tables.RETURN_UNIT}, minus {base}"),
        (*KEYS, "baseline", "measure", "pair", "difference"),
        (
            (*c.key, baseline, m, i, difference)
            for m in comparisons.MEASURES
            for c, base in pairs
            for i, difference in enumerate(np.subtract(*comparisons.paired_values(c, base, m)).tolist())
        ),
    )
    return Section(
        f"{DIFFERENCES} {base}",
        [figure, tables.difference_table(page, results.differences)],
        note="“Inconclusive” does not mean that there is no difference: the interval contains the differences that "
        "the data leave open.",
    )
