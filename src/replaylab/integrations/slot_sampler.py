"""Draws and feedback for libraries that store the rows themselves and identify them by slot."""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, optional, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.integrations.drawn import DrawnSteps
from replaylab.replay import Batch, Priorities, Schedules


class SlotSampler:
    """`Priorities`, with the steps drawn from their slots and the training progress.

    Args:
        priorities: Priorities of the stored steps.
        total_batches: Batches in the complete run; None: `progress` is set by hand.

    Attributes:
        priorities: The argument.
        progress: Training progress in [0, 1], if it is set by hand; else None.

    Raises:
        ConfigError: `total_batches` is not a number of at least 1.
    """

    def __init__(self, priorities: Priorities, total_batches: int | None) -> None:
        self.priorities = priorities
        self.progress: float | None = None
        self._total = checked("total_batches", total_batches, optional(whole()))
        self._batches = 0
        self._drawn = DrawnSteps(priorities.capacity)
        sampler, remedy = priorities.sampler, "pass total_batches=..., or set `progress` before each draw"
        self._schedules = Schedules(type(sampler).__name__, sampler.schedules, remedy)

    def draw(self, batch_size: int) -> Batch:
        """Draw a batch.

        Raises:
            ConfigError: `progress` is not in [0, 1].
            EmptyBufferError: Too few steps are stored.
        """
        progress = self.progress if self._total is None else min(1.0, self._batches / self._total)
        batch = self.priorities.sample(batch_size, progress=self._schedules.progress(progress))
        self._batches += 1
        self._drawn.drew(batch.slot, batch.id)
        return batch

    def stored(self, slots: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> None:
        """Record that these new steps are stored in these slots."""
        self._drawn.stored(slots, ids)

    def shown(self, slots: npt.NDArray[np.int64]) -> None:
        """Record that the steps in these slots were returned without being drawn, so that feedback belongs to them."""
        self._drawn.shown(slots)

    def feed(self, slots: npt.NDArray[np.int64], errors: npt.NDArray[np.float64]) -> None:
        """Feed errors (n,) back for the steps that slots (n,) held when they were drawn; errors of −∞ are skipped.

        Raises:
            ShapeError: The numbers of errors and slots differ.
            ConfigError: A slot is not below the capacity.
            PriorityError: An error is NaN or infinite; nothing is changed.
        """
        if errors.shape != slots.shape:
            raise ShapeError(f"errors must be one for each of {slots.size:,} slots, but got {errors.size:,}")
        if slots.size and slots.max() >= self.priorities.capacity:
            raise ConfigError(f"slots must be below {self.priorities.capacity:,}, but one is {slots.max():,}")
        ids, has_error = self._drawn.ids_of(slots), errors != -np.inf
        if has_error.any():
            self.priorities.update_priorities(ids[has_error], errors[has_error])

    def clear(self) -> None:
        """Remove every step."""
        self.priorities.clear()
        self._drawn.clear()

    def state(self) -> dict[str, Any]:
        """Return everything except the priorities, for saving."""
        return {"drawn": self._drawn.arrays(), "batches": self._batches, "progress": self.progress}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._drawn.restore(state["drawn"])
        self._batches, self.progress = state["batches"], state["progress"]


class FollowsProgress:
    """A mixin for classes that draw by a `SlotSampler`: its priorities and its progress."""

    _slots: SlotSampler

    @property
    def priorities(self) -> Priorities:
        """Priorities of the rows, which also return sampling probabilities, figures and counts."""
        return self._slots.priorities

    @property
    def progress(self) -> float | None:
        """Training progress in [0, 1], as you set it; None before that."""
        return self._slots.progress

    @progress.setter
    def progress(self, progress: float | None) -> None:
        self._slots.progress = progress
