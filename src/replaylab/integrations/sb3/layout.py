"""Fields of a buffer for Stable-Baselines3's spaces, and the conversion of rows to and from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape

from replaylab.arguments import FRACTION, checked, flag, one_of, optional, whole
from replaylab.errors import ConfigError, FieldError
from replaylab.integrations.by_place import shaped, shaped_action, transition_fields
from replaylab.replay import Field, FrameStack

Obs = Any
"""An array, or a dict of arrays."""


class Layout:
    """Form in which observations and actions are stored.

    Attributes:
        fields: The fields of the `replaylab.ReplayBuffer`.
        stack: The transform that puts stacks of frames together, or None.
        obs_shape: An observation's shape, or that of each key.
        action_dim: Number of numbers in an action.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        frame_stack: int | None,
        padding: str,
        compressed: bool,
    ) -> None:
        self.obs_shape: Any = get_obs_shape(observation_space)
        self._stored_shape: Any = self.obs_shape  # with an axis of frames, if they are stacked
        self.action_dim, self._action_shape = get_action_dim(action_space), tuple(action_space.shape or ()) or (1,)
        compressed = checked("compressed", compressed, flag)
        padding = checked("padding", padding, one_of("zero", "repeat"))
        self.stack = None
        if frame_stack is not None:
            self.stack = FrameStack(frame_stack, padding=padding, stacked_input=True)  # type: ignore[arg-type]
            if isinstance(self.obs_shape, dict) or not self.obs_shape or self.obs_shape[0] % self.stack.length:
                raise FieldError(
                    f"`frame_stack` must divide the first axis of a Box observation into frames, but got frame_stack="
                    f"{frame_stack} for {observation_space}; leave it out, or stack frames along the first axis"
                )
            length, (frames, *frame_shape) = self.stack.length, self.obs_shape
            self._stored_shape = (length, frames // length, *frame_shape)

        def field(shape: tuple[int, ...], dtype: Any) -> Field:
            return Field(shape, dtype, compressed=compressed and Field(shape, dtype).compressible)

        obs: Any
        if isinstance(observation_space, spaces.Dict):
            obs = {key: field(self.obs_shape[key], child.dtype) for key, child in observation_space.spaces.items()}
        else:
            obs = field(self._stored_shape[0 if self.stack is None else 1 :], observation_space.dtype)
        action = Field((self.action_dim,), np.dtype(LibraryBuffer._maybe_cast_dtype(action_space.dtype)))
        self.fields = transition_fields(obs, action)

    def stored(self, name: str, obs: Obs, leading: tuple[int, ...]) -> Obs:
        """Return observations in the form that is stored, (*leading, ...).

        Raises:
            ShapeError: They have another shape than the space.
        """
        if isinstance(self.obs_shape, dict):
            return {key: shaped(f"{name}.{key}", obs[key], leading + shape) for key, shape in self.obs_shape.items()}
        stacked = shaped(name, obs, leading + self.obs_shape)
        return stacked if self.stack is None else stacked.reshape(*leading, *self._stored_shape)

    def shown(self, obs: Obs) -> Obs:
        """Return a batch's observations in the form of the space."""
        return obs if self.stack is None else obs.reshape(len(obs), *self.obs_shape)

    def action(self, action: Any, leading: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return actions in the form that is stored.

        Raises:
            ShapeError: They have another shape than the space.
        """
        return shaped_action(np.asarray(action, self.fields["action"].dtype), leading, self._action_shape)


def check_same(action: str, buffer: Any, expected: Mapping[str, Any]) -> None:
    """Raise `ConfigError` unless a buffer that is read in or loaded has these attributes."""
    for name, value in expected.items():
        if (actual := getattr(buffer, name)) != value:
            raise ConfigError(
                f"`{name}` of the buffer that is {action} must be {value}, but is {actual}; continue with the `{name}` "
                "with which the buffer was filled, or start with an empty buffer"
            )


def steps_and_gamma(n_steps: int | None, gamma: float | None, algorithm: Any) -> tuple[int, float | None]:
    """Return n and γ: the arguments, or else those of the algorithm.

    Raises:
        ConfigError: The arguments differ from those of the algorithm, or γ is not known.
    """
    n_steps, gamma = checked("n_steps", n_steps, optional(whole())), checked("gamma", gamma, optional(FRACTION))
    algorithm_steps = 1 if algorithm is None else algorithm.n_steps
    if n_steps is not None and algorithm_steps not in (1, n_steps):
        raise ConfigError(
            f"`n_steps` of the buffer must be that of the algorithm, but got {n_steps} and {algorithm_steps}; leave it "
            "out of replay_buffer_kwargs"
        )
    algorithm_gamma = gamma if algorithm is None else algorithm.gamma
    if gamma is not None and gamma != algorithm_gamma:
        raise ConfigError(
            f"`gamma` of the buffer must be that of the algorithm, but got {gamma} and {algorithm_gamma}; leave it out "
            "of replay_buffer_kwargs"
        )
    steps = algorithm_steps if n_steps is None else n_steps
    if steps != 1 and algorithm_gamma is None:
        raise ConfigError(
            f"`gamma` must be given with n_steps={steps}, which discounts by it, as the buffer serves no algorithm"
        )
    return steps, algorithm_gamma
