"""Figures of a replay in shards."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replaylab.distributed.replay.shards.shard_pool import ShardPool


@dataclass(frozen=True)
class ShardFigures:
    """Figures of one shard. What it counted began with its epoch.

    Attributes:
        number: Its place among the shards.
        epoch: How many shards of this slot there were before.
        live: Whether it is there; if not, what follows is 0, except for `losses` and `lost_steps`.
        node: The id of the node it is on, "" if it is unknown.
        size: Steps stored.
        total: Σ of what the sampling probability is proportional to: 1 each, or p^α.
        added: Steps that writers have stored.
        adds_per_second: Its adds a second since it was started.
        drawn: Rows drawn.
        draws_per_second: Of these.
        feedback: Ids that took feedback.
        stale_feedback: Ids whose step was not stored any more.
        repeated_adds: Adds, and ends of episodes, that came again, and were not applied again.
        nbytes: Bytes of memory.
        losses: Shards of this slot that were lost; None: who asks cannot know.
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
        total_priority: ΣT, of what the sampling distribution is in proportion to.
        stale_updates: Ids of feedback whose step was dropped, or of a shard that is lost.
        topped_up: Rows drawn again because a shard was lost.
        losses: Shards that were lost.
        lost_steps: Steps that were lost with them.
        snapshot_error: Why shards could not be saved in the background when last tried; None: they could.
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
    snapshot_error: str | None
    shards: tuple[ShardFigures, ...]


def shard_figures(pool: ShardPool) -> tuple[ShardFigures, ...]:
    """Ask all shards for their figures."""
    requests = [(slot, slot.client, pool.ask(slot, "figures") if slot.tally else None) for slot in pool.slots]
    figures = []
    for slot, client, pending in requests:
        answer = pending and pool.answer(slot, client, pending)
        about: dict[str, Any] = {"losses": slot.losses, "lost_steps": slot.lost_steps}
        lost = ShardFigures(slot.number, slot.epoch, False, **about)
        figures.append(lost if answer is None else figures_from(slot.number, answer, about))
    return tuple(figures)


def figures_from(number: int, answer: Any, about: Mapping[str, Any]) -> ShardFigures:
    """Return figures from what a shard answers, and what is known of those lost in its place before."""
    counted, tally = answer
    counted = dict(counted)
    seconds = max(counted.pop("seconds"), 1e-9)
    num_stored = counted.pop("stored")
    return ShardFigures(
        number,
        tally.epoch,
        True,
        **about,
        **counted,
        size=tally.size,
        total=tally.total,
        added=tally.added,
        adds_per_second=num_stored / seconds,
        draws_per_second=counted["drawn"] / seconds,
    )
