"""Effect sizes: how large the differences from the baseline are, without units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replaylab import statistics
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults, Curve, MeasureResult
from replaylab.study.analysis.seed_values import pairs_with_baseline
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import KEYS, Column, Page, ReportTable, Section


@dataclass(frozen=True)
class Effect(MeasureResult):
    """A strategy against the baseline, by one measure, over the seeds both have."""

    pairs: int
    improvement: statistics.Interval
    """Chance that a run beats one of the baseline's."""

    standardised: statistics.Interval
    """Mean paired difference, in its own standard deviations."""


def effects(curves: Sequence[Curve], baseline: str) -> list[Effect]:
    """Return the effect of every strategy by every measure, in the order of the curves."""
    results = []
    for curve, base in pairs_with_baseline(curves, baseline):
        for measure in comparisons.MEASURES:
            pair = comparisons.paired_values(curve, base, measure)
            improvement = statistics.probability_of_improvement(*pair)
            standardised = statistics.standardised_difference(*pair, resamples=2_000)
            results.append(Effect(*curve.key, measure, len(pair[0]), improvement, standardised))
    return results


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the effect sizes as a figure and a table; None where nothing is compared."""
    sizes = effects(page.curves, page.spec.baseline)
    if not sizes:
        return None
    base = page.spec.title_of(page.spec.baseline)
    panels = page.dots_by_measure(
        sizes,
        lambda effect: page.row(effect.strategy, effect.improvement),
        reference=0.5,
        limits=(-0.02, 1.02),
        ends=(f"{base} better", "strategy better"),
    )
    figure = page.figure(
        "improvement",
        f"Probability of improvement over {base}",
        f"How likely a run of the strategy has a higher return than a run of {base}, over all pairs of runs, with its "
        f"95 % interval. At the dashed line neither is better.",
        figures.dots(panels, "across: probability of improvement"),
        (*KEYS, "measure", "improvement", "low", "high"),
        ((*e.key, e.measure, *e.improvement) for e in sizes),
    )
    text = (
        "Two sizes that do not depend on the unit of the return. The probability of improvement says how often a run "
        "beats one of the baseline’s. The standardised difference is the mean paired difference divided by its "
        "standard deviation over seeds: about 0.2 is called small, 0.8 large; pairing makes it larger than a "
        "difference in standard deviations of the runs themselves. Its interval is approximate."
    )
    return Section("Effect sizes", [figure, _table(page, sizes)], [text])


def _table(page: Page, sizes: Sequence[Effect]) -> ReportTable:
    columns: list[Column[Effect]] = [
        *page.versus_columns,
        Column("Measure", lambda e: sentences.MEASURE_NAMES[e.measure], "measure", lambda e: e.measure),
        Column("Pairs", lambda e: str(e.pairs), "pairs", lambda e: e.pairs),
        Column(
            "P(improvement) (95 %)",
            lambda e: f"{sentences.estimate(e.improvement)} ({sentences.interval(e.improvement, e.pairs)})",
            "improvement improvement_low improvement_high",
            lambda e: e.improvement,
        ),
        Column(
            "Standardised (95 %)",
            lambda e: (
                f"{sentences.effect(e.standardised)} ({sentences.effect_interval(e.standardised, e.pairs)})"
                if e.pairs > 1
                else "–"
            ),
            "standardised standardised_low standardised_high",
            lambda e: e.standardised,
        ),
    ]
    return page.table(
        "effects",
        "Effect sizes",
        "Intervals are 95 % bootstrap intervals that resample pairs of runs (2,000 resamples).",
        sizes,
        columns,
    )
