"""The methods part of a report: the runs and their analysis in sentences, every setting, the machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replaylab import statistics
from replaylab.number_format import counted, duration
from replaylab.statistics.bootstrap import MOST_ENUMERATED, MOST_RESAMPLES, STEADY
from replaylab.study.analysis import comparisons
from replaylab.study.report import sentences
from replaylab.study.report.what_ran import WhatRan, what_ran
from replaylab.study.results.provenance import Machine
from replaylab.study.results.records import machines_of
from replaylab.study.spec.components import ALONE, json_data
from replaylab.study.spec.spec import Spec
from replaylab.study.spec.study_tables import Overrides

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy


@dataclass(frozen=True)
class Methods:
    """Sentences, settings as (key path, value), and what the study ran on."""

    run: list[str]
    statistics: list[str]
    settings: list[tuple[str, str]]
    machine: list[tuple[str, str]]


_CONTRASTS = (
    f"A contrast is computed within each seed: the mean over groups of matched cells (equal in every factor that the "
    f"contrast does not name) of the difference between its two sides; a difference of contrasts is by seed, too. "
    f"Its size is the IQM of that number over the seeds. Its p-value is the larger of two: that of flipping the signs "
    f"of whole seeds, and that of the interval. The correction is step-down max-T over all contrasts of the study "
    f"together, in which all contrasts of a seed flip together, a t counts as at most what the interval says, and a "
    f"contrast that lacks a seed takes part with those it has (Westfall & Young 1993). “Equivalent” needs the 90 % "
    f"interval inside the declared margin, which is two one-sided tests at 5 % (Schuirmann 1987), each contrast by "
    f"itself, and five seeds. “Higher” and “lower” need a corrected p below {comparisons.SIGNIFICANCE}. “Inconclusive” "
    f"is none of these: the data do not show which."
)

_CONTRASTS_BY_ROLE = (
    "A contrast is computed within each seed: the mean over groups of matched cells (equal in every factor that the "
    "contrast does not name) of the difference between its two sides, or a weighted sum, averaged over environments "
    "and learners; a difference of contrasts is by seed, too. Its size is the mean of that number over the seeds. "
    "Intervals and p-values are of that mean and agree: seeds are resampled, all contrasts of a seed together, and "
    "each t is taken with the resample’s own spread (symmetric bootstrap of t, Hall 1988; never narrower than "
    "Student’s interval). The primary contrast, and each manipulation check, stands alone; it is “equivalent” if its "
    "90 % interval lies inside the margin (Schuirmann 1987). The others are one family: their 95 % intervals hold all "
    "together (max-T; Westfall & Young 1993), and “higher”, “lower” and “equivalent” are read from these. A check "
    "passes if its 95 % interval lies within its bounds; where one fails, the verdicts that it guards are “not "
    "interpretable”. “Inconclusive”: the data do not show which."
)


_EQUIVALENCE = (
    "A strategy is “equivalent” to the baseline if the interval of its difference, of level 1 − 2·{level:g}/K, lies "
    "within the declared margin, K being the comparisons of the measure that have a margin (two one-sided tests each, "
    "Schuirmann 1987; corrected by Bonferroni’s inequality). That comes before “higher” and “lower”. With too few "
    "seeds for so high a level nothing is called equivalent."
)


_ALONE = (
    "an algorithm of Stable-Baselines3, by its own learn(): each seed is its own run. Runs of one seed start from "
    "the same weights and the same first state, and act alike until learning begins. The replay draws from a stream of "
    "its own. All else that is random in the algorithm comes from the library’s global streams: the same draws across "
    "strategies, as long as they draw equally often, which they do not with batches of another size or another number "
    "of updates."
)
"""Text about how far the seeds of such learners are paired."""


def of(study: ReportedStudy) -> Methods:
    """Return the methods of a study, from its settings and records."""
    return Methods(
        _what_was_run(what_ran(study)),
        _statistics(study.spec),
        _settings(study.spec),
        [*_machines(study), *_computing_time(study)],
    )


def _what_was_run(ran: WhatRan) -> list[str]:
    spec, names = ran.spec, ran.strategies
    learners = list(map(spec.learner_title_of, ran.learners))
    strategies = f"{len(names)} strategies" if len(names) > 1 else "one strategy"
    runs = (
        f"{ran.counted_runs}: {ran.counted_seeds} each of {strategies}, on "
        f"{sentences.joined(ran.environments)}, with {sentences.joined(learners)}. "
        f"A run takes {spec.budget}. A seed decides the environment’s randomness, the network’s first weights, "
        f"exploration and the replay’s draws, each by its own random stream; equal seeds pair runs across "
        f"strategies."
    )
    alone = [spec.learner_title_of(name) for name in ran.learners if spec.learners[name].type in ALONE]
    if alone:
        runs += f" {sentences.joined(alone)}: {_ALONE}"
    own_budgets = [
        f"{spec.title_of(strategy)} {spec.budget_of(strategy).total:,}"
        for strategy in names
        if spec.budget_of(strategy) != spec.budget
    ]
    if own_budgets:
        runs += (
            f" Other budgets, in {spec.budget.unit}: {sentences.joined(own_budgets)}. Average returns end with the "
            "shortest budget of an environment and learner."
        )
    env_options = [
        f"{name}: {_options(options)}."
        for name, options in spec.env_options.items()
        if options and name in ran.environments
    ]
    if env_options:
        runs += f" Options of the environments. {' '.join(env_options)}"
    settings = [f"{title}: {learner_settings(spec, name)}." for title, name in zip(learners, ran.learners, strict=True)]
    replays = [f"{spec.title_of(name)}: {strategy_settings(spec, name)}." for name in names]
    judged = (
        f"Evaluation: every {spec.evaluation.every:,} {spec.budget.unit}, the greedy policy plays "
        f"{counted(spec.evaluation.episodes, 'episode')} on its own environments, so that neither exploration "
        f"nor the training environment’s state is part of the result; the figure is their mean undiscounted return. "
        f"Nothing of an evaluation is learned from."
    )
    measured = (
        f"What is replayed is measured every {spec.measures.every:,} environment steps, without changing training by "
        f"a bit."
        if spec.measures.every
        else "What is replayed was not measured."
    )
    return [runs, judged, measured, "Learners. " + " ".join(settings), "Strategies. " + " ".join(replays)]


def learner_settings(spec: Spec, name: str) -> str:
    """Return the type and all settings of a learner."""
    environments = spec.learner_environments.get(name)
    return _options(json_data(spec.learners[name])) + (f"; on {sentences.joined(environments)}" if environments else "")


def strategy_settings(spec: Spec, name: str) -> str:
    """Return the type and all settings of a strategy, with its overrides except the budget."""
    overrides = spec.overrides.get(name, Overrides())
    parts = [_options(json_data(spec.strategies[name]))]
    parts += [f"transform {_options(json_data(transform))}" for transform in overrides.transforms]
    if overrides.learner:
        parts.append(f"learner {_options(overrides.learner)}")
    parts += [
        f"{word} {sentences.joined(names)}"
        for word, names in (("on", overrides.environments), ("with", overrides.learners))
        if names
    ]
    return "; ".join(parts)


def _options(part: Any) -> str:
    plain = dict(_flat("", part))
    kind = plain.pop(".type", plain.pop("type", ""))
    listed = [f"{key.strip('.').removeprefix('options.')} {value}" for key, value in plain.items()]
    return ", ".join([kind, *listed] if kind else listed)


def _statistics(spec: Spec) -> list[str]:
    contrasts = [_CONTRASTS] if spec.contrasts else []
    if spec.judged_by_role:
        contrasts = [_CONTRASTS_BY_ROLE]
    equivalence = [_EQUIVALENCE.format(level=comparisons.SIGNIFICANCE)] if spec.equivalence else []
    return [
        f"The interquartile mean (IQM) is the mean of the middle half of the runs. Its interval is a bootstrap over "
        f"whole runs, within each environment: all resamples of up to {MOST_ENUMERATED} runs, else "
        f"{statistics.RESAMPLES:,} and up to {MOST_RESAMPLES:,} random ones, until the ends’ standard error is "
        f"{100 * STEADY:.0f} % of the width; 2,000 for curves. "
        f"Differences resample pairs of runs that share a seed. The ends are percentiles, taken further out with few "
        f"runs by Student’s t distribution (expanded percentile intervals, Hesterberg 2015): in simulated studies with "
        f"10 and 30 seeds nominal 95 % intervals held the true value in 93 to 97 %; with 5 seeds, where runs fall into "
        f"two groups, it may be below 90 %.",
        f"A p-value is the larger of two. One is of the paired sign-flip permutation test: within each seed the two "
        f"strategies’ runs are swapped or not, and it is the share of patterns with at least the difference seen, in "
        f"either direction (all patterns up to {statistics.EXACT_SEEDS} pairs, {statistics.PERMUTATIONS:,} random ones "
        f"beyond). It alone calls equal levels of unequal spread different too often; the other is the interval’s, "
        f"which is below {comparisons.SIGNIFICANCE} only where the interval leaves out 0. All comparisons of one "
        f"measure are a family: its p-values are corrected by the step-down max-T method, in which a seed’s "
        f"differences change sign together, so that the chance of even one false alarm in it is about "
        f"{100 * comparisons.SIGNIFICANCE:.0f} % or less.",
        *equivalence,
        *contrasts,
        "Sources: Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice; "
        "Westfall & Young 1993, Resampling-based multiple testing; Phipson & Smyth 2010, Permutation p-values should "
        "never be zero.",
    ]


def _settings(spec: Spec) -> list[tuple[str, str]]:
    """Every setting of the study as (key path, value), as in its file, so without what overrides make of learners."""
    skipped = {"name", "title", "question", "titles", "answers", "reference", "core_minutes", "overridden"}
    settings = {key: table for key, table in json_data(spec).items() if key not in skipped}
    return [(path, value) for key, table in settings.items() for path, value in _flat(key, table)]


def _flat(path: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}", inner)
    elif path == "seeds" and len(value) > 3 and value == list(range(value[0], value[-1] + 1)):
        yield path, f"{value[0]} to {value[-1]}"
    else:
        yield path, json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value


def _machines(study: ReportedStudy) -> list[tuple[str, str]]:
    """Return versions and hardware; if chunks ran on several machines, a row for each, with how it differs."""
    known = machines_of(study.record("machine"))
    if not known:
        return []
    latest = next(iter(known))
    runs: Counter[str] = Counter()
    for chunk in study.present:
        runs[study.record(f"timing/{chunk.id}").get("machine") or latest] += len(chunk.seeds)
    digests = [digest for digest in known if runs[digest]] or [latest]
    versions = known[digests[0]].versions
    if len(digests) == 1:
        return [*versions.items(), *known[digests[0]].hardware.items()]
    rows = [(f"machine {i}", _in_a_line(known[digest], versions, runs[digest])) for i, digest in enumerate(digests, 1)]
    return [*versions.items(), *rows]


def _in_a_line(machine: Machine, versions: dict[str, str], runs: int) -> str:
    """Return a machine's hardware, the versions that are not those of the first, and how much ran there."""
    other = {name: which for name, which in machine.versions.items() if versions.get(name) != which}
    table = ", ".join(f"{name} {value}" for name, value in [*machine.hardware.items(), *other.items()])
    return f"{table}: {counted(runs, 'run')}"


def _computing_time(study: ReportedStudy) -> list[tuple[str, str]]:
    """Return the computing time of the chunks with results, as a row; empty where it was not recorded."""
    times = [record for p in study.present if (record := study.record(f"timing/{p.id}"))]
    if not times:
        return []
    seconds = sum(t["seconds"] for t in times)
    steps = sum(t.get("environment_steps", t.get("episodes", 0)) for t in times)
    pace = steps / max(seconds, 1e-3)
    text = f"{duration(seconds)} of one core for {steps:,} {study.spec.budget.counted}: {pace:,.0f} a second"
    return [("computing time", text)]
