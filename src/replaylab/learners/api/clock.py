"""Progress of a run in environment steps, or in episodes, like its budget."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import numpy.typing as npt

from replaylab.replay import Progress

Unit = Literal["steps", "episodes"]


class Clock:
    """Counts R replicas' steps or finished episodes, up to a budget.

    Args:
        total: The budget of each replica.
        unit: Unit of the budget: "steps" or "episodes".
        replicas: R.

    Attributes:
        steps: Environment steps so far, equal for all.
        now: Steps or finished episodes so far, int64 (R,).
    """

    def __init__(self, total: int, unit: Unit, replicas: int) -> None:
        self.total, self.unit = total, unit
        self.steps = 0
        self.now = np.zeros(replicas, np.int64)
        self._moved = np.ones(replicas, np.bool_)

    def step(self, envs: int = 1) -> None:
        """Begin a step of every replica, in so many environments of each; steps beyond the budget are not counted."""
        self.steps += envs
        if self.unit == "steps":
            self.steps = min(self.steps, self.total)
            self.now[:] = self.steps

    def end(self, ended: npt.NDArray[np.bool_]) -> None:
        """Count the episodes that ended with this step, bool (R,)."""
        if self.unit == "episodes":
            self.now += ended
            self._moved = ended

    @property
    def progress(self) -> float | npt.NDArray[np.float64]:
        """Training progress in [0, 1]: a number for steps, (R,) for finished episodes.

        Its attribute `steps` has the environment steps so far, for schedules in steps. Actors may take more steps than
        the budget; progress is then 1.
        """
        if self.unit == "steps":
            return Progress(min(self.steps / self.total, 1.0), self.steps)
        return Progress.of_each(self.now / self.total, self.steps)

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Replicas whose budget is used up, bool (R,)."""
        over: npt.NDArray[np.bool_] = self.now >= self.total
        return over

    def due(self, every: int | None) -> npt.NDArray[np.bool_]:
        """Replicas that just reached a multiple of `every`, or the end, bool (R,); None: never."""
        if every is None or (self.unit == "steps" and self.steps % every and self.steps < self.total):
            return np.zeros(len(self.now), np.bool_)
        due: npt.NDArray[np.bool_] = self._moved & ((self.now % every == 0) | (self.now == self.total))
        return due

    @contextmanager
    def at(self, steps: int) -> Iterator[None]:
        """Context manager: events within count as events after this number of steps, of which there may be more."""
        now = self.state()
        self.restore({"steps": np.array(steps), "now": np.full_like(self.now, steps)})
        try:
            yield
        finally:
            self.restore(now)

    def state(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the counts."""
        return {"steps": np.array(self.steps), "now": self.now.copy()}

    def restore(self, state: dict[str, npt.NDArray[np.int64]]) -> None:
        """Continue from what `state` returned."""
        self.steps, self.now = int(state["steps"]), state["now"].copy()
