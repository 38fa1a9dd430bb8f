"""What a claim is, and what measuring it gives."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class ReplicationOutcome(StrEnum):
    """What our figure says about the claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CONTESTED = "contested"


@dataclass(frozen=True)
class ReplicatedFigure:
    """One figure of a claim, beside ours.

    Attributes:
        what: The quantity and its unit, in words.
        theirs: What the source says, in words.
        ours: What was measured here.
        low: Lower end of the interval of `ours`.
        high: Upper end of it.
        interval: What interval it is: "range of 10 runs", "exact".
        verdict: Whether the two agree, by the rule that the claim's module states; None: there is nothing to compare.
    """

    what: str
    theirs: str
    ours: float
    low: float
    high: float
    interval: str
    verdict: ReplicationOutcome | None


@dataclass(frozen=True)
class Claim:
    """A published statement and the experiment that tests it.

    Attributes:
        number: By which the command line chooses it.
        title: Its name.
        statement: What is claimed.
        source: Who claims it, and where.
        minutes: About how long the experiment takes on two cores.
        measure: Runs it and yields one finding after another; it is called with `studies`, which it runs or only reads.
        studies: Names of the shipped studies that it hangs on.
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
    """Return the verdict on a claim: the worst of its findings' verdicts, contested where none failed."""
    verdicts = {finding.verdict for finding in findings}
    for verdict in (ReplicationOutcome.NOT_REPRODUCED, ReplicationOutcome.CONTESTED):
        if verdict in verdicts:
            return verdict
    return ReplicationOutcome.REPRODUCED
