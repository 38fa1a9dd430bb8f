"""Figures of a replay on a device."""

from dataclasses import dataclass

import numpy as np
import torch

from replaylab.replay import ReplayStats
from replaylab.replay.data.schedules import changes
from replaylab.replay.introspection import distribution_figures, replay_figures
from replaylab.torch.device_parts import DeviceParts
from replaylab.torch.drawing.fixed_point import ONE
from replaylab.torch.drawing.samplers import ProportionalDraws


@dataclass(frozen=True, eq=False, repr=False)
class DeviceStats(ReplayStats):
    """Figures of a `DeviceReplay`, those of `ReplayStats` and more.

    Attributes:
        dropped_early: Steps among the newest C that are not stored any more, because the side ring of final
            observations was full.
        invalid_feedback: TD errors and priorities that were ignored: NaN, infinite, or a negative priority.
    """

    dropped_early: int
    invalid_feedback: int


def stats_of(parts: DeviceParts, batch_size: int | None, progress_known: bool) -> DeviceStats:
    """Return a replay's figures; see `DeviceReplay.stats`. `progress_known`: whether progress was passed."""
    ring, config, sampler = parts.ring, parts.options.config, parts.options.config.sampler
    added, first = int(ring.head), int(ring.tail)
    size = added - first
    samples, stale, invalid = parts.counts.tolist()
    ids = torch.arange(first, added, device=parts.options.device)
    ages = np.arange(size - 1, -1, -1.0)
    needs_progress = sampler.distribution_needs_progress and any(map(changes, sampler.schedules))
    known = None
    if not (sampler.distribution_needs_batch_size and batch_size is None) and (progress_known or not needs_progress):
        known = (parts.probabilities(ids, batch_size).double().cpu().numpy() if size else np.zeros(0), ages)
    largest = total = None
    if isinstance(parts.draws, ProportionalDraws):
        leaves = parts.draws.tree.sums[ids % ring.capacity].cpu().numpy() / ONE
        largest, total = float(leaves.max()) if size else np.nan, float(leaves.sum())
    return DeviceStats(
        size=size,
        capacity=config.capacity,
        added=added,
        cycles=added // config.capacity,
        oldest_age=float(size - 1) if size else np.nan,
        mean_age=(size - 1) / 2 if size else np.nan,
        largest_priority=largest,
        total_priority=total,
        samples=samples,
        samples_per_insert=samples / added if added else np.nan,
        stale_updates=stale,
        moved_share=None,
        dropped_early=first - max(0, added - config.capacity),
        invalid_feedback=invalid,
        **distribution_figures(known),
        **replay_figures(None),
    )
