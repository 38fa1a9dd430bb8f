"""Fields from Gymnasium environments, without importing Gymnasium unless an environment is given."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replaylab.arguments import checked, mapping
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.data.arrays import positive
from replaylab.replay.data.autoreset import mode_name
from replaylab.replay.data.fields import Field, Tree, field_at, single_frame
from replaylab.replay.transforms import FrameStack
from replaylab.trees import flatten, unflatten


def field_of_space(space: Any, path: str) -> Tree:
    """Return the field, or nested fields, that hold one value of a Gymnasium space.

    Box, MultiDiscrete and MultiBinary keep their shape and dtype, Discrete becomes one integer; Dict and
    Tuple nest.

    Raises:
        FieldError: The space is of another kind (Text, Graph, Sequence, ...), which has no fixed size.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: field_of_space(child, f"{path}.{key}") for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(field_of_space(child, f"{path}.{i}") for i, child in enumerate(space.spaces))
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return field_at(path, space.shape or (), np.dtype(space.dtype))
    raise FieldError(
        f"field `{path}` has the space {space}, which has no fixed shape and dtype; "
        "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple can be stored"
    )


def fields_of_env(env: Any) -> dict[str, Tree]:
    """Return the fields of one transition of an environment or vector environment."""
    if not (hasattr(env, "observation_space") and hasattr(env, "action_space")):
        raise ConfigError(f"`env` must be an environment or a vector environment of Gymnasium's, but got {env!r:.80}")
    obs = getattr(env, "single_observation_space", env.observation_space)
    action = getattr(env, "single_action_space", env.action_space)
    for name, space in (("observation_space", obs), ("action_space", action)):
        if callable(space):
            raise ConfigError(
                f"`env` must have one agent, but the `{name}` of {env!r:.80} is a function, as in PettingZoo, where "
                f"each agent has its own; declare the `fields` of ReplayBuffer from env.{name}(agent)"
            )
    return {
        "obs": field_of_space(obs, "obs"),
        "action": field_of_space(action, "action"),
        "reward": Field((), np.float32),
        "next_obs": field_of_space(obs, "next_obs"),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }


def options_for_env(
    env: Any, replicas: int | None, extra_fields: Mapping[str, Tree] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options of a buffer for an environment; see `ReplayBuffer.for_env`."""
    num_envs: int | None = getattr(env, "num_envs", None)
    if replicas is not None:
        total = num_envs or 1
        if total % positive("replicas", replicas):
            raise ConfigError(f"`replicas` must divide the {total} sub-environments, but got {replicas}")
        num_envs = None if total == replicas else total // replicas
    fields = {**fields_of_env(env), **checked("extra_fields", extra_fields or {}, mapping)}
    transforms = options.get("transforms", ())
    for transform in transforms if isinstance(transforms, Sequence) else ():  # otherwise the constructor refuses it
        if isinstance(transform, FrameStack) and transform.stacked_input:
            fields = single_frames(fields, transform)
    options = {"autoreset": autoreset_of_env(env)} | options
    return dict(fields=fields, num_envs=num_envs, replicas=replicas, **options)  # raises if an option is passed twice


def single_frames(fields: dict[str, Tree], stack: FrameStack) -> dict[str, Tree]:
    """Return the fields with single frames in place of the environment's stacks.

    Raises:
        FieldError: A stacked field's first axis is not the stack's length.
    """
    flat = dict(flatten(fields))
    for path in stack.leaves(flat):
        field = flat[path]
        if field.shape[:1] != (stack.length,):
            raise FieldError(
                f"FrameStack(length={stack.length}, stacked_input=True) needs stacks of {stack.length} frames, but the "
                f"environment's `{path}` has shape {field.shape}; wrap it in FrameStackObservation, or leave "
                "stacked_input out"
            )
        flat[path] = single_frame(field)
    single: dict[str, Tree] = unflatten(fields, iter(flat.values()))
    return single


def autoreset_of_env(env: Any) -> str | None:
    """Return the autoreset mode of a vector environment; for a single one None, unless a wrapper resets it.

    Raises:
        ConfigError: A vector environment does not declare its mode.
    """
    if not hasattr(env, "single_observation_space"):
        return "next_step" if _resets_itself(env) else None
    mode = (env.metadata or {}).get("autoreset_mode")
    if mode is None:
        raise ConfigError(
            f"the vector environment {env} does not declare its autoreset mode in metadata['autoreset_mode']; "
            "set it there to a gymnasium.vector.AutoresetMode"
        )
    return mode_name(mode)


def _resets_itself(env: Any) -> bool:
    """Whether a single environment has Gymnasium's wrapper `Autoreset` around it, anywhere."""
    while hasattr(env, "env"):
        if type(env).__name__ == "Autoreset" and type(env).__module__.startswith("gymnasium."):
            return True
        env = env.env
    return False
