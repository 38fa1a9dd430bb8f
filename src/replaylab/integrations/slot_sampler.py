"""Draws and feedback for libraries that store the rows themselves and identify them by slot."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, optional, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.replay import Batch, Priorities, Schedules

Slots = npt.NDArray[np.int64]

KEPT = 64
"""Largest number of batches whose feedback may be pending at the same time."""


class DrawnSteps:
    """The ids of the steps that were drawn from slots.

    Feedback arrives by slot. It belongs to the steps drawn from the slots, and is dropped if these were overwritten:

    * If the slots are those of a recent batch, in the same order, it belongs to the ids of that batch, however often
      the slots were written or drawn since. The same holds for a contiguous part of a batch, unless its slots are those
      stored last.
    * If the slots are those stored last, and no feedback has arrived since, it belongs to the new steps and sets their
      first priorities, even if a thread has drawn batches ahead meanwhile.
    * Otherwise, for each slot, it belongs to the step last drawn from it, or to the step stored there if none was
      drawn.

    Args:
        capacity: C.
    """

    def __init__(self, capacity: int) -> None:
        self._drawn = np.full(capacity, -1, np.int64)
        self._stored = np.full(capacity, -1, np.int64)
        self._batches: deque[tuple[Slots, Slots]] = deque(maxlen=KEPT)
        self._new: Slots | None = None

    def drew(self, slots: Slots, ids: Slots) -> None:
        """Record a drawn batch."""
        self._drawn[slots] = ids
        self._batches.appendleft((slots.copy(), ids.copy()))  # the caller may change its arrays

    def stored(self, slots: Slots, ids: Slots) -> None:
        """Record new steps."""
        self._stored[slots] = ids
        self._new = slots.copy()

    def shown(self, slots: Slots) -> None:
        """Record that the steps in these slots were returned without being drawn."""
        self._drawn[slots] = self._stored[slots]

    def ids_of(self, slots: Slots) -> Slots:
        """Return the ids of the steps that feedback for these slots belongs to; −1 for slots below 0."""
        new, self._new = self._new, None
        for drawn, batch_ids in self._batches:
            if np.array_equal(drawn, slots):
                return batch_ids
        ids = self._stored[slots]
        if new is None or not np.array_equal(new, slots):
            if (part := self._part(slots)) is not None:
                return part
            drawn = self._drawn[slots]
            ids = np.where(drawn >= 0, drawn, ids)
        return np.where(slots >= 0, ids, -1)

    def _part(self, slots: Slots) -> Slots | None:
        """Return the ids of two or more slots from the newest batch that holds these slots in succession."""
        count = len(slots)
        for drawn, ids in self._batches if count > 1 else ():
            for at in np.flatnonzero(drawn[: len(drawn) - count + 1] == slots[0]) if count < len(drawn) else ():
                if np.array_equal(drawn[at : at + count], slots):
                    return ids[at : at + count]
        return None

    def clear(self) -> None:
        """Remove all records."""
        self.__init__(len(self._drawn))  # type: ignore[misc]

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return all records, for saving."""
        none = np.zeros(0, np.int64)
        return {
            "drawn": self._drawn.copy(),
            "stored": self._stored.copy(),
            "lengths": np.array([len(slots) for slots, _ in self._batches], np.int64),
            "slots": np.concatenate([none, *(slots for slots, _ in self._batches)]),
            "ids": np.concatenate([none, *(ids for _, ids in self._batches)]),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[np.int64]]) -> None:
        """Restore what `arrays` returned."""
        self._drawn[:], self._stored[:], self._new = arrays["drawn"], arrays["stored"], None
        ends = np.cumsum(arrays["lengths"])[:-1]
        parts = [np.split(np.array(arrays[name], np.int64), ends) for name in ("slots", "ids")]
        self._batches = deque(zip(*parts, strict=True) if len(arrays["lengths"]) else (), maxlen=KEPT)


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
