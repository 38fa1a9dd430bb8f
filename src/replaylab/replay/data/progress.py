"""Training progress: a share of a run in [0, 1], optionally with the number of environment steps."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, checked, whole


class Progress(float):
    """Training progress in [0, 1] with the number of environment steps, which schedules in steps use.

    Args:
        share: Completed share of the run, in [0, 1].
        steps: Environment steps of each environment so far, from 0 on.

    Raises:
        ConfigError: A number is out of its range.

    Example:
        >>> from replaylab.replay import Linear
        >>> Linear(1.0, 0.1, steps=1_000)(Progress(0.01, steps=500))
        0.55
    """

    steps: int

    def __new__(cls, share: float, steps: int) -> "Progress":
        """Return the share, with the steps as an attribute."""
        if not (type(share) is float and type(steps) is int and 0.0 <= share <= 1.0 and steps >= 0):
            share = checked("share", share, FRACTION, "Progress")
            steps = checked("steps", steps, whole(0), "Progress")
        progress = super().__new__(cls, share)
        progress.steps = steps
        return progress

    def __reduce__(self) -> Any:
        return Progress, (float(self), self.steps)

    @staticmethod
    def of_each(shares: npt.NDArray[np.float64], steps: int) -> npt.NDArray[np.float64]:
        """Return the progress of each replica, float64 (R,), with the steps that all of them made as an attribute."""
        progress = cast("_OfEach", shares.view(_OfEach))
        progress.steps = checked("steps", steps, whole(0), "Progress")
        return progress


class _OfEach(np.ndarray[Any, np.dtype[np.float64]]):
    steps: int

    def tolist(self) -> Any:
        """Return a list of `Progress`."""
        return [Progress(share, self.steps) for share in super().tolist()]
