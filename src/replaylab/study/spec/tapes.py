"""Strategies that learn from the draws of another one: ``type = "tape"`` with ``of = "NAME"``.

Its seed s learns, update by update, from the ids that the run of another seed of that strategy drew, in the same
environment, with the same learner: that of the next seed of its chunk, and of the first for the last one. With
``type = "by_steps_to_end"`` it learns from steps as near to the ends of their episodes, and as old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replaylab.arguments import check, text
from replaylab.research import ByStepsToEnd, Tape
from replaylab.study.spec.errors import did_you_mean, shown
from replaylab.study.spec.study_tables import StudyTables

TAPES: Mapping[str, type[Tape]] = {"tape": Tape, "by_steps_to_end": ByStepsToEnd}
"""The types of such strategies, each with its sampler."""

SHIFT = 1
"""A seed replays the draws of the seed this many places further in its chunk."""


@dataclass(frozen=True)
class TapeOf:
    """A strategy that replays the draws of another one, as a study file declares it.

    Attributes:
        of: The strategy whose draws are replayed.
    """

    of: str

    def __post_init__(self) -> None:
        check(self, of=text)


def check_tapes(spec: StudyTables) -> None:
    """Raise unless every tape of a study can be recorded, and replayed by other seeds.

    Args:
        spec: The study, whose parts need not be resolved.

    Raises:
        ValueError: One cannot; the message names the strategy, the rule, the value and the fix.
    """
    for name, part in spec.strategies.items():
        if part.type in TAPES:
            _check_source(spec, name, part.options.get("of"))
            _check_chunk(spec, name)


def _check_source(spec: StudyTables, name: str, of: object) -> None:
    others = [k for k, p in spec.strategies.items() if p.type not in TAPES]
    where = f"`strategies.{name}"
    if of not in others:
        raise ValueError(
            f"{where}.of` must name a strategy that is no tape itself ({', '.join(others)}), but got {shown(of)}"
            f"{did_you_mean(str(of), others).removesuffix('.')}"
        )
    of = str(of)
    for what in ("budget", "learner"):
        mine, of_source = (getattr(spec.overrides.get(k), what, None) or None for k in (name, of))
        if mine != of_source:
            raise ValueError(f"{where}.{what}` must be that of {of!r}, so that their draws fit each other, but differs")
    for what, of_one in (("environments", spec.environments_of), ("learners", spec.learners_of)):
        if lacking := sorted(set(of_one(name)) - set(of_one(of))):
            raise ValueError(f"{where}.{what}` must be among those of {of!r}, but {lacking[0]} is not; leave it out")


def _check_chunk(spec: StudyTables, name: str) -> None:
    where = f"`strategies.{name}`"
    if spec.budget.unit != "steps":
        raise ValueError(f"{where} must have a budget in steps, with which runs make equally many updates")
    rest = len(spec.seeds) % spec.chunk_size or spec.chunk_size
    if rest == 1:
        raise ValueError(
            f"{where} needs two seeds or more in every chunk, but {len(spec.seeds)} seeds in chunks of "
            f"{spec.chunk_size} leave a chunk of one; change `seeds` or `chunk_size`"
        )
