"""Counts of the states that each replica visited."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Bools, EnvStep, Hook, TrainingRun


class Visits(Hook):
    """Counts how often each replica was in each state, and reports it when its budget is used up.

    A visit is an episode that begins in the state, or a step that leads to it: goals are visited, too.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, 0), np.int64)  # (R, S)
        self._begins = np.zeros(0, np.bool_)  # (R,), whether the next step is an episode's first

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
            self._begins = np.ones(len(run.seeds), np.bool_)

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:  # noqa: ARG002
        """Count the new states of replicas that stepped, and the first states of their episodes."""
        replicas, stepped = np.arange(len(ids)), ids >= 0
        self._counts[replicas, step.obs - self._first] += stepped & self._begins
        self._counts[replicas, step.true_next_obs() - self._first] += stepped
        self._begins = step.ended

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Record the visits of replicas whose budget is used up."""
        for state, counts in enumerate(self._counts.T):
            run.recorder.record(run.clock, f"visits/{state}", counts.astype(np.float64), over)

    def state(self) -> dict[str, Any]:
        """Return the counts."""
        return {"visits": self._counts.copy(), "begins": self._begins.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._counts, self._begins = state["visits"].copy(), state["begins"].copy()
