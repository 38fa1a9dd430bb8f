"""Figures of a replay in shards."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardFigures:
    """Figures of one shard. Counts and rates begin with its epoch.

    Attributes:
        number: Its number.
        epoch: Its epoch, which rises with each restart.
        live: Whether it answers; if not, all figures after `lost_steps` are 0.
        losses: How often it was lost.
        lost_steps: Steps that were lost with it, as far as they had been reported; None: not known to the caller.
        node: Id of its node.
        size: Steps stored.
        total: Σ of what the sampling probability is proportional to: 1 each, or p^α.
        added: Steps stored, and a second.
        drawn: Rows drawn, and a second.
        stale_feedback: Ids of feedback whose step was not stored any more.
        nbytes: Bytes of memory.
        snapshot_error: Why it could not be saved in the background when last tried; None: it could.
    """

    number: int
    epoch: int
    live: bool
    losses: int = 0
    lost_steps: int | None = None
    node: str = ""
    size: int = 0
    total: float = 0.0
    added: int = 0
    adds_per_second: float = 0.0
    drawn: int = 0
    draws_per_second: float = 0.0
    stale_feedback: int = 0
    nbytes: int = 0
    snapshot_error: str | None = None


@dataclass(frozen=True)
class RemoteReplayStats:
    """Figures of a replay in shards, from `RemoteReplay.stats`.

    Attributes:
        size: N, steps stored in all shards.
        capacity: C.
        added: Steps stored since this replay was created or loaded, including those that were lost with a shard.
        samples: Rows drawn by all readers since then, except from shards that were lost.
        samples_per_insert: samples / added; NaN before the first step.
        total_priority: ΣT, of what the sampling distribution is proportional to.
        stale_updates: Ids of feedback whose step was dropped, or whose shard was lost.
        priority_age: Updates between the draw of a batch and its use by this process, on the mean.
        losses: How often shards were lost.
        lost_steps: Steps that were lost with them, as far as they had been reported. Writers count steps that were lost
            before they were acknowledged.
        shards: Figures of each.
    """

    size: int
    capacity: int
    added: int
    samples: int
    samples_per_insert: float
    total_priority: float
    stale_updates: int
    priority_age: float
    losses: int
    lost_steps: int
    shards: tuple[ShardFigures, ...]
