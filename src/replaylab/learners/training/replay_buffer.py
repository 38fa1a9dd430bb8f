"""The replay buffer that a learner's steps are stored in, unless the configuration makes another replay."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.api.observations import are_pixels
from replaylab.replay import Field, FrameStack, Replay, ReplayBuffer, Sampler, Transform


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
        seeds: (R,), of which `Stream.SAMPLING` and `Stream.RESCORING` are drawn.
        sampler: What draws.
        transforms: What a drawn step becomes.
        count_replays: Whether to count how often each step is drawn, as measures of the replay need.
    """
    stacked = any(isinstance(one, FrameStack) and one.stacked_input for one in transforms)
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
        parts: What it is given, as `make_replay_buffer` is.

    Raises:
        ConfigError: It does not take that, or makes no replay of so many replicas.
    """
    try:
        signature(make).bind(**parts)
    except TypeError as error:
        raise ConfigError(f"`make_replay` must take {', '.join(parts)}: {error}") from None
    except ValueError:  # of compiled functions there may be no signature
        pass
    made = make(**parts)
    if isinstance(made, type) or not isinstance(made, Replay):
        raise ConfigError(f"`make_replay` must return a ReplayBuffer or another Replay, but got {shown(made)}")
    wanted, found = (len(parts["seeds"]), None), (made.replicas, made.num_envs)
    if found != wanted:
        raise ConfigError(
            f"`make_replay` must return a replay with replicas={wanted[0]}, one for each seed, and num_envs=None, but "
            f"got replicas={found[0]} and num_envs={found[1]}"
        )
    return made


def _compressed_pixels(space: Space[Any]) -> dict[str, Field]:
    """Return the fields of images, which are kept compressed, without loss; none where there are none, or tiny ones."""
    shape = space.shape or ()  # whose first axis may be a stack's, of which single frames are kept
    if not are_pixels(space) or not Field(shape[1:], np.uint8).compressible:
        return {}
    field = Field(shape, np.uint8, compressed=True)
    return {"obs": field, "next_obs": field}
