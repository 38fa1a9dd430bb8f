"""Findings of claims that a study tests, by contrasts declared before it was run or by a published mean return.

A statement on a contrast counts as reproduced if the contrast's verdict agrees with it, as not reproduced if the
verdict contradicts it, and as contested if the contrast is inconclusive, or not interpretable because a manipulation
check failed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from replaylab.claims.claim import ReplicatedFigure, ReplicationOutcome, agreement
from replaylab.claims.cleanrl import t_interval
from replaylab.errors import ConfigError
from replaylab.study import Study
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec.contrasts import resolve_contrasts
from replaylab.study.spec.study_tables import Origins


class Said(NamedTuple):
    """A published statement on a contrast.

    Attributes:
        words: The statement, in words.
        agreeing: The contrast's verdicts that agree: "higher", "lower", "equivalent".
    """

    words: str
    agreeing: tuple[str, ...]


def complete(study: Study, within: Study | None = None) -> Study:
    """Run the missing runs of the study, and return it.

    Args:
        study: The study to complete.
        within: A larger study in the same folder; if more runs of it are stored, the folder's records stay its records.

    Raises:
        ConfigError: A run failed.
    """
    more = within is not None and len(within.present) > len(study.present)
    try:
        complete = study.run().complete
    finally:
        if within is not None and more:
            StudyFolder(within.spec, within.folder).write_records()
    if not complete:
        raise ConfigError(f"runs of {study.spec.name} failed; their tracebacks are in {study.folder / 'failures'}")
    return study


def only_for(study: Study, said: Mapping[str, Said]) -> Study:
    """Return a study in the same folder with only these contrasts, as one family, and the strategies that they compare.

    So a verdict does not depend on other runs in the folder.
    """
    wanted = [contrast for contrast in resolve_contrasts(study.spec) if contrast.name in said]
    strategies = {cell.strategy for contrast in wanted for cell in contrast.cells}
    parts = {name: part for name, part in study.spec.strategies.items() if name in strategies}
    changes = {
        "strategies": parts,
        "overrides": {name: table for name, table in study.spec.overrides.items() if name in parts},
        "overridden": {name: table for name, table in study.spec.overridden.items() if name in parts},
        "origins": Origins(
            strategies={name: origin for name, origin in study.spec.origins.strategies.items() if name in parts},
            learners=study.spec.origins.learners,
        ),
        "contrasts": tuple(contrast for contrast in study.spec.contrasts if contrast.name in said),
    }
    return Study(study.spec.model_copy(update=changes), study.folder)


def contrast_findings(study: Study, said: Mapping[str, Said]) -> Iterator[ReplicatedFigure]:
    """Yield one finding for each contrast with a published statement, in the order of the study file."""
    for result in study.contrasts().results:
        if result.contrast.name in said:
            words, agreeing = said[result.contrast.name]
            level = "mean" if study.spec.judged_by_role else "interquartile mean"
            yield ReplicatedFigure(
                f"{result.contrast.name}: difference in {result.contrast.unit}",
                words,
                *result.reported.interval,
                f"{level} of {len(result.each.seeds)} seeds, {result.reported.label}",
                judged(result.verdict, agreeing),
            )


def judged(verdict: str, agreeing: tuple[str, ...]) -> ReplicationOutcome:
    """Return the outcome for a statement with which the `agreeing` verdicts agree, given a contrast's verdict."""
    if verdict in ("inconclusive", "not interpretable"):
        return ReplicationOutcome.CONTESTED
    return ReplicationOutcome.REPRODUCED if verdict in agreeing else ReplicationOutcome.NOT_REPRODUCED


def mean_return(study: Study, query: str, quantity: str, published: float | None) -> ReplicatedFigure:
    """Return the mean over runs; it counts as reproduced unless its 95 % interval is below the published return.

    Args:
        study: The study with the results.
        query: SQL that gives one return for each run.
        quantity: The quantity, in words.
        published: The published return; None: there is nothing to compare with.
    """
    returns = np.array(study.query(query).fetchall(), np.float64)[:, 0]
    low, high = t_interval(returns)
    return ReplicatedFigure(
        quantity,
        "" if published is None else f"{published:g}",
        float(returns.mean()),
        low,
        high,
        f"mean of {len(returns)} runs, 95 %",
        None if published is None else agreement(high >= published),
    )
