"""Evaluations in a separate process, while training continues."""

from collections import deque
from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from replaylab.distributed.training.actor import on_cpu
from replaylab.learners.api.hooks import TrainingRun
from replaylab.learners.api.protocols import Learner, PublishedAgents, State
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.factories import agents_for, environments
from replaylab.learners.training.hooks import Callbacks, HookedRun, HookList

Values = Mapping[str, npt.NDArray[np.float64]]

Waiting = deque[tuple[int, State]]
"""Evaluations without results, oldest first: the steps at which each was due, and weights of the policy."""


class Evaluator(HookedRun):
    """Evaluates as training in one process does, on the same episodes.

    Args:
        configuration: The settings of training.
        learner: Creates the copy of the agents.
        seed: Seed of the training.
    """

    def __init__(self, configuration: TrainingConfig, learner: Learner, seed: int) -> None:
        self._values: dict[str, npt.NDArray[np.float64]] = {}
        listener = Callbacks(on_metrics=lambda _, values: self._values.update(values))
        super().__init__(configuration, [seed], HookList(configuration, [seed], [listener]))
        self.agents = agents_for(configuration, on_cpu(learner), environments(configuration, 1), [seed])
        self.hooks.evaluations.on_begin(cast("TrainingRun", self))

    def evaluate(self, due: int, weights: State) -> Values:
        """Return the metrics of the policy with these weights, (1,) each, in the evaluation due at so many steps."""
        cast("PublishedAgents", self.agents).take_weights(weights)
        with self.clock.at(due):
            self.hooks.evaluations.evaluate(cast("TrainingRun", self))
        return self._values
