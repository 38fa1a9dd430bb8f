"""Fields from Gymnasium environments, without importing Gymnasium unless an environment is given."""

from typing import Any

import numpy as np

from replaylab.errors import ConfigError, FieldError
from replaylab.replay.data.autoreset import mode_name
from replaylab.replay.data.fields import Field, Tree, flatten, unflatten
from replaylab.replay.transforms.frame_stack import FrameStack


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
        return Field(space.shape or (), np.dtype(space.dtype))
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
    return {
        "obs": field_of_space(obs, "obs"),
        "action": field_of_space(action, "action"),
        "reward": Field((), np.float32),
        "next_obs": field_of_space(obs, "next_obs"),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }


def single_frames(fields: dict[str, Tree], stack: FrameStack) -> dict[str, Tree]:
    """Return the fields with single frames in place of the stacks that an environment gives.

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
        flat[path] = Field(field.shape[1:], field.dtype, compressed=field.compressed)
    leaves = iter(flat.values())
    return {name: unflatten(tree, leaves) for name, tree in fields.items()}


def autoreset_of_env(env: Any) -> str | None:
    """Return the autoreset mode a vector environment declares; of a single one None, unless a wrapper resets it.

    Raises:
        ConfigError: A vector environment declares none.
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
