"""Training of an algorithm with its own training loop: one seed after another, observed through its environment."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import EnvStep, Feedback, Hook
from replaylab.learners.api.one_replica import OneReplica, with_replica
from replaylab.learners.api.protocols import Agents, Update
from replaylab.learners.api.random_streams import global_streams_kept
from replaylab.learners.api.whole_algorithm import ProbedModel, ReplayedModel, TrainedModel, WholeAlgorithm
from replaylab.learners.metrics import Metrics
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.factories import environments, single_environment
from replaylab.learners.training.hooks import HookedRun, HookList
from replaylab.learners.training.watched_env import WatchedEnv
from replaylab.replay import Batch, Replay, Sampler

LACKS = ("before_turn", "before_store", "on_update")
"""Events that only the library's training loop has."""


def train_algorithm(configuration: TrainingConfig, seeds: Sequence[int], hooks: Sequence[Hook]) -> Metrics:
    """Train a `WholeAlgorithm` with each seed, and return the rows of all seeds.

    Raises:
        ConfigError: A setting does not fit such an algorithm.
    """
    algorithm, sampler = cast("WholeAlgorithm", configuration.learner), cast("Sampler", configuration.sampler)
    tables: list[Metrics] = []
    for place in range(len(seeds)):
        configuration = replace(configuration, sampler=sampler.of_replica(place, len(seeds)))
        run = AlgorithmRun(configuration, seeds, place, hooks)
        try:
            algorithm.train(run)
            run.end()
        finally:
            run.close()
        tables.append(run.recorder.table())
    return Metrics({name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns})


class AlgorithmRun(HookedRun):
    """The run of one seed: a `SeedRun` for the algorithm, a `TrainingRun` for hooks.

    What the library's loop does after a step, such as evaluations, is done here when the algorithm takes its next
    action, or has ended: only then it has learned from the step. The algorithm's random streams are not changed.

    Args:
        configuration: The settings.
        seeds: The seeds of all runs.
        place: Index of this run's seed.
        hooks: The caller's hooks.

    Attributes:
        seed: Seed of this run.
        agents: The algorithm's model.
        feedback: None: the algorithm updates priorities itself.
    """

    replay: Replay

    def __init__(self, configuration: TrainingConfig, seeds: Sequence[int], place: int, hooks: Sequence[Hook]) -> None:
        loop = f"of {type(configuration.learner).__name__}"
        attached = HookList(configuration, seeds, hooks, loop=loop, lacks=LACKS)
        super().__init__(configuration, [seeds[place]], attached)
        self.seed = seeds[place]
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: Feedback | None = None
        self.recorder.keep(cast("Any", self), np.arange(len(seeds)) == place)
        self.env = environments(configuration, 1)  # for its spaces, never stepped
        self._model: TrainedModel | None = None
        self._measured: npt.NDArray[np.int64] | None = None  # ids of the batch that was measured last
        self._waiting = False  # whether the last step still needs `_after_turn`
        self._envs: list[gym.Env[Any, Any]] = []

    def make_env(self) -> gym.Env[Any, Any]:
        """Return the environment to train on.

        Raises:
            ConfigError: The environment cannot be made.
        """
        events = self.go_on, self.stepped, self.episode_left
        env = WatchedEnv(single_environment(self.configuration), self.env_id, self.seed, self.clock, *events)
        self._envs.append(env)
        return env

    def begin(self, model: TrainedModel) -> None:
        """Set the model that is trained, and emit `on_begin`.

        Raises:
            ConfigError: `measure_every` is set, but the model has no replay.
        """
        self._model, self.agents = model, cast("Agents", model)
        self.recorder.numbers = lambda _: model.numbers()
        if isinstance(model, ReplayedModel):
            self.replay = cast("Replay", OneReplica(model.replay))
        elif self.configuration.measure_every is not None:
            raise ConfigError(
                f"`measure_every` must be None with {type(self.configuration.learner).__name__}, which does not show "
                f"what it replays, but got {self.configuration.measure_every}"
            )
        self.hooks.emit("on_begin", self)

    def drawn(self, batch: Batch) -> None:
        """Emit `on_draw` for a batch."""
        self.hooks.emit("on_draw", self, with_replica(batch))

    def go_on(self) -> bool:
        """Complete the last step, and return whether the budget allows another one.

        Raises:
            ConfigError: The algorithm did not begin.
        """
        if self._model is None:
            name = type(self.configuration.learner).__name__
            raise ConfigError(f"`train` of {name} must call `run.begin(model)` before the first step; add it")
        if self._waiting:
            self._waiting = False
            self._after_turn()
        return not self.clock.over.all()

    def stepped(self, step: EnvStep) -> None:
        """Count a step, and emit `on_step`."""
        self.clock.step()
        self.clock.end(step.ended)
        self.hooks.emit("on_step", self, step, np.array([self.clock.steps - 1]))
        self._waiting = True

    def episode_left(self) -> None:
        """Reset the return and length of an episode that was reset before it ended."""
        self.recorder.returns[:] = self.recorder.lengths[:] = 0.0

    def end(self) -> None:
        """Complete the last step, and emit `on_end`.

        Raises:
            ConfigError: The algorithm ended before its budget was used.
        """
        if self.go_on():
            name, now = type(self.configuration.learner).__name__, int(self.clock.now[0])
            raise ConfigError(
                f"`train` of {name} must use its budget, but stopped after {now:,} of {self.clock.total:,} "
                f"{self.clock.unit}; check for an early return in its training loop"
            )
        self.hooks.emit("on_end", self, self.clock.over)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        for env in self._envs:
            env.close()

    def _after_turn(self) -> None:
        if self.configuration.measure_every is not None:
            self.recorder.latest = self._newest(cast("ReplayedModel", self._model))
        evaluates = self.clock.due(self.configuration.eval_every).any()
        with global_streams_kept() if evaluates else nullcontext():
            self.hooks.emit("after_learning", self)
            self.hooks.evaluations.evaluate(self)
            self.hooks.emit("after_turn", self)

    def _newest(self, model: ReplayedModel) -> tuple[Update, Batch] | None:
        """Return the newest batch and its TD errors; None if no batch was drawn since the last call.

        Raises:
            ConfigError: The model does not have one TD error for each row of the batch.
        """
        batch = model.newest_batch
        if batch is None or (self._measured is not None and np.array_equal(batch.id, self._measured)):
            return None
        self._measured = batch.id
        rows = with_replica(batch)
        fed = model.newest_td_error if isinstance(model, ProbedModel) else None
        td_error = np.full(rows.id.shape[1], np.nan) if fed is None else np.asarray(fed)
        if td_error.shape != rows.id.shape[1:]:
            raise ConfigError(
                f"`newest_td_error` of {type(model).__name__} must have a number for each of the {rows.id.shape[1]} "
                f"rows of `newest_batch`, but has shape {td_error.shape}"
            )
        return Update(td_error[None]), rows
