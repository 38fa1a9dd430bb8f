"""Retention: which steps are kept when there is no more room."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab import _core


class Retention:
    """Base of the retentions; give one to `ReplayBuffer(retention=...)`."""

    core_kind: ClassVar[_core.Retention]


@dataclass(frozen=True)
class Fifo(Retention):
    """First in, first out: the oldest step goes (the default)."""

    core_kind: ClassVar[_core.Retention] = _core.Retention.FIFO


@dataclass(frozen=True)
class Reservoir(Retention):
    """A uniform sample of all steps ever added.

    The n-th step is kept with probability min(1, C/n), and replaces a random one, so that at any time every step so
    far is stored with the same chance. `add` returns −1 for a step that is not kept. A reservoir
    stores single transitions, so transforms, a derived ``next_obs``, and samplers that depend on age or order are
    refused. Source: Vitter 1985 (algorithm R).
    """

    core_kind: ClassVar[_core.Retention] = _core.Retention.RESERVOIR


@dataclass(frozen=True)
class Assigned(Retention):
    """The code that stores the rows assigns each step's slot: `Priorities.assign`.

    A step replaces the previous step of its slot. Steps have no order of age, so samplers that depend on age or
    order are refused.
    """

    core_kind: ClassVar[_core.Retention] = _core.Retention.ASSIGNED
