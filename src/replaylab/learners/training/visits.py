"""Where each replica acted, counted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Bools, EnvStep, Hook, TrainingRun


class Visits(Hook):
    """Counts the states that each replica acted in, and reports them when its budget is used up."""

    def __init__(self) -> None:
        self._counts = np.zeros((0, 0), np.int64)  # (R, S)

    def on_begin(self, run: TrainingRun) -> None:
        """Count from 0, unless training continues from a checkpoint.

        Raises:
            ConfigError: The observations are not Discrete.
        """
        space = run.env.single_observation_space
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(
                f"`visits` are counted of Discrete observations, but those of {run.env_id} are in {space}"
            )
        self._first = int(space.start)
        if not self._counts.size:
            self._counts = np.zeros((len(run.seeds), int(space.n)), np.int64)

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:  # noqa: ARG002
        """Count the states of the replicas that really stepped."""
        self._counts[np.arange(len(ids)), step.obs - self._first] += ids >= 0

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Record the visits of replicas whose budget is used up."""
        for state, counts in enumerate(self._counts.T):
            run.recorder.record(run.clock, f"visits/{state:05d}", counts.astype(np.float64), over)

    def state(self) -> dict[str, Any]:
        """Return the counts."""
        return {"visits": self._counts.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._counts = state["visits"].copy()
