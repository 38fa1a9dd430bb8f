"""Strategies that learn from the draws of another one: ``type = "tape"`` with ``of = "NAME"``.

Its seed s learns, update by update, from the ids that the run of another seed of that strategy drew, in the same
environment, with the same learner: that of the next seed of its population, and of the first for the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replaylab.arguments import check, text
from replaylab.study.spec.errors import did_you_mean, shown

if TYPE_CHECKING:
    from replaylab.study.spec.study_file import Spec

TAPE = "tape"
"""The type of such a strategy."""

SHIFT = 1
"""How many seeds further in a population the draws come from."""


@dataclass(frozen=True)
class TapeOf:
    """What a study file says of such a strategy.

    Attributes:
        of: The strategy whose draws are replayed.
    """

    of: str

    def __post_init__(self) -> None:
        check(self, of=text)


def check_tapes(spec: Spec) -> None:
    """Raise unless every tape of a study can be recorded, and replayed by other seeds.

    Args:
        spec: The study, whose parts need not be resolved.

    Raises:
        ValueError: One cannot; the message names the strategy, the rule, the value and the mend.
    """
    for name, part in spec.strategies.items():
        if part.type == TAPE:
            _check_source(spec, name, part.options.get("of"))
            _check_population(spec, name)


def _check_source(spec: Spec, name: str, of: object) -> None:
    others = [k for k, p in spec.strategies.items() if p.type != TAPE]
    where = f"`strategies.{name}"
    if of not in others:
        raise ValueError(
            f"{where}.of` must name a strategy that is no tape itself ({', '.join(others)}), but got {shown(of)}"
            f"{did_you_mean(str(of), others).removesuffix('.')}"
        )
    of = str(of)
    for what in ("budget", "learner"):
        mine, theirs = (getattr(spec.overrides.get(k), what, None) or None for k in (name, of))
        if mine != theirs:
            raise ValueError(f"{where}.{what}` must be that of {of!r}, so that their draws fit each other, but differs")
    for what, of_one in (("environments", spec.environments_of), ("learners", spec.learners_of)):
        if lacking := sorted(set(of_one(name)) - set(of_one(of))):
            raise ValueError(f"{where}.{what}` must be among those of {of!r}, but {lacking[0]} is not; leave it out")


def _check_population(spec: Spec, name: str) -> None:
    where = f"`strategies.{name}`"
    if spec.budget.unit != "steps":
        raise ValueError(f"{where} must have a budget in steps, with which runs make equally many updates")
    rest = len(spec.seeds) % spec.population or spec.population
    if rest == 1:
        raise ValueError(
            f"{where} must find another seed in every population, but of {len(spec.seeds)} seeds in populations of "
            f"{spec.population} one is alone; change `seeds` or `population`"
        )
