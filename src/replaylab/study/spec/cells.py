"""Checks that need several tables of a study file: every strategy and learner must make useful runs."""

from __future__ import annotations

import difflib
import json

from replaylab.errors import SpecError
from replaylab.learners.metrics import METRICS, REGISTRY, did_you_mean_metric
from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study.spec.components import ALONE, with_arguments
from replaylab.study.spec.study_tables import StudyTables

WITHOUT_REPLAY = ("none", "online")
"""Types of strategies for learners that draw no batches."""


PERIODS = {"update": "log_every", "measures": "measure_every"}
"""The setting for how often a metric is recorded, by the moment of recording."""


def check_cells(spec: StudyTables, source: str) -> None:
    """Check every environment, learner and strategy that the study combines.

    Args:
        spec: The study, its parts resolved.
        source: Its file, for errors.

    Raises:
        SpecError: A strategy changes the type of learners; a learner draws no batches where strategies that say which
            are compared; an option of a transform is wrong; nothing is left to run; an environment, a learner or a
            bound is of no use; or nothing records a metric that is asked for.
    """
    for strategy, part in spec.strategies.items():
        changes = spec.overrides[strategy].learner if strategy in spec.overrides else {}
        if "type" in changes:
            raise SpecError(
                f"{source}: `strategies.{strategy}.learner` must change settings of the learners, not their type, but "
                f"got type {changes['type']!r}; declare another learner, and name it in "
                f"`strategies.{strategy}.learners`."
            )
        for learner in spec.learners_of(strategy):
            try:
                options = spec.learner_of(strategy, learner).options
            except SpecError as error:  # it names the study, which knows of no file
                raise SpecError(f"{source}: {str(error).removeprefix(f'{spec.name}: ')}") from error
            rows = with_arguments(options).get("batch_size")
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
