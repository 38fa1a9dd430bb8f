"""What a buffer of Stable-Baselines3's stores of its spaces, and the form in which rows come in and go out."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape

from replaylab.arguments import FRACTION, checked, flag, one_of, optional, whole
from replaylab.errors import ConfigError, FieldError
from replaylab.replay import Field, FrameStack

Obs = Any
"""An array, or a dict of arrays."""


class Layout:
    """How observations and actions are stored.

    Attributes:
        fields: What a `replaylab.ReplayBuffer` is to declare.
        stack: The transform that puts stacks of frames together, or None.
        obs_shape: An observation's shape, or that of each key.
        action_dim: Numbers in an action.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        frame_stack: int | None,
        padding: str,
        compressed: bool,
    ) -> None:
        self.obs_shape: Any = _shape(observation_space)
        self.action_dim = get_action_dim(action_space)
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
        fields: dict[str, Any] = {"obs": self._field(observation_space, compressed)}
        fields["action"] = Field((self.action_dim,), np.dtype(LibraryBuffer._maybe_cast_dtype(action_space.dtype)))
        fields |= {"reward": Field(), "next_obs": fields["obs"]}
        self.fields = fields | {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}

    def stored(self, obs: Obs, leading: tuple[int, ...]) -> Obs:
        """Return observations in the form that is stored, (*leading, ...)."""
        if isinstance(self.obs_shape, dict):
            return {key: np.asarray(obs[key]).reshape(*leading, *shape) for key, shape in self.obs_shape.items()}
        return np.asarray(obs).reshape(*leading, *self._stacked_shape)

    def shown(self, obs: Obs) -> Obs:
        """Return a batch's observations in the form of the space."""
        return obs if self.stack is None else obs.reshape(len(obs), *self.obs_shape)

    def action(self, action: Any, leading: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return actions in the form that is stored."""
        return np.asarray(action, self.fields["action"].dtype).reshape(*leading, self.action_dim)

    def _field(self, space: spaces.Space[Any], compressed: bool) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._of(self.obs_shape[key], child.dtype, compressed) for key, child in space.spaces.items()}
        return self._of(self._frame_shape, space.dtype, compressed)

    @property
    def _frame_shape(self) -> tuple[int, ...]:
        return self._stacked_shape if self.stack is None else self._stacked_shape[1:]

    @property
    def _stacked_shape(self) -> tuple[int, ...]:
        if self.stack is None:
            return self.obs_shape  # type: ignore[no-any-return]
        return self.stack.length, self.obs_shape[0] // self.stack.length, *self.obs_shape[1:]

    def _of(self, shape: tuple[int, ...], dtype: Any, compressed: bool) -> Field:
        field = Field(shape, dtype)
        return Field(shape, dtype, compressed=True) if compressed and field.compressible else field


def _shape(space: spaces.Space[Any]) -> Any:
    return get_obs_shape(space)


def same(one: Obs, other: Obs) -> npt.NDArray[np.bool_]:
    """Return for which rows two observations are the same, bit for bit in the second one's dtype (E,)."""
    if isinstance(one, dict):
        return np.asarray(np.logical_and.reduce([same(one[key], other[key]) for key in one]))
    values = np.asarray(one).astype(other.dtype, copy=False), other
    rows = (np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8) for value in values)
    first, second = rows
    return np.asarray((first == second).all(1))


def steps_and_gamma(n_steps: int | None, gamma: float | None, algorithm: Any) -> tuple[int, float | None]:
    """Return n and γ: those of the algorithm, unless they were given.

    Raises:
        ConfigError: Both say something else, or γ is not known.
    """
    n_steps, gamma = checked("n_steps", n_steps, optional(whole())), checked("gamma", gamma, optional(FRACTION))
    own_steps = 1 if algorithm is None else algorithm.n_steps
    if n_steps is not None and own_steps not in (1, n_steps):
        raise ConfigError(
            f"`n_steps` of the buffer must be that of the algorithm, but got {n_steps} and {own_steps}; leave it "
            "out of replay_buffer_kwargs"
        )
    own_gamma = gamma if algorithm is None else algorithm.gamma
    if gamma is not None and gamma != own_gamma:
        raise ConfigError(
            f"`gamma` of the buffer must be that of the algorithm, but got {gamma} and {own_gamma}; leave it out "
            "of replay_buffer_kwargs"
        )
    steps = own_steps if n_steps is None else n_steps
    if steps != 1 and own_gamma is None:
        raise ConfigError(
            f"`gamma` must be given with n_steps={steps}, which discounts by it; no algorithm is there to ask"
        )
    return steps, own_gamma
