"""Strategies over all environments together, if the study file has scores that put returns on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from replaylab import statistics
from replaylab.statistics import Band
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ComparisonResults, Curve, Measure
from replaylab.study.report import figures, sentences
from replaylab.study.report.page import Column, Page, ReportFigure, ReportTable, Section, point_rows
from replaylab.study.report.sections.levels import TITLE

_POINTS = 61
"""Scores at which a profile is drawn."""

_RESAMPLES = 2_000

OWN = "each environment’s own"
"""Stands for the learner where each scored environment has another one."""


@dataclass(frozen=True)
class ScoredStrategy:
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
    cells = {c.cell for c in page.curves}
    available = {e: [name for name in page.spec.learners if (e, name) in cells] for e in environments}
    shared = [name for name in page.spec.learners if all(name in names for names in available.values())]
    if shared:
        return {name: dict.fromkeys(environments, name) for name in shared}
    if all(len(names) == 1 for names in available.values()):
        return {OWN: {e: names[0] for e, names in available.items()}}
    return {}


def scored(page: Page) -> Iterator[ScoredStrategy]:
    """Yield the scores of every strategy that was run on all scored environments."""
    of = {c.key: c for c in page.curves}
    for learner, learners in learners_for_all(page).items():
        for strategy in page.spec.strategies:
            curves = [of[e, name, strategy] for e, name in learners.items() if (e, name, strategy) in of]
            seeds = reduce(np.intersect1d, [c.seeds for c in curves]) if curves else np.empty(0, np.int64)
            if len(curves) < len(learners) or not len(seeds):
                continue
            scores = {m: np.stack([_scores(page, c, m, seeds) for c in curves], axis=1) for m in comparisons.MEASURES}
            yield ScoredStrategy(learner, strategy, seeds, scores)


def _scores(page: Page, curve: Curve, measure: Measure, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the scores of a curve's runs with some of its seeds."""
    return page.spec.scores[curve.environment].of(curve.of_runs(measure)[np.isin(curve.seeds, seeds)])


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return levels, differences and performance profiles over all scored environments; None with fewer than two."""
    environments = scored_environments(page)
    if len(environments) < 2:
        return None
    strategies = list(scored(page))
    if not strategies:
        text = f"{_NONE} The scored ones are {sentences.joined(environments)}."
        return Section(TITLE, paragraphs=[text], subtitle=_SUBTITLE)
    scales = [f"{e} from {page.spec.scores[e].low:g} to {page.spec.scores[e].high:g}" for e in environments]
    text = (
        f"Returns are put on one scale, as the study file has it: 0 at the first number, 1 at the second: "
        f"{sentences.joined(scales)}. Intervals resample runs within each environment. Shown for what they say "
        f"together; the tests above are of single environments."
    )
    note = [_OWN_LEARNERS] if strategies[0].learner == OWN else []
    return Section(TITLE, [_profiles(page, strategies), table(page, strategies)], [text, *note], subtitle=_SUBTITLE)


_SUBTITLE = "Over all environments"
_NONE = (
    "Nothing is put together: no strategy has results of common seeds on all scored environments, with one learner "
    "that runs on all of them or its own one in each."
)
_OWN_LEARNERS = "Each environment has its own learner; strategies are compared with the baseline of the same one."


def _profiles(page: Page, strategies: Sequence[ScoredStrategy]) -> ReportFigure:
    every = np.concatenate([scored.scores["final"].ravel() for scored in strategies])
    taus = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), _POINTS)
    bands = {
        (scored.learner, scored.strategy): statistics.performance_profile(
            scored.scores["final"], taus, resamples=_RESAMPLES
        )
        for scored in strategies
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
        pairs = [(strategy, band) for (name, strategy), band in bands.items() if name == learner]
        if len(pairs) <= figures.MOST_TOGETHER:
            panels.append((learner if several else "All environments", pairs))
            continue
        base = [pair for pair in pairs if pair[0] == page.spec.baseline]
        for pair in pairs:
            title = f"{page.spec.title_of(pair[0])}, {learner}" if several else page.spec.title_of(pair[0])
            panels.append((title, [*(base if pair not in base else []), pair]))
    return panels


@dataclass(frozen=True)
class _Row:
    """A strategy's levels, and what came out against the baseline; None where nothing is compared."""

    scored: ScoredStrategy
    final: statistics.Interval
    average: statistics.Interval
    pairs: int = 0
    difference: statistics.Interval | None = None
    improvement: statistics.Interval | None = None

    @property
    def runs(self) -> int:
        return len(self.scored.seeds)


def table(page: Page, strategies: Sequence[ScoredStrategy]) -> ReportTable:
    """Return levels and differences over all scored environments as a table."""
    base = page.spec.title_of(page.spec.baseline)

    def ends(name: str) -> str:
        return f"{name} {name}_low {name}_high"

    columns: list[Column[_Row]] = [
        Column("Learner", lambda row: row.scored.learner, "learner", lambda row: row.scored.learner),
        Column("Strategy", lambda row: row.scored.strategy, "strategy", lambda row: row.scored.strategy),
        Column("Seeds", lambda row: str(row.runs), "seeds", lambda row: row.runs),
        Column("Final score", lambda row: _text(row.final, row.runs), ends("final"), lambda row: row.final),
        Column("Average score", lambda row: _text(row.average, row.runs), ends("average"), lambda row: row.average),
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
        [_row(page, scored, strategies) for scored in strategies],
        columns,
    )


def _row(page: Page, scored: ScoredStrategy, strategies: Sequence[ScoredStrategy]) -> _Row:
    final, average = (
        statistics.bootstrap_interval(scored.scores[m], resamples=_RESAMPLES) for m in comparisons.MEASURES
    )
    base = next((b for b in strategies if b.learner == scored.learner and b.strategy == page.spec.baseline), None)
    if base is None or base is scored or not np.isin(scored.seeds, base.seeds).any():
        return _Row(scored, final, average)
    shared, rows, base_rows = np.intersect1d(scored.seeds, base.seeds, return_indices=True)
    pair = scored.scores["final"][rows], base.scores["final"][base_rows]
    difference = statistics.paired_difference(*pair, resamples=_RESAMPLES)
    improvement = statistics.probability_of_improvement(*pair, resamples=_RESAMPLES)
    return _Row(scored, final, average, len(shared), difference, improvement)


def _signed(interval: statistics.Interval | None, pairs: int) -> str:
    if interval is None or pairs == 1:
        return "–" if interval is None else sentences.effect(interval)
    return f"{sentences.effect(interval)} ({sentences.effect_interval(interval, pairs)})"


def _text(interval: statistics.Interval | None, runs: int) -> str:
    return "–" if interval is None else sentences.with_interval(interval, runs)
