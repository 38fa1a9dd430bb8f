"""Strategies over all environments at once, where the study file gives scores that put their returns on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.statistics import Band
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults, Measure
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import Page, ReportFigure, ReportTable, Section

_POINTS = 61
"""Scores at which a profile is drawn."""

_RESAMPLES = 2_000

OWN = "each environment’s own"
"""Stands for the learner where each scored environment has another one."""


@dataclass(frozen=True)
class Scored:
    """A strategy's scores with one learner, or each environment's, by both measures, on the seeds that all have."""

    learner: str
    """Or `OWN`."""

    strategy: str
    seeds: NDArray[np.int64]
    """Shape (N,)."""

    scores: dict[Measure, NDArray[np.float64]]
    """Shape (N, M) each, M environments."""


def scored_environments(page: Page) -> list[str]:
    """Return the environments whose returns have a score."""
    scores = page.spec.scores
    return [e for e in page.spec.environments if e in scores and scores[e].metric == comparisons.RETURN]


def learners_for_all(page: Page) -> dict[str, dict[str, str]]:
    """Return which learner to take in each scored environment, by a name for these.

    Those that run on all of them; or, if no learner does and each environment has one of its own, that.
    """
    environments = scored_environments(page)
    cells = {(c.environment, c.learner) for c in page.curves}
    there = {e: [name for name in page.spec.learners if (e, name) in cells] for e in environments}
    shared = [name for name in page.spec.learners if all(name in own for own in there.values())]
    if shared:
        return {name: dict.fromkeys(environments, name) for name in shared}
    if all(len(own) == 1 for own in there.values()):
        return {OWN: {e: own[0] for e, own in there.items()}}
    return {}


def scored(page: Page) -> Iterator[Scored]:
    """Yield the scores of every strategy that was run on all scored environments."""
    of = {(c.environment, c.learner, c.strategy): c for c in page.curves}
    for learner, learners in learners_for_all(page).items():
        for strategy in page.spec.strategies:
            curves = [of[e, own, strategy] for e, own in learners.items() if (e, own, strategy) in of]
            seeds = reduce(np.intersect1d, [c.seeds for c in curves]) if curves else np.empty(0, np.int64)
            if len(curves) < len(learners) or not len(seeds):
                continue
            scores: dict[Measure, NDArray[np.float64]] = {}
            for measure in comparisons.MEASURES:
                columns = []
                for curve in curves:
                    own = curve.of_runs(measure)[np.isin(curve.seeds, seeds)]
                    columns.append(page.spec.scores[curve.environment].of(own))
                scores[measure] = np.stack(columns, axis=1)
            yield Scored(learner, strategy, seeds, scores)


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return levels, differences and performance profiles over all scored environments; None with fewer than two."""
    environments = scored_environments(page)
    if len(environments) < 2:
        return None
    found = list(scored(page))
    if not found:
        return Section(_TITLE, paragraphs=[f"{_NONE} The scored ones are {sentences.joined(environments)}."])
    scales = [f"{e} from {page.spec.scores[e].low:g} to {page.spec.scores[e].high:g}" for e in environments]
    text = (
        f"Returns are put on one scale, as the study file has it: 0 at the first number, 1 at the second: "
        f"{sentences.joined(scales)}. Intervals resample runs within each environment. Shown for what they say "
        f"together; the tests above are of single environments."
    )
    own = [_OWN_LEARNERS] if found[0].learner == OWN else []
    return Section(_TITLE, [_profiles(page, found), _table(page, found)], [text, *own])


_TITLE = "Over all environments"
_NONE = (
    "Nothing is put together: no strategy has results of common seeds on all scored environments, with one learner "
    "that runs on all of them or one of its own in each."
)
_OWN_LEARNERS = "Each environment has a learner of its own; strategies are compared with the baseline of the same one."


def _profiles(page: Page, found: Sequence[Scored]) -> ReportFigure:
    every = np.concatenate([one.scores["final"].ravel() for one in found])
    taus = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), _POINTS)
    bands = {
        (one.learner, one.strategy): statistics.performance_profile(one.scores["final"], taus, resamples=_RESAMPLES)
        for one in found
    }
    return page.figure(
        "profiles",
        "Performance profiles",
        "Share of runs, over all environments, whose final level is above a score, with pointwise 95 % intervals. A "
        "line above another everywhere belongs to the better strategy.",
        figures.profiles(_panels(page, bands), taus, page.line_styles),
        ("learner", "strategy", "score", "share", "low", "high"),
        (
            (*key, *point)
            for key, band in bands.items()
            for point in zip(taus.tolist(), *(side.tolist() for side in band), strict=True)
        ),
    )


def _panels(page: Page, bands: dict[tuple[str, str], Band]) -> list[tuple[str, list[tuple[str, Band]]]]:
    """Return one panel for each learner, or with many strategies one for each, the baseline beside it."""
    panels = []
    several = len(page.spec.learners) > 1
    for learner in dict.fromkeys(learner for learner, _ in bands):
        own = [(strategy, band) for (name, strategy), band in bands.items() if name == learner]
        if len(own) <= figures.MOST_TOGETHER:
            panels.append((learner if several else "All environments", own))
            continue
        base = [pair for pair in own if pair[0] == page.spec.baseline]
        for pair in own:
            title = f"{pair[0]}, {learner}" if several else pair[0]
            panels.append((title, [*(base if pair not in base else []), pair]))
    return panels


def _table(page: Page, found: Sequence[Scored]) -> ReportTable:
    numbers = [_row(page, one, found) for one in found]
    return page.table(
        "overall",
        "Scores over all environments",
        f"Interquartile means over all runs of all environments, with 95 % intervals ({_RESAMPLES:,} resamples); "
        f"difference and chance to do better than {page.spec.baseline} in pairs of the same seed.",
        (
            *("Learner", "Strategy", "Seeds", "Final score", "Average score"),
            *("Pairs", "Difference (final)", "P(better) (final)"),
        ),
        [
            (
                *(one.learner, one.strategy, str(len(one.seeds)), *(_text(level, len(one.seeds)) for level in levels)),
                str(pairs or "–"),
                *(_text(level, pairs) for level in against),
            )
            for one, levels, pairs, against in numbers
        ],
        (
            *("learner", "strategy", "seeds"),
            *(f"{name}{end}" for name in ("final", "average") for end in _ENDS),
            "pairs",
            *(f"{name}{end}" for name in ("difference", "improvement") for end in _ENDS),
        ),
        (
            (
                *(one.learner, one.strategy, len(one.seeds), *(end for level in levels for end in level)),
                pairs,
                *(end for level in against for end in level or ("", "", "")),
            )
            for one, levels, pairs, against in numbers
        ),
    )


_ENDS = ("", "_low", "_high")


def _row(
    page: Page, one: Scored, found: Sequence[Scored]
) -> tuple[Scored, list[statistics.Interval], int, list[statistics.Interval | None]]:
    """Return a strategy's levels by both measures, and in how many pairs with the baseline what came out."""
    levels = [statistics.bootstrap_interval(one.scores[m], resamples=_RESAMPLES) for m in comparisons.MEASURES]
    base = next((b for b in found if b.learner == one.learner and b.strategy == page.spec.baseline), None)
    if base is None or base is one or not np.isin(one.seeds, base.seeds).any():
        return one, levels, 0, [None, None]
    shared, ours, theirs = np.intersect1d(one.seeds, base.seeds, return_indices=True)
    pair = one.scores["final"][ours], base.scores["final"][theirs]
    against: list[statistics.Interval | None] = [
        statistics.paired_difference(*pair, resamples=_RESAMPLES),
        statistics.probability_of_improvement(*pair, resamples=_RESAMPLES),
    ]
    return one, levels, len(shared), against


def _text(found: statistics.Interval | None, runs: int) -> str:
    if found is None:
        return "–"
    return sentences.with_interval(found, runs)
