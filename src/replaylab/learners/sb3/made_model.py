"""Algorithms of Stable-Baselines3, made from settings that are plain data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common import noise as noises
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.errors import ConfigError, ReplayError
from replaylab.integrations.sb3 import ReplayLabBuffer, WithPriorities
from replaylab.learners.sb3 import algorithms
from replaylab.learners.sb3.settings import SB3Settings
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.replay import Sampler


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
    """Return an untrained algorithm.

    Args:
        learner: The settings of the algorithm.
        configuration: The configuration of the run.
        seed: Seed of the algorithm.
        env: Environment of the algorithm.
        buffer: The class of its replay buffer.
        drawing: Further arguments of the buffer, besides the learner's.
        weighted: Whether batches may have weights with any sampler.

    Raises:
        ConfigError: The algorithm cannot be made.
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
    """Whether a space's numbers are categories, the first of which is not 0."""
    return isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete) and bool(np.any(space.start))


def _argument(name: str, value: Any) -> Any:
    """Return an argument in the algorithm's form, from plain data."""
    if name == "train_freq" and isinstance(value, list):
        return tuple(value)
    if name == "learning_rate" and isinstance(value, Mapping):
        return algorithms.schedule_of(value)
    return _resolved(name, value)


def _resolved(name: str, value: Any) -> Any:
    """Return plain data with references ``module:Name`` replaced by their objects."""
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
