"""The distribution that a buffer samples from."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError
from replaylab.replay.buffer_parts import BufferParts
from replaylab.replay.data.arrays import checked_progress, positive


class SamplingTotals(NamedTuple):
    """Sums over the stored steps of the mass m that the sampling probability P(i) = m_i / Σ m is proportional to.

    With replicas each is an array ``[R]``. Source of sharing by totals: Horgan et al. 2018.

    Attributes:
        total: Σ m, where m = 1 (`Uniform`) or p^α (`Prioritized`).
        least: The smallest m > 0; with a `Sequence`, of the sum over its steps. Infinite if nothing can be drawn.
        rows: N, the number of stored steps, or of sequences.
    """

    total: Any
    least: Any
    rows: Any


def probabilities(
    parts: BufferParts, ids: npt.ArrayLike, batch_size: int | None, progress: float | None
) -> npt.NDArray[np.float64]:
    """Return the sampling probabilities of steps; see `ReplayBuffer.probabilities`."""
    sampler = parts.config.sampler
    if not sampler.has_closed_form:
        raise ConfigError(
            f"{type(sampler).__name__} has no closed form of its sampling probability: {sampler.no_closed_form}"
        )
    if batch_size is None:
        if sampler.distribution_needs_batch_size:
            raise ConfigError(
                f"the sampling distribution of {type(sampler).__name__} depends on the batch size; pass batch_size=..."
            )
        batch_size = 1
    batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
    if progress is not None:
        checked_progress(progress, parts.config.replicas)  # also where it decides nothing
    scheduled = parts.layout.schedules.at(progress if sampler.distribution_needs_progress else 0.0)
    return parts.engine.probabilities(ids, batch_size, scheduled)


def sampling_totals(parts: BufferParts) -> SamplingTotals | None:
    """Return what the sampling probabilities are proportional to; see `ReplayBuffer.sampling_totals`."""
    totals = parts.engine.totals()
    if not totals:
        return None
    if parts.config.replicas is None:
        return SamplingTotals(*totals[0])
    return SamplingTotals(*(np.array(column) for column in zip(*totals, strict=True)))
