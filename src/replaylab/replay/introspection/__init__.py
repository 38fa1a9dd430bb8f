"""Inspection of a buffer: rows by id and slot, statistics, and its display."""

from replaylab.replay.introspection.display import html, text
from replaylab.replay.introspection.stats import (
    ReplayStats,
    as_batch,
    columns,
    probabilities,
    replay_counts,
    stats_of,
    stored_ids,
)

__all__ = [
    "ReplayStats",
    "as_batch",
    "columns",
    "html",
    "probabilities",
    "replay_counts",
    "stats_of",
    "stored_ids",
    "text",
]
