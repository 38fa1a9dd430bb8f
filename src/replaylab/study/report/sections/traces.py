"""Traced episodes: what the agents expected at each step beside the discounted return that followed. Not tested."""

from __future__ import annotations

import numpy as np

from replaylab.learners.metrics import TRACE_Q, TRACE_RETURN
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.analysis.seed_values import by_strategy
from replaylab.study.report import figures
from replaylab.study.report.figures import EpisodeTrace
from replaylab.study.report.page import KEYS, Page, Section
from replaylab.study.report.sections.learner_internals import TITLE

EPISODES = 3
"""At most so many of an environment, learner and strategy are shown: the first, the last, and one in the middle."""


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the Q values and returns of some traced episodes; None where none was traced."""
    episodes = traces_of(page)
    if not episodes:
        return None
    groups = [
        (page.spec.place_of(*cell), [episode for episode in episodes if episode.cell == cell])
        for cell in dict.fromkeys(episode.cell for episode in episodes)
    ]
    figure = page.figure(
        "traces",
        "Q value and the return that followed",
        "Solid: Q(s, a) of each step of a training episode, of the agent that took it. Dashed: the discounted "
        "return of the stored rewards from that step to the end of the episode; where a time limit cut the episode,"
        " later rewards are missing from it. One seed; the first traced episode, one in the middle, and the last.",
        figures.traces(groups, page.line_styles, page.spec.budget.counted),
        (*KEYS, "seed", "at", "step", "q", "return"),
        (
            (*episode.key, episode.seed, episode.at, t, q, later)
            for episode in episodes
            for t, (q, later) in enumerate(zip(episode.q.tolist(), episode.returns.tolist(), strict=True))
        ),
    )
    return Section(TITLE, [figure], subtitle="Traced episodes")


def traces_of(page: Page) -> list[EpisodeTrace]:
    """Return the traced episodes that are shown, in the order of the study file."""
    names = f"starts_with(metric, '{TRACE_Q}') or starts_with(metric, '{TRACE_RETURN}')"
    episodes = []
    for key, columns in by_strategy(page.rows.filter(names), page.spec):
        metric = np.asarray(columns["metric"], dtype=np.str_)
        step = np.array([int(name.rpartition("/")[2]) for name in metric.tolist()], np.int64)
        of_q, seed = np.char.startswith(metric, TRACE_Q), int(columns["seed"].min())
        of_seed = columns["seed"] == seed
        ends = np.unique(columns["step"][of_seed])
        for at in ends[np.unique(np.linspace(0, len(ends) - 1, EPISODES).round().astype(int))]:
            here = of_seed & (columns["step"] == at)
            q, later = (
                columns["value"][here & which][np.argsort(step[here & which])].astype(np.float64)
                for which in (of_q, ~of_q)
            )
            episodes.append(EpisodeTrace(*key, seed, int(at), q, later))
    return episodes
