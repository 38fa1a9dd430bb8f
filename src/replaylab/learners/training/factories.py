"""Makes the parts of a run from its configuration, and checks them: environments, agents, sampler and replay."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar, get_args

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv

from replaylab.arguments import did_you_mean, shown
from replaylab.envs import make_vector_env
from replaylab.envs.vectorize import constructor_options, make_single_env
from replaylab.errors import ConfigError, ReplayError
from replaylab.learners.api.hooks import Feedback
from replaylab.learners.api.observations import are_pixels
from replaylab.learners.api.protocols import Agents, Learner
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.env_hindsight import transforms_for
from replaylab.replay import FeedbackKind, Field, FrameStack, Replay, ReplayBuffer, Sampler, Transform

Made = TypeVar("Made")


def environments(configuration: TrainingConfig, count: int) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment of `count` copies of the environment to train on.

    Raises:
        ConfigError: The environment cannot be made.
    """
    return _make_with(configuration, make_vector_env, num_envs=count, autoreset_mode=configuration.autoreset_mode)


def single_environment(configuration: TrainingConfig) -> gym.Env[Any, Any]:
    """Return a single training environment.

    Raises:
        ConfigError: The environment cannot be made.
    """
    return _make_with(configuration, make_single_env)


def _make_with(configuration: TrainingConfig, make: Callable[..., Made], **further: Any) -> Made:
    """Call a function with the environment's id and options, and return its result.

    Raises:
        ConfigError: The function raises an error.
    """
    env_id, options = configuration.env_id, dict(configuration.env_options or {})
    try:
        return make(env_id, **further, **options)
    except TypeError as error:
        raise ConfigError(f"`env_options` do not fit {env_id}: {error}{_allowed_options(env_id, options)}") from error
    except ReplayError:
        raise
    except (Exception, SystemExit) as error:  # a constructor may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{env_id} cannot be made with env_options={options}: {reason}") from error


def _allowed_options(env_id: str, options: Mapping[str, Any]) -> str:
    """Return the end of a message: the options that an environment takes; a full stop if they are unknown."""
    names = constructor_options(env_id)
    wrong = [name for name in options if name not in names]
    return f"{did_you_mean(wrong[0], names)} Its options: {', '.join(names)}." if names and wrong else "."


def agents_for(
    configuration: TrainingConfig, learner: Learner, env: VectorEnv[Any, Any, Any], seeds: Sequence[int]
) -> Agents:
    """Return a learner's new agents for an environment.

    Raises:
        ConfigError: The learner does not fit the environment.
    """
    try:
        return learner.agents(env.single_observation_space, env.single_action_space, seeds)
    except ConfigError as error:
        name = type(configuration.learner).__name__
        raise ConfigError(f"{name} cannot learn {configuration.env_id}: {error}") from error


def sampler_for(configuration: TrainingConfig, agents: Agents) -> Sampler:
    """Return the configuration's sampler; an oracle's is made for the agents."""
    sampler = configuration.sampler
    if isinstance(sampler, Sampler):
        return sampler
    return sampler.of(configuration.env_id, configuration.env_options or {}, agents)


def check_feedback(learner: Learner, agents: Agents, sampler: Sampler, feedback: Feedback | None) -> None:
    """Raise `ConfigError` unless the agents can give the sampler the feedback that it wants."""
    if not learner.batch_size or feedback in (None, "td_error"):
        return
    if feedback != "reducible_loss":
        kinds = " or ".join(f'"{kind}"' for kind in get_args(FeedbackKind))
        raise ConfigError(f"`feedback_kind` of {sampler} must be {kinds}, but got {feedback!r}")
    if not (hasattr(agents, "target_q_values") and hasattr(agents, "loss")):
        raise ConfigError(
            f"{sampler} wants L_online − L_target, the difference of two networks' losses, but agents of "
            f"{type(learner).__name__} have no target network (`target_q_values` and `loss`); take "
            f"`Prioritized`, or DQN"
        )


def replay_for(
    configuration: TrainingConfig,
    learner: Learner,
    env: VectorEnv[Any, Any, Any],
    seeds: Sequence[int],
    sampler: Sampler,
) -> Replay:
    """Return an empty replay: a `ReplayBuffer`, or the result of the configuration's `make_replay`.

    Raises:
        ConfigError: `make_replay` makes something else.
    """
    parts: dict[str, Any] = {
        "env": env,
        "capacity": learner.capacity,
        "seeds": seeds,
        "sampler": sampler,
        "transforms": transforms_for(env, configuration.transforms),
        "count_replays": configuration.measure_every is not None,
    }
    make = configuration.make_replay
    return make_replay_buffer(**parts) if make is None else own_replay(make, parts)


def make_replay_buffer(
    *,
    env: VectorEnv[Any, Any, Any],
    capacity: int,
    seeds: Sequence[int],
    sampler: Sampler,
    transforms: Sequence[Transform],
    count_replays: bool,
) -> ReplayBuffer:
    """Return an empty buffer.

    Args:
        env: R environments, one for each replica.
        capacity: C, steps that each replica keeps.
        seeds: (R,), seeds of the streams `Stream.SAMPLING` and `Stream.RESCORING`.
        sampler: The sampler.
        transforms: The transforms of drawn steps.
        count_replays: Whether to count how often each step is drawn, which measures of the replay need.
    """
    stacked = any(isinstance(transform, FrameStack) and transform.stacked_input for transform in transforms)
    return ReplayBuffer.for_env(
        env,
        capacity,
        replicas=len(seeds),
        sampler=sampler,
        transforms=transforms,
        next_obs="derived" if stacked else "stored",
        extra_fields=_compressed_pixels(env.single_observation_space),
        count_replays=count_replays,
        seed=list(seeds),
    )


def own_replay(make: Callable[..., Replay], parts: Mapping[str, Any]) -> Replay:
    """Return the replay that a configuration's `make_replay` makes.

    Args:
        make: `TrainingConfig.make_replay`.
        parts: Its keyword arguments, the same as those of `make_replay_buffer`.

    Raises:
        ConfigError: `make` does not take these arguments, or does not return a replay with a replica for each seed.
    """
    try:
        signature(make).bind(**parts)
    except TypeError as error:
        raise ConfigError(f"`make_replay` must take {', '.join(parts)}: {error}") from None
    except ValueError:  # compiled functions may have no signature
        pass
    replay = make(**parts)
    if isinstance(replay, type) or not isinstance(replay, Replay):
        raise ConfigError(f"`make_replay` must return a ReplayBuffer or another Replay, but got {shown(replay)}")
    wanted, shape = (len(parts["seeds"]), None), (replay.replicas, replay.num_envs)
    if shape != wanted:
        raise ConfigError(
            f"`make_replay` must return a replay with replicas={wanted[0]}, one for each seed, and num_envs=None, but "
            f"got replicas={shape[0]} and num_envs={shape[1]}"
        )
    return replay


def _compressed_pixels(space: Space[Any]) -> dict[str, Field]:
    """Return the image fields to store compressed, without loss; images of a few bytes are left out."""
    shape = space.shape or ()  # whose first axis may be a stack's, of which single frames are kept
    if not are_pixels(space) or not Field(shape[1:], np.uint8).compressible:
        return {}
    field = Field(shape, np.uint8, compressed=True)
    return {"obs": field, "next_obs": field}
