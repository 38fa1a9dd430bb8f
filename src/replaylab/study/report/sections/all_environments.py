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
from replaylab.study.report.page import Column, Page, ReportFigure, ReportTable, Section, point_rows
from replaylab.study.report.sections.levels import TITLE

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

    Those that run on all of them; or, if no learner does and each environment has its own one, that.
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
        text = f"{_NONE} The scored ones are {sentences.joined(environments)}."
        return Section(TITLE, paragraphs=[text], subtitle=_SUBTITLE)
    scales = [f"{e} from {page.spec.scores[e].low:g} to {page.spec.scores[e].high:g}" for e in environments]
    text = (
        f"Returns are put on one scale, as the study file has it: 0 at the first number, 1 at the second: "
        f"{sentences.joined(scales)}. Intervals resample runs within each environment. Shown for what they say "
        f"together; the tests above are of single environments."
    )
    own = [_OWN_LEARNERS] if found[0].learner == OWN else []
    return Section(TITLE, [_profiles(page, found), table(page, found)], [text, *own], subtitle=_SUBTITLE)


_SUBTITLE = "Over all environments"
_NONE = (
    "Nothing is put together: no strategy has results of common seeds on all scored environments, with one learner "
    "that runs on all of them or its own one in each."
)
_OWN_LEARNERS = "Each environment has its own learner; strategies are compared with the baseline of the same one."


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
        "Share of runs, over all environments, whose final score is above a score, with pointwise 95 % intervals. A "
        "line above another everywhere belongs to the better strategy.",
        figures.profiles(_panels(page, bands), taus, page.line_styles),
        ("learner", "strategy", "score", "share", "low", "high"),
        (row for key, band in bands.items() for row in point_rows(key, taus, band)),
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
            title = f"{page.titled(pair[0])}, {learner}" if several else page.titled(pair[0])
            panels.append((title, [*(base if pair not in base else []), pair]))
    return panels


@dataclass(frozen=True)
class _Row:
    """A strategy's levels, and what came out against the baseline; None where nothing is compared."""

    one: Scored
    final: statistics.Interval
    average: statistics.Interval
    pairs: int = 0
    difference: statistics.Interval | None = None
    improvement: statistics.Interval | None = None

    @property
    def runs(self) -> int:
        return len(self.one.seeds)


def table(page: Page, found: Sequence[Scored]) -> ReportTable:
    """Return levels and differences over all scored environments as a table."""
    base = page.titled(page.spec.baseline)

    def ends(name: str) -> str:
        return f"{name} {name}_low {name}_high"

    columns: list[Column[_Row]] = [
        Column("Learner", lambda row: row.one.learner, "learner", lambda row: row.one.learner),
        Column("Strategy", lambda row: row.one.strategy, "strategy", lambda row: row.one.strategy),
        Column("Seeds", lambda row: str(row.runs), "seeds", lambda row: row.runs),
        Column("Final score", lambda row: _text(row.final, row.runs), ends("final"), lambda row: row.final),
        Column(
            "Average score",
            lambda row: _text(row.average, len(row.one.seeds)),
            ends("average"),
            lambda row: row.average,
        ),
        Column("Pairs", lambda row: str(row.pairs or "–"), "pairs", lambda row: row.pairs),
        Column(
            f"Difference (final) vs {base}",
            lambda row: _signed(row.difference, row.pairs),
            ends("difference"),
            lambda row: row.difference or ("", "", ""),
        ),
        Column(
            f"P(improvement) (final) vs {base}",
            lambda row: _text(row.improvement, row.pairs),
            ends("improvement"),
            lambda row: row.improvement or ("", "", ""),
        ),
    ]
    return page.table(
        "overall",
        "Scores over all environments",
        f"Interquartile means over all runs of all environments, with 95 % intervals ({_RESAMPLES:,} resamples); "
        f"difference from {base} and probability of improvement over it in pairs of the same seed.",
        [_row(page, one, found) for one in found],
        columns,
    )


def _row(page: Page, one: Scored, found: Sequence[Scored]) -> _Row:
    final, average = (statistics.bootstrap_interval(one.scores[m], resamples=_RESAMPLES) for m in comparisons.MEASURES)
    base = next((b for b in found if b.learner == one.learner and b.strategy == page.spec.baseline), None)
    if base is None or base is one or not np.isin(one.seeds, base.seeds).any():
        return _Row(one, final, average)
    shared, ours, theirs = np.intersect1d(one.seeds, base.seeds, return_indices=True)
    pair = one.scores["final"][ours], base.scores["final"][theirs]
    difference = statistics.paired_difference(*pair, resamples=_RESAMPLES)
    improvement = statistics.probability_of_improvement(*pair, resamples=_RESAMPLES)
    return _Row(one, final, average, len(shared), difference, improvement)


def _signed(found: statistics.Interval | None, pairs: int) -> str:
    if found is None or pairs == 1:
        return "–" if found is None else sentences.effect(found)
    return f"{sentences.effect(found)} ({sentences.effect_interval(found, pairs)})"


def _text(found: statistics.Interval | None, runs: int) -> str:
    return "–" if found is None else sentences.with_interval(found, runs)
