"""Inspection of a buffer: rows by id and slot, statistics, and its display."""

from replaylab.replay.introspection.display import html, text
from replaylab.replay.introspection.rows import as_batch, columns, get
from replaylab.replay.introspection.stats import (
    ReplayStats,
    SamplingTotals,
    probabilities,
    replay_counts,
    sampling_totals,
    stats_of,
    stored_ids,
)

__all__ = [
    "ReplayStats",
    "SamplingTotals",
    "as_batch",
    "columns",
    "get",
    "html",
    "probabilities",
    "replay_counts",
    "sampling_totals",
    "stats_of",
    "stored_ids",
    "text",
]
