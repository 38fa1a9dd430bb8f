"""One seed's training by Stable-Baselines3's own `learn`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3.common import noise as noises
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from replaylab.arguments import shown
from replaylab.errors import ConfigError, ReplayError
from replaylab.integrations.sb3 import ReplayLabBuffer, WithPriorities
from replaylab.integrations.sb3.buffer import Samples
from replaylab.learners.api.protocols import Probe
from replaylab.learners.api.random_streams import global_streams_kept
from replaylab.learners.api.whole_algorithm import SeedRun
from replaylab.learners.metrics.registry import MetricsRegistry
from replaylab.learners.sb3 import algorithms
from replaylab.learners.sb3.dry_updates import DryUpdates
from replaylab.learners.sb3.handed import HandedBuffer, SpacesAlone
from replaylab.learners.sb3.settings import SB3Settings
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import Batch, FrameStack, NStep, ReplayBuffer, Sampler
from replaylab.trees import take

CALLED_OTHERWISE = {"train/n_updates": "train/updates", "replay/td_error_mean": "train/td_error_mean"}
"""What is logged → the same under our name."""

SHOWING = ("n_steps", "frame_stack", "padding")
"""What decides how a buffer shows a batch to its algorithm."""


def train(learner: SB3Settings, run: SeedRun) -> None:
    """Train one seed.

    Raises:
        ConfigError: The configuration asks for something that the algorithm cannot do.
    """
    configuration: TrainingConfig = run.configuration
    _check(learner, configuration)
    model = model_of(learner, configuration, run.seed, run.make_env(), _Buffer, _drawing(configuration))
    model.set_logger(Logger(folder=None, output_formats=[]))
    shown_model = _shown(model, learner, configuration)
    shown_model.buffer.heard = run.drawn
    run.begin(shown_model)
    model.learn(configuration.total_steps or 0, log_interval=None)  # type: ignore[arg-type]  # None: never


def _check(learner: SB3Settings, configuration: TrainingConfig) -> None:
    """Refuse what belongs to the library's own loop."""
    name = learner.algorithm
    if configuration.total_steps is None:
        raise ConfigError(
            f"the budget of {name} must be in steps, by which its own schedules go, but got total_episodes="
            f"{configuration.total_episodes}"
        )
    for setting in ("autoreset_mode", "make_replay"):
        if (value := getattr(configuration, setting)) is not None:
            raise ConfigError(f"`{setting}` must be None with {name}, which has its own, but got {shown(value)}")
    n_steps = learner.arguments.get("n_steps", 1)
    for transform in configuration.transforms:
        if isinstance(transform, NStep) and n_steps not in (1, transform.steps):
            raise ConfigError(
                f"`arguments.n_steps` of {name} must be {transform.steps}, as NStep({transform.steps}) among the "
                f"transforms says, but got {shown(n_steps)}; leave one of them out"
            )


def model_of(
    learner: SB3Settings,
    configuration: TrainingConfig,
    seed: int,
    env: gym.Env[Any, Any],
    buffer: type[ReplayLabBuffer],
    drawing: Mapping[str, Any],
    *,
    weighted: bool = False,
) -> OffPolicyAlgorithm:
    """Return an algorithm, untrained.

    Args:
        learner: Which.
        configuration: What is trained.
        seed: Of the algorithm.
        env: Its environment.
        buffer: The class of its replay buffer.
        drawing: What that is made with, beside what the learner's arguments say.
        weighted: Whether batches may have weights whatever the sampler is.

    Raises:
        ConfigError: It cannot be made.
    """
    kind = algorithms.find(learner.algorithm)
    weighted = weighted or (isinstance(configuration.sampler, Sampler) and configuration.sampler.wants_feedback)
    if weighted and not issubclass(kind, WithPriorities):
        kind = type(f"Prioritized{kind.__name__}", (WithPriorities, kind), {})
    arguments = {name: _argument(name, value) for name, value in learner.arguments.items()}
    if learner.arguments.get("action_noise") is not None:
        arguments["action_noise"] = _noise(learner.arguments["action_noise"], env.action_space)
    replay: dict[str, Any] = {**(arguments.pop("replay_buffer_kwargs", None) or {}), **drawing}
    try:
        with warnings.catch_warnings():  # the library's, that a buffer class is not notified of n_steps: this one asks
            warnings.filterwarnings("ignore", "`n_steps=")
            model: OffPolicyAlgorithm = kind(
                learner.policy,
                env,
                replay_buffer_class=buffer,
                replay_buffer_kwargs=replay,
                seed=seed,
                **arguments,
            )
    except ReplayError:
        raise
    except Exception as error:  # of its constructor, of networks and buffers that do not fit the spaces
        raise ConfigError(
            f"{learner.algorithm} cannot be made for {configuration.env_id} with these `arguments`: "
            f"{type(error).__name__}: {error}"
        ) from error
    actions, obs_space = model.action_space, model.observation_space
    if learner.algorithm in algorithms.NAMED and _counts_otherwise(actions):
        raise ConfigError(
            f"actions of {configuration.env_id} must count from 0 for {learner.algorithm}, which takes them for places "
            f"in its network's output, but got {actions}; wrap the environment, or take another learner"
        )
    if any(map(_counts_otherwise, obs_space.values() if isinstance(obs_space, gym.spaces.Dict) else [obs_space])):
        raise ConfigError(
            f"observations of {configuration.env_id} must count from 0 for {learner.algorithm}, which takes them for "
            f"places among its network's inputs, but got {obs_space}; wrap the environment, or take another learner"
        )
    return model


def _counts_otherwise(space: gym.Space[Any]) -> bool:
    """Whether a space's numbers stand for cases, the first of which is not 0."""
    return isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete) and bool(np.any(space.start))


def _argument(name: str, value: Any) -> Any:
    """Return an argument as the algorithm takes it, from plain data."""
    if name == "train_freq" and isinstance(value, list):
        return tuple(value)
    if name == "learning_rate" and isinstance(value, Mapping):
        return algorithms.schedule_of(value)
    return _resolved(name, value)


def _resolved(name: str, value: Any) -> Any:
    """Return plain data with what its texts refer to."""
    if isinstance(value, str) and algorithms.REFERENCE.fullmatch(value):
        return algorithms.referred(f"arguments.{name}", value)
    if isinstance(value, Mapping):
        return {key: _resolved(name, part) for key, part in value.items()}
    return [_resolved(name, part) for part in value] if isinstance(value, list) else value


def _noise(table: Mapping[str, Any], space: Any) -> noises.ActionNoise:
    options = {key: value for key, value in table.items() if key not in ("type", "sigma")}
    kind = noises.NormalActionNoise if table["type"] == "normal" else noises.OrnsteinUhlenbeckActionNoise
    shape = space.shape
    return kind(np.zeros(shape), np.full(shape, float(table["sigma"])), **options)


def _drawing(configuration: TrainingConfig) -> dict[str, Any]:
    """Return what the buffer is to draw, and what it becomes."""
    drawing: dict[str, Any] = {"sampler": configuration.sampler}
    for transform in configuration.transforms:
        match transform:
            case NStep():
                drawing["n_steps"] = transform.steps
            case FrameStack(stacked_input=True):
                drawing |= {"frame_stack": transform.length, "padding": transform.padding}
            case EnvHindsight():
                drawing |= {"goal_selection_strategy": transform.strategy, "n_sampled_goal": transform.ratio}
            case _:
                raise ConfigError(
                    "`transforms` must be NStep, FrameStack(stacked_input=True) or EnvHindsight with the algorithms of "
                    f"Stable-Baselines3, but got {shown(transform)}"
                )
    return drawing | {"count_replays": configuration.measure_every is not None}


class _Buffer(ReplayLabBuffer):
    """The same buffer, which remembers its newest batch and what that gave back, for measures, and tells of each."""

    newest_batch: Batch | None = None
    newest_td_error: npt.NDArray[Any] | None = None
    heard: Callable[[Batch], None] | None = None

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Samples:
        self.newest_batch, self.newest_td_error = batch, None
        if self.heard is not None:
            self.heard(batch)
        return super()._samples(batch, env)

    def _fed(self, ids: npt.NDArray[np.int64], errors: npt.NDArray[Any]) -> None:
        self.newest_td_error = errors
        super()._fed(ids, errors)


def _shown(model: OffPolicyAlgorithm, learner: SB3Settings, configuration: TrainingConfig) -> _Model:
    """Return a model as a run sees it, with TD errors of any rows if its updates are those of the library."""
    registry = MetricsRegistry(learner.metrics)
    if not DryUpdates.known_of(model):
        return _Model(model, registry)

    def again() -> OffPolicyAlgorithm:
        drawing = {key: value for key, value in _drawing(configuration).items() if key in ("sampler", *SHOWING)}
        env = SpacesAlone(deepcopy(model.observation_space), deepcopy(model.action_space))
        small = replace(learner, arguments=learner.arguments | {"buffer_size": 1})
        return model_of(small, configuration, 0, env, HandedBuffer, drawing, weighted=True)

    return _ProbedModel(model, registry, again)


class _Model:
    """A model under way, as evaluations, measures and hooks see it.

    Attributes:
        model: The library's own.
    """

    def __init__(self, model: OffPolicyAlgorithm, registry: MetricsRegistry) -> None:
        self.model, self._registry = model, registry
        self.replay: ReplayBuffer = self.buffer.replay

    @property
    def buffer(self) -> _Buffer:
        """Where each step is stored."""
        buffer = self.model.replay_buffer
        assert isinstance(buffer, _Buffer)
        return buffer

    @property
    def newest_batch(self) -> Batch | None:
        """What was drawn last."""
        return self.buffer.newest_batch

    @property
    def updates(self) -> int:
        """How many there were."""
        return int(self.model._n_updates)

    def act(self, obs: Any, explore: bool) -> npt.NDArray[Any]:
        """Return actions (1, N, ...) for observations (1, N, ...)."""
        action, _ = self.model.predict(take(obs, 0), deterministic=not explore)
        return np.asarray(action)[None]

    def numbers(self) -> Mapping[str, npt.ArrayLike]:
        """Return what the algorithm and its buffer have logged since this was last asked, of what is registered."""
        return logged(self.model, self._registry) | {"train/updates": self.updates}


def logged(model: OffPolicyAlgorithm, registry: MetricsRegistry) -> dict[str, float]:
    """Return what a model has logged since this was last called, of what is registered, under our names."""
    named = {CALLED_OTHERWISE.get(name, name): value for name, value in model.logger.name_to_value.items()}
    model.logger.dump()
    return {name: float(value) for name, value in named.items() if name in registry and _is_number(value)}


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)


class _ProbedModel(_Model):
    """A model that can evaluate a batch.

    Args:
        model: The library's own.
        registry: Of what is logged.
        again: Makes the same algorithm, whose batches are handed to it.
    """

    def __init__(
        self, model: OffPolicyAlgorithm, registry: MetricsRegistry, again: Callable[[], OffPolicyAlgorithm]
    ) -> None:
        super().__init__(model, registry)
        self._again = again
        self._dry: DryUpdates | None = None

    @property
    def newest_td_error(self) -> npt.NDArray[Any] | None:
        """What the newest batch gave back, (B,)."""
        return self.buffer.newest_td_error

    def probe(self, batch: Batch) -> Probe:
        """Return what an update of the critics from a batch (1, B, ...) would see and do."""
        if self._dry is None:
            with global_streams_kept():
                self._dry = DryUpdates(self._again())
        return self._dry.probe(self.model, batch)
