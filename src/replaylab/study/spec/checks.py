"""Rules between several tables of a study."""

from __future__ import annotations

import difflib
import json

from replaylab.errors import SpecError
from replaylab.learners.metrics import METRICS, REGISTRY, did_you_mean_metric
from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study.spec.components import ALONE, TAPES, with_arguments
from replaylab.study.spec.contrasts import resolve_contrasts
from replaylab.study.spec.errors import did_you_mean, shown
from replaylab.study.spec.study_tables import StudyTables

WITHOUT_REPLAY = ("none", "online")
"""Types of strategies for learners that draw no batches."""

PERIODS = {"update": "log_every", "measures": "measure_every"}
"""The setting for how often a metric is recorded, by the moment of recording."""


def check_tables(spec: StudyTables) -> None:
    """Check that the tables of a study agree.

    Raises:
        ValueError: The baseline is not a strategy, an environment is not listed, a budget or a setting contradicts
            another, or a tape, a contrast or the answers are impossible. The message names the key, the rule, the value
            and the fix.
    """
    _check_baseline(spec)
    named = {
        *(e for overrides in spec.overrides.values() for e in overrides.environments or ()),
        *(e for environments in spec.learner_environments.values() for e in environments),
        *(e for table in (spec.env_options, spec.scores, spec.equivalence, spec.reference) for e in table),
    }
    if unlisted := named - set(spec.environments):
        raise ValueError(
            f"`environments` must list every environment referenced elsewhere in the file, but lacks {min(unlisted)!r}"
        )
    for strategy in spec.strategies:
        _check_budget(spec, strategy)
        _check_varied(spec, strategy)
    for name, part in spec.strategies.items():
        if part.type in TAPES:
            _check_source(spec, name, part.options.get("of"))
            _check_chunk(spec, name)
    resolve_contrasts(spec)
    compared = [cell for cell in spec.cells if cell[2] != spec.baseline]
    if spec.answers is not None and not spec.contrasts and len(compared) != 1:
        raise ValueError(
            f"`answers` must belong to one comparison, but {len(compared)} are made with the baseline; declare a "
            f"contrast with primary = true, or leave the answers out"
        )


def _check_baseline(spec: StudyTables) -> None:
    if spec.baseline in spec.strategies:
        return
    variants = [name for name, origin in spec.origins.strategies.items() if origin.table == spec.baseline]
    named = variants or list(spec.strategies)
    why = ", a table that `vary` makes these of" if variants else ""
    raise ValueError(f"`baseline` must name one of the strategies ({', '.join(named)}), but got {spec.baseline!r}{why}")


def _check_budget(spec: StudyTables, strategy: str) -> None:
    budget = spec.budget_of(strategy)
    if budget.unit != spec.budget.unit:
        raise ValueError(f"`strategies.{strategy}.budget` must be in {spec.budget.unit}, as `budget` is")
    if spec.evaluation.every > budget.total:
        where = "budget" if budget == spec.budget else f"strategies.{strategy}.budget"
        raise ValueError(
            f"`evaluation.every` must be at most `{where}.{budget.unit}` = {budget.total}, "
            f"but got {spec.evaluation.every}"
        )


def _check_varied(spec: StudyTables, strategy: str) -> None:
    """Raise if a strategy's settings make learners equal that `vary` distinguishes."""
    learners = spec.learners_of(strategy)
    origins = [spec.origins.learners[name] for name in learners if name in spec.origins.learners]
    for origin in origins if len(learners) > 1 else ():
        if both := set(origin.varied) & set(spec.overrides_of(strategy).learner):
            raise ValueError(
                f"`strategies.{strategy}.learner` must not set `{min(both)}`, which `vary` of "
                f"learners.{origin.table} gives its values; choose one of them by the strategy's `learners`"
            )


def _check_source(spec: StudyTables, name: str, of: object) -> None:
    """Raise unless a strategy can learn from the draws of another one."""
    others = [k for k, p in spec.strategies.items() if p.type not in TAPES]
    where = f"`strategies.{name}"
    if of not in others:
        raise ValueError(
            f"{where}.of` must name a strategy that is no tape itself ({', '.join(others)}), but got {shown(of)}"
            f"{did_you_mean(str(of), others).removesuffix('.')}"
        )
    of = str(of)
    for what in ("budget", "learner"):
        mine, of_source = (getattr(spec.overrides_of(k), what) for k in (name, of))
        if mine != of_source:
            raise ValueError(f"{where}.{what}` must be that of {of!r}, so that their draws fit each other, but differs")
    for what, of_one in (("environments", spec.environments_of), ("learners", spec.learners_of)):
        if lacking := sorted(set(of_one(name)) - set(of_one(of))):
            raise ValueError(f"{where}.{what}` must be among those of {of!r}, but {lacking[0]} is not; leave it out")


def _check_chunk(spec: StudyTables, name: str) -> None:
    """Raise unless a tape's chunks have another seed to learn from."""
    where = f"`strategies.{name}`"
    if spec.budget.unit != "steps":
        raise ValueError(f"{where} must have a budget in steps, with which runs make equally many updates")
    rest = len(spec.seeds) % spec.chunk_size or spec.chunk_size
    if rest == 1:
        raise ValueError(
            f"{where} needs two seeds or more in every chunk, but {len(spec.seeds)} seeds in chunks of "
            f"{spec.chunk_size} leave a chunk of one; change `seeds` or `chunk_size`"
        )


def check_cells(spec: StudyTables, source: str) -> None:
    """Check that every environment, learner and strategy that the study combines makes useful runs.

    Args:
        spec: The study, its parts resolved.
        source: Its file, for errors.

    Raises:
        SpecError: A learner draws no batches where strategies that say which are compared; nothing is left to run; an
            environment, a learner or a bound is of no use; or nothing records a metric that is asked for.
    """
    for strategy, part in spec.strategies.items():
        for learner in spec.learners_of(strategy):
            rows = with_arguments(spec.learner_of(strategy, learner).options).get("batch_size")
            if rows == 0 and len(spec.strategies) > 1 and part.type not in WITHOUT_REPLAY:
                raise SpecError(
                    f"{source}: `learners.{learner}.batch_size` must be at least 1 with the strategy {strategy!r}, "
                    "which says what is replayed, but is 0, so nothing would be; give it, as in batch_size = 32."
                )
    if not spec.runs:
        raise SpecError(f"{source}: there is nothing to run: no strategy has a learner and an environment in common.")
    _check_used(spec, source)
    _check_metrics(spec, source)


def _check_used(spec: StudyTables, source: str) -> None:
    """Raise if an environment or a learner is in no run, or an equivalence bound applies to no comparison."""
    cells = spec.cells
    for table, names, used in (
        ("environments", spec.environments, {e for e, _, _ in cells}),
        ("learners", tuple(spec.learners), {k for _, k, _ in cells}),
    ):
        for name in names:
            if name not in used:
                raise SpecError(
                    f"{source}: `{table}` must be in some run each, but no strategy runs "
                    f"{'on' if table == 'environments' else 'with'} {name!r}; leave it out, or name it in a strategy's "
                    f"`{table}`."
                )
    based = {(e, k) for e, k, s in cells if s == spec.baseline}
    compared = {e for e, k, s in cells if s != spec.baseline and (e, k) in based}
    for name in spec.equivalence:
        if name not in compared:
            raise SpecError(
                f"{source}: `equivalence` must be of environments where strategies are compared with the baseline, "
                f"{spec.baseline!r}, but on {name!r} none is; leave it out (contrasts have their own)."
            )


def _check_metrics(spec: StudyTables, source: str) -> None:
    """Raise if a requested metric is not recorded: it is unknown, or switched off.

    Custom parts, and other libraries', may record anything but what seems to be a known name misspelt.
    """
    parts = (*spec.learners.values(), *spec.strategies.values())
    others = any(":" in part.type or part.type in ALONE for part in parts)
    asked = [("metrics", metric) for metric in spec.metrics]
    asked += [("contrasts.metric", contrast.metric) for contrast in spec.contrasts if contrast.metric is not None]
    asked += [("scores.metric", score.metric) for score in spec.scores.values()]
    names = [metric.name for metric in METRICS]
    for where, metric in asked:
        if metric not in REGISTRY:
            if others and not difflib.get_close_matches(metric, names, n=1, cutoff=0.9):
                continue
            raise SpecError(
                f"{source}: `{where}` must be what runs record, but got {metric!r}{did_you_mean_metric(metric, names)}"
            )
        needs = REGISTRY[metric].needs
        if needs and not others and not spec.run_settings[needs]:
            setting = IN_STUDIES[needs]
            switch = f"`{setting.table}.{setting.key}`"
            now = json.dumps(spec.run_settings[needs])
            raise SpecError(
                f"{source}: `{where}` must be what runs record, but got {metric!r}, which {switch} = {now} switches "
                f"off; set {switch}, or ask for another."
            )
        if setting_name := PERIODS.get(REGISTRY[metric].when):
            _check_reached(spec, source, f"`{where}` must be what runs record, but got {metric!r}", setting_name)


def _check_reached(spec: StudyTables, source: str, rule: str, setting: str) -> None:
    """Raise if a metric is recorded less often than once in the smallest budget."""
    period, place = spec.run_settings[setting], IN_STUDIES[setting]
    budget = min((spec.budget_of(name) for name in spec.strategies), key=lambda candidate: candidate.total)
    if period > budget.total and not (setting == "measure_every" and budget.unit == "episodes"):
        key = f"`{place.table}.{place.key}`"
        raise SpecError(
            f"{source}: {rule}, which {key} = {period} never records in {budget}; set {key}, or ask for another."
        )
