"""Training an algorithm that brings a loop of its own: one seed after the other, watched from its environment."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.arguments import shown
from replaylab.envs.vectorize import make_single_env
from replaylab.errors import ConfigError, ReplayError
from replaylab.learners.api.clock import Clock
from replaylab.learners.api.finite import check_obs, check_step
from replaylab.learners.api.hooks import EnvStep, Feedback, Hook
from replaylab.learners.api.protocols import Agents, Update, each
from replaylab.learners.api.random_streams import global_streams_kept
from replaylab.learners.api.whole_algorithm import ProbedModel, ReplayedModel, TrainedModel, WholeAlgorithm
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training.batch_measures import BatchMeasures
from replaylab.learners.training.checkpoint import Checkpoints
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.evaluations import Evaluations
from replaylab.learners.training.hook_rules import check_different, hooks_of, metrics_of
from replaylab.learners.training.metrics_recorder import MetricsRecorder
from replaylab.learners.training.state import environments
from replaylab.learners.training.visits import Visits
from replaylab.replay import Batch, Replay, ReplayBuffer, Sampler, Tape

NOT_CALLED = ("before_turn", "before_store", "on_update")
"""Events of the library's own loop alone."""


def train_algorithm(configuration: TrainingConfig, seeds: Sequence[int], hooks: Sequence[Hook]) -> Metrics:
    """Train a `WholeAlgorithm` with each seed, and return the rows of all.

    Raises:
        ConfigError: Something does not fit such an algorithm.
    """
    algorithm = cast("WholeAlgorithm", configuration.learner)
    name, sampler = type(algorithm).__name__, configuration.sampler
    if not isinstance(sampler, Sampler):
        raise ConfigError(
            f"`sampler` must be a sampler of its own with {name}, whose networks only its own loop knows, but got "
            f"{shown(sampler)}, which asks the library's own learners"
        )
    steering = hooks_of(sampler)
    check_different([*steering, *hooks])
    for hook in (*steering, *hooks):
        heard = [event for event in NOT_CALLED if getattr(type(hook), event) is not getattr(Hook, event)]
        if heard or isinstance(hook, Checkpoints):
            raise ConfigError(
                f"`hooks` of {name}, which has a training loop of its own, must do without checkpoints and the events "
                f"{', '.join(NOT_CALLED)}, but got {type(hook).__name__}; leave it out"
            )
    rows: dict[str, list[npt.NDArray[Any]]] = {}
    for place in range(len(seeds)):
        if isinstance(sampler, Tape):
            configuration = replace(configuration, sampler=sampler.of_replica(place, len(seeds)))
        run = AlgorithmRun(configuration, seeds, place, (*steering, *hooks))
        try:
            algorithm.train(run)
            run.end()
        finally:
            run.close()
        for column, values in run.recorder.table().columns.items():
            rows.setdefault(column, []).append(values)
    return Metrics({column: np.concatenate(parts) for column, parts in rows.items()})


class AlgorithmRun:
    """One seed under way: a `SeedRun` for the algorithm, a `TrainingRun` for hooks.

    What follows a step of the library's own loop, evaluations for example, follows here when the algorithm comes with
    its next action, or has ended: then it has learned from the step. It leaves the algorithm's random streams alone.

    Args:
        configuration: What is trained.
        seeds: Those of the whole training.
        place: Which of them this is.
        hooks: What watches.

    Attributes:
        seed: This run's.
        agents: What acts; it learns in a loop of its own.
        feedback: None: it is the algorithm's own business.
    """

    agents: Agents
    replay: Replay

    def __init__(self, configuration: TrainingConfig, seeds: Sequence[int], place: int, hooks: Sequence[Hook]) -> None:
        self.configuration, self.env_id = configuration, configuration.env_id
        self.seed, self.seeds = seeds[place], [seeds[place]]
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: Feedback | None = None
        self.clock = Clock.of(configuration.total_steps, configuration.total_episodes, 1)
        metrics = [one for owner in (configuration.learner, *hooks) for one in metrics_of(owner)]
        listeners = [one.on_metrics for one in hooks if type(one).on_metrics is not Hook.on_metrics]
        self.recorder = MetricsRecorder(seeds, configuration.log_every, metrics, listeners)
        self.recorder.keep(cast("Any", self), np.arange(len(seeds)) == place)
        self.env = environments(configuration, 1)  # for its spaces, never stepped
        self._measures = BatchMeasures(configuration.measure_every, 1) if configuration.measure_every else None
        own = (*([Visits()] if configuration.visits else []), Evaluations(configuration), *hooks)
        self._own, self._looked = own, 0
        self._hearing = [one.on_draw for one in own if type(one).on_draw is not Hook.on_draw]
        self._model: TrainedModel | None = None
        self._measured: npt.NDArray[np.int64] | None = None  # rows of the batch that was looked at last
        self._waiting = False  # for what follows the last step
        self._made: list[gym.Env[Any, Any]] = []

    def agents_of(self, rows: npt.NDArray[np.bool_]) -> Agents:  # noqa: ARG002
        """Return what acts, of which there is one."""
        return self.agents

    def make_env(self) -> gym.Env[Any, Any]:
        """Return the environment to train on.

        Raises:
            ConfigError: It cannot be made.
        """
        env = _Watched(_environment(self.env_id, dict(self.configuration.env_options or {})), self)
        self._made.append(env)
        return env

    def begin(self, model: TrainedModel) -> None:
        """Take what is trained, and let the hooks begin.

        Raises:
            ConfigError: Something does not fit.
        """
        self._model, self.agents = model, cast("Agents", model)
        if isinstance(model, ReplayedModel):
            self.replay = cast("Replay", _OneReplica(model.replay))
        elif self._measures is not None:
            raise ConfigError(
                f"`measure_every` must be None with {type(self.configuration.learner).__name__}, which does not show "
                f"what it replays, but got {self.configuration.measure_every}"
            )
        for hook in self._own:
            hook.on_begin(self)

    def drawn(self, batch: Batch) -> None:
        """Let the hooks hear of a batch."""
        if self._hearing:
            rows = with_replica(batch)
            for on_draw in self._hearing:
                on_draw(self, rows)

    def go_on(self) -> bool:
        """Do what follows the last step, and return whether a further one counts.

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
        """Take note of a step.

        Raises:
            NonFiniteError: A reward or an observation is NaN or infinite.
        """
        check_step(step.reward, step.next_obs, None, step.ended, self.env_id, self.seeds, self.clock.steps + 1)
        self.clock.step()
        self.clock.end(step.ended)
        ids = np.array([self.clock.steps - 1])
        self.recorder.on_step(self, step, ids)
        if self._measures is not None:
            self._measures.on_step(self, step, ids)
        for hook in self._own:
            hook.on_step(self, step, ids)
        self._waiting = True

    def episode_left(self) -> None:
        """Forget the return of an episode that was left without an end."""
        self.recorder.returns[:] = self.recorder.lengths[:] = 0.0

    def end(self) -> None:
        """Do what follows the last step, and let the hooks end.

        Raises:
            ConfigError: The algorithm ended before its budget did.
        """
        if self.go_on():
            name, now = type(self.configuration.learner).__name__, int(self.clock.now[0])
            raise ConfigError(
                f"`train` of {name} must use up its budget of {self.clock.total} {self.clock.unit}, but ended after "
                f"{now}; what stops it?"
            )
        for hook in self._own:
            hook.on_end(self, self.clock.over)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        for env in self._made:
            env.close()

    def _after_turn(self) -> None:
        if self._measures is not None:
            self._measure(self._measures, cast("ReplayedModel", self._model))
        passed = int(self.clock.now[0]) // self.recorder.log_every
        if passed > self._looked:
            self._looked = passed
            self.recorder.report(self.clock, cast("TrainedModel", self._model).numbers())
        with global_streams_kept(bool(self.clock.due(self.configuration.eval_every).any())):
            for hook in self._own:
                hook.after_learning(self)
            for hook in self._own:
                hook.after_turn(self)

    def _measure(self, measures: BatchMeasures, model: ReplayedModel) -> None:
        batch = model.newest_batch
        if batch is None or (self._measured is not None and np.array_equal(batch.id, self._measured)):
            return  # nothing was learned since
        self._measured = batch.id
        rows = with_replica(batch)
        fed = model.newest_td_error if isinstance(model, ProbedModel) else None
        given = np.full(rows.id.shape[1], np.nan) if fed is None else np.asarray(fed)
        if given.shape != rows.id.shape[1:]:
            raise ConfigError(
                f"`newest_td_error` of {type(model).__name__} must have a number for each of the {rows.id.shape[1]} "
                f"rows of `newest_batch`, but has shape {given.shape}"
            )
        self.recorder.latest = (Update(given[None]), rows)
        measures.after_learning(self)


class _Watched(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that tells a run of each step."""

    def __init__(self, env: gym.Env[Any, Any], run: AlgorithmRun) -> None:
        super().__init__(env)
        self._run, self._obs, self._open = run, None, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        run = self._run
        check_obs(_rows(obs), run.env_id, run.seeds, f"a reset after step {run.clock.steps:,}")
        if self._open:
            run.episode_left()
        self._obs, self._open = obs, False
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        counts = self._run.go_on()
        before = self._obs
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._obs, self._open = obs, not (terminated or truncated)
        if counts:
            ends = np.array([terminated], np.bool_), np.array([truncated], np.bool_)
            rewards = np.array([reward], np.float64)
            acted = np.asarray(action)[None]
            self._run.stepped(EnvStep(_rows(before), acted, rewards, _rows(obs), *ends, None, ends[0] | ends[1]))
        return obs, reward, terminated, truncated, info


class _OneReplica:
    """A buffer of one environment as measures take a replay: R is 1."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    @property
    def size(self) -> list[int]:
        return [len(self._buffer)]

    def as_batch(self, ids: npt.NDArray[np.int64]) -> Batch:
        return with_replica(self._buffer.as_batch(ids[0]))

    def replay_counts(self) -> list[npt.NDArray[np.int64]]:
        return self._buffer.replay_counts()


def with_replica(batch: Batch) -> Batch:
    """Return a batch with a replica axis, of one replica."""
    return Batch({name: each(lambda part: part[None], column) for name, column in batch.items()})


def _rows(obs: Any) -> Any:
    """Return an observation as one of R = 1."""
    return each(lambda part: np.asarray(part)[None], obs)


def _environment(env_id: str, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """Return a single environment; a vector environment has been made of this name and these options."""
    try:
        return make_single_env(env_id, **options)
    except ReplayError:
        raise
    except (Exception, SystemExit) as error:  # a constructor may raise anything
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{env_id} cannot be made with env_options={options}: {told}") from error
