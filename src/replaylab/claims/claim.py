"""Published claims, and the figures that their experiments yield."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class ReplicationOutcome(StrEnum):
    """Whether a measured figure agrees with the claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CONTESTED = "contested"


@dataclass(frozen=True)
class ReplicatedFigure:
    """One published figure and the measured one.

    Attributes:
        what: The quantity and its unit, in words.
        theirs: The published figure, in words.
        ours: The measured figure.
        low: Lower end of the interval of `ours`.
        high: Upper end of the interval of `ours`.
        interval: Kind of interval, such as "range of 10 runs" or "exact".
        verdict: Whether the two agree, by the rule in the claim's module; None: there is nothing to compare with.
    """

    what: str
    theirs: str
    ours: float
    low: float
    high: float
    interval: str
    verdict: ReplicationOutcome | None

    @classmethod
    def exact(cls, what: str, theirs: str, ours: float, agrees: bool) -> Self:
        """Return a figure that was computed, not estimated."""
        return cls(what, theirs, ours, ours, ours, "exact", agreement(agrees))


@dataclass(frozen=True)
class Claim:
    """A published statement and the experiment that tests it.

    Attributes:
        number: Number that selects it on the command line.
        title: Short name.
        statement: The claim, as a sentence.
        source: Authors and publication.
        minutes: Approximate run time of the experiment on two cores.
        measure: Runs the experiment and yields its figures; it is called with `studies`, which it runs or reads.
        studies: Names of the shipped studies that it depends on.
    """

    number: int
    title: str
    statement: str
    source: str
    minutes: float
    measure: Callable[..., Iterator[ReplicatedFigure]]
    studies: tuple[str, ...] = ()


def agreement(agrees: bool) -> ReplicationOutcome:
    """Return "reproduced" or "not reproduced"."""
    return ReplicationOutcome.REPRODUCED if agrees else ReplicationOutcome.NOT_REPRODUCED


def overall(findings: Iterable[ReplicatedFigure]) -> ReplicationOutcome:
    """Return the verdict on a claim: not reproduced, contested or reproduced, the first of them that a finding has."""
    verdicts = {finding.verdict for finding in findings}
    for verdict in (ReplicationOutcome.NOT_REPRODUCED, ReplicationOutcome.CONTESTED):
        if verdict in verdicts:
            return verdict
    return ReplicationOutcome.REPRODUCED
