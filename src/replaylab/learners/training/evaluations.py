"""Evaluations during training."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Hook, TrainingRun
from replaylab.learners.api.protocols import ValueAgents
from replaylab.learners.evaluation.greedy import GreedyEvaluation
from replaylab.learners.evaluation.held_out import HeldOut
from replaylab.learners.evaluation.value_error import OptimumDistance
from replaylab.learners.training.configuration import TrainingConfig

EvaluationMetric = Callable[[Any, Sequence[int]], npt.NDArray[np.float64]]
"""What an evaluation measures besides returns: agents and their seeds → a number for each, (R,)."""


class Evaluations(Hook):
    """Evaluates the replicas that an evaluation is due for; where they progress separately, one by one.

    Args:
        configuration: Says when, and what is measured.
    """

    def __init__(self, configuration: TrainingConfig) -> None:
        self._configuration = one = configuration
        # of an environment that resets in this way only; DISABLED is of loops that reset themselves
        asked = None if one.autoreset_mode is None else AutoresetMode(one.autoreset_mode)
        self._mode = mode = AutoresetMode.NEXT_STEP if asked is AutoresetMode.NEXT_STEP else None
        options = one.env_options
        self._greedy = GreedyEvaluation(one.env_id, one.eval_episodes, env_options=options, autoreset_mode=mode)
        self._apart = one.total_episodes is not None
        self._further: dict[str, EvaluationMetric] = {}

    def on_begin(self, run: TrainingRun) -> None:
        """Make the environments, play to the held-out states, and find the optimal values.

        Raises:
            ConfigError: The agents have no Q values, or the environment no exact ones, or it cannot be made.
        """
        one = self._configuration
        if one.eval_every:
            self._greedy.open(1 if self._apart else len(run.seeds))
        if (one.held_out or one.value_error) and not isinstance(run.agents, ValueAgents):
            wanted = "held_out" if one.held_out else "value_error"
            learner = type(one.learner).__name__
            raise ConfigError(f"`{wanted}` needs Q(s, a), which {learner} does not have; leave it out")
        if one.held_out and one.eval_every:
            self._further["eval/held_out_q"] = HeldOut(one.env_id, run.seeds, one.held_out, one.env_options, self._mode)
        if one.value_error:
            self._further["eval/value_error"] = OptimumDistance(one.env_id, one.driven_learner, one.env_options)

    def after_turn(self, run: TrainingRun) -> None:
        """Evaluate where that is due."""
        every = self._configuration.eval_every
        due = run.clock.due(every)
        if every is None or not due.any():
            return
        for r in due.nonzero()[0] if self._apart else [slice(None)]:
            here = np.zeros_like(due)
            here[r] = True
            seeds = [seed for seed, one in zip(run.seeds, here, strict=True) if one]
            number = (int(run.clock.now[here][0]) - 1) // every
            agents = run.agents_of(here)
            reward, length = self._greedy(agents, seeds, number)
            found = {"eval/mean_reward": reward, "eval/mean_ep_length": length}
            found |= {name: metric(agents, seeds) for name, metric in self._further.items()}
            run.recorder.report(run.clock, {name: _placed(values, here) for name, values in found.items()}, here)

    def on_end(self, run: TrainingRun, over: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        """Close the environments of evaluations when the last replica has ended."""
        if over.all():
            self._greedy.close()


def _placed(values: npt.NDArray[np.float64], rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    placed = np.full(len(rows), np.nan)
    placed[rows] = values
    return placed
