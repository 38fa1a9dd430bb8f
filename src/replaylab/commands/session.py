"""The part of a run that this call trains, without what a checkpoint already had, and its progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from replaylab.learners import Hook
from replaylab.study.execution.interrupts import delayed_interrupts

if TYPE_CHECKING:
    from rich.progress import Progress

    from replaylab.learners import TrainingRun
    from replaylab.learners.api.clock import Clock


class Session(Hook):
    """Counts, over all seeds and in the budget's unit, what this call trains.

    Attributes:
        todo: Steps or episodes that were missing when training began or continued.
    """

    def __init__(self) -> None:
        self.todo = 0
        self._clock: Clock | None = None

    def on_begin(self, run: TrainingRun) -> None:
        """Count what is missing; seeds that an algorithm trains one after the other add up."""
        self._clock = run.clock
        self.todo += self._left

    def after_turn(self, run: TrainingRun) -> None:
        """Store the clock, which is a new one after a seed has ended."""
        self._clock = run.clock

    @property
    def taken(self) -> int:
        """Number of steps or episodes trained so far."""
        return self.todo - self._left

    @property
    def _left(self) -> int:
        return 0 if self._clock is None else int(np.maximum(self._clock.total - self._clock.now, 0).sum())


@contextmanager
def shown(bar: Progress) -> Iterator[None]:
    """Show a progress bar; it is closed, and the cursor restored, however early Ctrl-C comes."""
    try:
        with delayed_interrupts():
            bar.start()
        yield
    finally:
        with delayed_interrupts():
            bar.stop()
