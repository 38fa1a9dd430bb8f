"""Figures of a replay in shards."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replaylab.distributed.replay.shards.fleet import Fleet, Place


@dataclass(frozen=True)
class ShardFigures:
    """Figures of one shard. What it counted began with its epoch.

    Attributes:
        number: Its place among the shards.
        epoch: How many shards of this place there were before.
        live: Whether it is there; if not, what follows is 0, but for `losses` and `lost_steps`.
        node: The id of the node it is on, "" where there are none.
        size: Steps stored.
        total: Σ of what its law is in proportion to: 1 each, or p^α.
        added: Steps that writers have stored.
        adds_per_second: Of its own, since it was started.
        drawn: Rows drawn.
        draws_per_second: Of these.
        feedback: Ids that took feedback.
        stale_feedback: Ids whose step was not stored any more.
        repeated_adds: Adds, and ends of episodes, that came again, and were not applied again.
        nbytes: Bytes of memory.
        losses: Shards of this place that were lost; None: who asks cannot know.
        lost_steps: Steps stored, as the learner knew, that were lost with them; likewise.
    """

    number: int
    epoch: int
    live: bool
    losses: int | None
    lost_steps: int | None
    node: str = ""
    size: int = 0
    total: float = 0.0
    added: int = 0
    adds_per_second: float = 0.0
    drawn: int = 0
    draws_per_second: float = 0.0
    feedback: int = 0
    stale_feedback: int = 0
    repeated_adds: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class RemoteReplayStats:
    """Figures of a replay in shards, from `RemoteReplay.stats`.

    Attributes:
        size: N, steps stored in all shards.
        capacity: C.
        added: Steps stored so far, those that were lost with a shard among them.
        samples: Rows asked for so far.
        samples_per_insert: samples / added; NaN before the first step.
        total_priority: ΣT, of what the law is in proportion to.
        stale_updates: Ids of feedback whose step was dropped, or of a shard that is lost.
        topped_up: Rows drawn anew because a shard was lost.
        losses: Shards that were lost.
        lost_steps: Steps that were lost with them.
        shards: Figures of each.
    """

    size: int
    capacity: int
    added: int
    samples: int
    samples_per_insert: float
    total_priority: float
    stale_updates: int
    topped_up: int
    losses: int
    lost_steps: int
    shards: tuple[ShardFigures, ...]


def shard_figures(fleet: Fleet) -> tuple[ShardFigures, ...]:
    """Ask all shards for their figures."""
    asked = [(place, place.client, fleet.ask(place, "figures") if place.tally else None) for place in fleet.places]
    answers = [pending and fleet.answer(place, client, pending) for place, client, pending in asked]
    return tuple(_figures(place, answer) for place, answer in zip(fleet.places, answers, strict=True))


def _figures(place: Place, answer: Any) -> ShardFigures:
    about: dict[str, Any] = {"losses": place.losses, "lost_steps": place.lost_steps}
    if answer is None:
        return ShardFigures(place.number, place.epoch, False, **about)
    return told_figures(place.number, answer, about)


def told_figures(number: int, answer: Any, about: Mapping[str, Any]) -> ShardFigures:
    """Return figures from what a shard answers, and what is known of those lost in its place before."""
    counted, tally = answer
    counted = dict(counted)
    seconds = max(counted.pop("seconds"), 1e-9)
    here = counted.pop("stored")
    return ShardFigures(
        number,
        tally.epoch,
        True,
        **about,
        **counted,
        size=tally.size,
        total=tally.total,
        added=tally.added,
        adds_per_second=here / seconds,
        draws_per_second=counted["drawn"] / seconds,
    )
