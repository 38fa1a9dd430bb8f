"""How large the differences from the baseline are, free of units: the effect sizes of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replaylab import statistics
from replaylab.number_format import signed_decimals
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults, Curve, Measure
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import KEYS, Page, ReportTable, Section


@dataclass(frozen=True)
class Effect:
    """A strategy against the baseline, by one measure, over the seeds both have."""

    environment: str
    learner: str
    strategy: str
    measure: Measure
    pairs: int
    improvement: statistics.Interval
    """Chance that a run beats one of the baseline's."""

    standardised: statistics.Interval
    """Mean paired difference, in its own standard deviations."""


def effects(curves: Sequence[Curve], baseline: str) -> list[Effect]:
    """Return the effect of every strategy by every measure, in the order of the curves."""
    found = []
    for curve, base in comparisons.pairs_with_baseline(curves, baseline):
        for measure in comparisons.MEASURES:
            pair = comparisons.paired_values(curve, base, measure)
            found.append(
                Effect(
                    *curve.cell,
                    curve.strategy,
                    measure,
                    len(pair[0]),
                    statistics.probability_of_improvement(*pair),
                    statistics.standardised_difference(*pair, resamples=2_000),
                )
            )
    return found


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the effect sizes as a figure and a table; None where nothing is compared."""
    found = effects(page.curves, page.spec.baseline)
    if not found:
        return None
    panels = [
        (
            page.heading(*cell),
            [
                figures.Dots(
                    sentences.MEASURE_TITLES[measure],
                    [
                        figures.Row(e.strategy, page.line_styles[e.strategy].light, e.improvement)
                        for e in found
                        if (e.environment, e.learner, e.measure) == (*cell, measure)
                    ],
                    reference=0.5,
                    limits=(-0.02, 1.02),
                )
                for measure in comparisons.MEASURES
            ],
        )
        for cell in dict.fromkeys((e.environment, e.learner) for e in found)
    ]
    figure = page.figure(
        "improvement",
        f"Chance to do better than {page.spec.baseline}",
        f"How likely a run of the strategy has a higher return than a run of {page.spec.baseline}, over all pairs of "
        f"runs, with its 95 % interval. At the dashed line neither is better.",
        figures.dots(panels, "across: probability of improvement"),
        (*KEYS, "measure", "improvement", "low", "high"),
        ((e.environment, e.learner, e.strategy, e.measure, *e.improvement) for e in found),
    )
    text = (
        "Two sizes that do not depend on the unit of the return. The probability of improvement says how often a run "
        "beats one of the baseline’s. The standardised difference is the mean paired difference divided by its "
        "standard deviation over seeds: about 0.2 is called small, 0.8 large; pairing makes it larger than a "
        "difference in standard deviations of the runs themselves. Its interval is approximate."
    )
    return Section("Sizes of effects", [figure, _table(page, found)], [text])


def _table(page: Page, found: Sequence[Effect]) -> ReportTable:
    return page.table(
        "effects",
        f"Sizes of effects against {page.spec.baseline}",
        "Intervals are 95 % bootstrap intervals that resample pairs of runs (2,000 resamples).",
        ("Environment", "Learner", "Strategy", "Measure", "Pairs", "P(better) (95 %)", "Standardised (95 %)"),
        [
            (
                *(e.environment, e.learner, e.strategy, sentences.MEASURE_NAMES[e.measure], str(e.pairs)),
                f"{sentences.estimate(e.improvement)} ({sentences.interval(e.improvement, e.pairs)})",
                _standardised(e.standardised) if e.pairs > 1 else "–",
            )
            for e in found
        ],
        (
            *(*KEYS, "baseline", "measure", "pairs", "improvement", "improvement_low", "improvement_high"),
            *("standardised", "standardised_low", "standardised_high"),
        ),
        (
            (
                *(e.environment, e.learner, e.strategy, page.spec.baseline, e.measure, e.pairs),
                *(*e.improvement, *e.standardised),
            )
            for e in found
        ),
    )


def _standardised(found: statistics.Interval) -> str:
    estimate, low, high = map(signed_decimals, found)
    return f"{estimate} ({low} to {high})"
