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
"""A further metric of evaluations: a function of agents and their seeds that returns numbers (R,)."""


class Evaluations(Hook):
    """A hook that evaluates the replicas whose evaluation is due; one by one if they progress separately.

    Args:
        configuration: The settings, with the period and the metrics of evaluations.
    """

    def __init__(self, configuration: TrainingConfig) -> None:
        self._configuration = config = configuration
        # NEXT_STEP is kept, as an environment may have only that mode; DISABLED is for loops that reset themselves
        autoreset = None if config.autoreset_mode is None else AutoresetMode(config.autoreset_mode)
        self._mode = mode = AutoresetMode.NEXT_STEP if autoreset is AutoresetMode.NEXT_STEP else None
        options = config.env_options
        self._greedy = GreedyEvaluation(config.env_id, config.eval_episodes, env_options=options, autoreset_mode=mode)
        self._apart = config.total_episodes is not None
        self._further: dict[str, EvaluationMetric] = {}

    def on_begin(self, run: TrainingRun) -> None:
        """Make the environments, collect the held-out states, and compute the optimal values.

        Raises:
            ConfigError: The agents have no Q values, the environment has no exact ones, or it cannot be made.
        """
        config = self._configuration
        if config.eval_every:
            self._greedy.open(1 if self._apart else len(run.seeds))
        if (config.held_out or config.value_error) and not isinstance(run.agents, ValueAgents):
            wanted = "held_out" if config.held_out else "value_error"
            learner = type(config.learner).__name__
            raise ConfigError(f"`{wanted}` needs Q(s, a), which {learner} does not have; leave it out")
        if config.held_out and config.eval_every:
            self._further["eval/held_out_q"] = HeldOut(
                config.env_id, run.seeds, config.held_out, config.env_options, self._mode
            )
        if config.value_error:
            self._further["eval/value_error"] = OptimumDistance(
                config.env_id, config.driven_learner, config.env_options
            )

    def evaluate(self, run: TrainingRun) -> None:
        """Evaluate the replicas whose evaluation is due."""
        every = self._configuration.eval_every
        due = run.clock.due(every)
        if every is None or not due.any():
            return
        for r in due.nonzero()[0] if self._apart else [slice(None)]:
            evaluated = np.zeros_like(due)
            evaluated[r] = True
            seeds = [seed for seed, selected in zip(run.seeds, evaluated, strict=True) if selected]
            number = (int(run.clock.now[evaluated][0]) - 1) // every
            agents = run.agents_of(evaluated)
            reward, length = self._greedy(agents, seeds, number)
            reported = {"eval/mean_reward": reward, "eval/mean_ep_length": length}
            reported |= {name: metric(agents, seeds) for name, metric in self._further.items()}
            placed = {name: _placed(values, evaluated) for name, values in reported.items()}
            run.recorder.report(run.clock, placed, evaluated)

    def on_end(self, run: TrainingRun, over: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        """Close the environments of evaluations when the last replica has ended."""
        if over.all():
            self._greedy.close()


def _placed(values: npt.NDArray[np.float64], rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    placed = np.full(len(rows), np.nan)
    placed[rows] = values
    return placed
