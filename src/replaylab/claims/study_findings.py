"""Findings of claims that a study tests: its contrasts, declared before it was run, are the figures.

What a source says counts as reproduced if the contrast's verdict agrees with it, as not reproduced if the verdict
contradicts it, and as contested if the contrast is undecided, or not interpretable since a manipulation check failed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from replaylab.claims.claim import ReplicatedFigure, ReplicationOutcome
from replaylab.errors import ConfigError
from replaylab.study import Study
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec.contrasts import resolve_contrasts
from replaylab.study.spec.study_file import Origins


class Said(NamedTuple):
    """What a source says of a contrast.

    Attributes:
        words: For the reader.
        agreeing: The contrast's verdicts that agree: "higher", "lower", "equivalent".
    """

    words: str
    agreeing: tuple[str, ...]


def complete(study: Study, within: Study | None = None) -> Study:
    """Run what is missing of the study, and return it.

    Args:
        study: What must be there.
        within: A study of the same folder that it is a part of; where more of that is there, the folder stays its.

    Raises:
        ConfigError: A run failed.
    """
    more = within is not None and len(within.present) > len(study.present)
    try:
        done = study.run().complete
    finally:
        if within is not None and more:
            StudyFolder(within.spec, within.folder).write_records()
    if not done:
        raise ConfigError(f"runs of {study.spec.name} failed; their tracebacks are in {study.folder / 'failures'}")
    return study


def only_for(study: Study, said: Mapping[str, Said]) -> Study:
    """Return a study in the same folder with these contrasts alone, one family, and the strategies that they compare.

    So a verdict hangs on nothing else that may be in the folder.
    """
    wanted = [one for one in resolve_contrasts(study.spec) if one.name in said]
    strategies = {cell.strategy for one in wanted for cell in one.cells}
    parts = {name: part for name, part in study.spec.strategies.items() if name in strategies}
    changes = {
        "strategies": parts,
        "overrides": {name: own for name, own in study.spec.overrides.items() if name in parts},
        "overridden": {name: own for name, own in study.spec.overridden.items() if name in parts},
        "origins": Origins(
            strategies={name: one for name, one in study.spec.origins.strategies.items() if name in parts},
            learners=study.spec.origins.learners,
        ),
        "contrasts": tuple(one for one in study.spec.contrasts if one.name in said),
    }
    return Study(study.spec.model_copy(update=changes), study.folder)


def contrast_findings(study: Study, said: Mapping[str, Said]) -> Iterator[ReplicatedFigure]:
    """Yield one finding for each contrast of which a source says something, in the order of the study file."""
    for found in study.contrasts().results:
        if found.contrast.name in said:
            words, agreeing = said[found.contrast.name]
            level = "mean" if study.spec.judged_by_role else "interquartile mean"
            yield ReplicatedFigure(
                f"{found.contrast.name}: difference in {found.contrast.unit}",
                words,
                found.size.estimate,
                found.size.low,
                found.size.high,
                f"{level} of {len(found.each.seeds)} seeds, 95 %",
                judged(found.verdict, agreeing),
            )


def judged(verdict: str, agreeing: tuple[str, ...]) -> ReplicationOutcome:
    """Return what a contrast's verdict says about a statement with which these verdicts agree."""
    if verdict in ("undecided", "not interpretable"):
        return ReplicationOutcome.CONTESTED
    return ReplicationOutcome.REPRODUCED if verdict in agreeing else ReplicationOutcome.NOT_REPRODUCED
