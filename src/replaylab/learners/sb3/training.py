"""One seed's training by Stable-Baselines3's own `learn`."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.api.whole_algorithm import SeedRun
from replaylab.learners.metrics import MetricsRegistry
from replaylab.learners.sb3.made_model import model_of
from replaylab.learners.sb3.settings import SB3Settings
from replaylab.learners.sb3.watched_model import (
    DryUpdates,
    HandedBuffer,
    SpacesAlone,
    WatchedAndProbedModel,
    WatchedBuffer,
    WatchedModel,
)
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import FrameStack, NStep

SHOWING = ("n_steps", "frame_stack", "padding")
"""Attributes that determine how a buffer presents a batch to its algorithm."""


def train(learner: SB3Settings, run: SeedRun) -> None:
    """Train one seed.

    Raises:
        ConfigError: The configuration asks for something that the algorithm cannot do.
    """
    configuration: TrainingConfig = run.configuration
    _check(learner, configuration)
    model = model_of(learner, configuration, run.seed, run.make_env(), WatchedBuffer, _drawing(configuration))
    model.set_logger(Logger(folder=None, output_formats=[]))
    shown_model = _shown(model, learner, configuration)
    shown_model.buffer.heard = run.drawn
    run.begin(shown_model)
    model.learn(configuration.total_steps or 0, log_interval=None)  # type: ignore[arg-type]  # None: never


def _check(learner: SB3Settings, configuration: TrainingConfig) -> None:
    """Raise for options that need the library's own loop."""
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


def _drawing(configuration: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of the buffer that follow from the sampler and the transforms."""
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


def _shown(model: OffPolicyAlgorithm, learner: SB3Settings, configuration: TrainingConfig) -> WatchedModel:
    """Return a model as a run sees it, with TD errors of any rows if its updates are those of the library."""
    registry = MetricsRegistry(learner.metrics)
    if not DryUpdates.known_of(model):
        return WatchedModel(model, registry)

    def again() -> OffPolicyAlgorithm:
        drawing = {key: value for key, value in _drawing(configuration).items() if key in ("sampler", *SHOWING)}
        env = SpacesAlone(deepcopy(model.observation_space), deepcopy(model.action_space))
        small = replace(learner, arguments=learner.arguments | {"buffer_size": 1})
        return model_of(small, configuration, 0, env, HandedBuffer, drawing, weighted=True)

    return WatchedAndProbedModel(model, registry, again)
