"""Contents of a buffer, as those of Stable-Baselines3 and CleanRL show them: arrays by place and environment."""

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, flag, whole
from replaylab.errors import ShapeError
from replaylab.replay import Field, ReplayBuffer
from replaylab.trees import map_leaves


def transition_fields(obs: Any, action: Field) -> dict[str, Any]:
    """Return the fields of a transition, from those of an observation, which may be nested, and of an action."""
    end = Field((), np.bool_)
    return {"obs": obs, "action": action, "reward": Field(), "next_obs": obs, "terminated": end, "truncated": end}


def shaped(name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a value in the stored shape, from which its shape may differ only by axes of length 1.

    Raises:
        ShapeError: Another axis differs, for example a picture (H, W, C) where (C, H, W) is stored.
    """
    array: npt.NDArray[Any] = value if type(value) is np.ndarray else np.asarray(value)
    if array.shape == shape:
        return array
    if (*array.shape, 1) == shape:  # scalars, stored with an axis of length 1: the most frequent case
        return array[..., None]
    if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:
        raise ShapeError(
            f"`{name}` must be of shape {shape}, but got {array.shape}; pass values of the buffer's spaces, with their "
            "axes in the same order"
        )
    return array.reshape(shape)


def shaped_action(action: Any, leading: tuple[int, ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return actions as rows of numbers, from actions of this shape or from rows.

    Raises:
        ShapeError: The actions have another shape.
    """
    if len(shape) == 1:
        return shaped("action", action, leading + shape)
    array, numbers = np.asarray(action), prod(shape)
    if array.shape[-len(shape) :] == shape:
        array = array.reshape(*array.shape[: -len(shape)], numbers)
    return shaped("action", array, (*leading, numbers))


class ByPlace:
    """Attributes that the buffers of both libraries have.

    Arrays (C / E, E, ...) are copies, zero where nothing is stored yet.

    Attributes:
        replay: The buffer underneath.
    """

    replay: ReplayBuffer

    def _declare(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        n_envs: int,
        optimize_memory_usage: bool,
        handle_timeout_termination: bool,
    ) -> None:
        """Check and store the constructor arguments that the buffers of both libraries have."""
        self.n_envs = checked("n_envs", n_envs, whole())
        self.buffer_size = max(checked("buffer_size", buffer_size, whole()) // self.n_envs, 1)
        self.observation_space, self.action_space = observation_space, action_space
        self.optimize_memory_usage = checked("optimize_memory_usage", optimize_memory_usage, flag)
        self.handle_timeout_termination = checked("handle_timeout_termination", handle_timeout_termination, flag)

    @property
    def pos(self) -> int:
        """Place where the next time step is stored."""
        return int(self.replay.next_id) // self.n_envs % self.buffer_size

    @property
    def full(self) -> bool:
        """Whether every place holds a time step."""
        return len(self.replay) == self.replay.capacity

    def size(self) -> int:
        """Return the number of stored time steps."""
        return len(self.replay) // self.n_envs

    @property
    def observations(self) -> Any:
        """Observations, or a dict of them; for stacked frames, the single frames."""
        return self._by_place("obs")

    @property
    def next_observations(self) -> Any:
        """Next observations, in the form of `observations`."""
        return self._by_place("next_obs")

    @property
    def actions(self) -> npt.NDArray[Any]:
        """Actions."""
        return np.asarray(self._by_place("action"))

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """Rewards, as passed to `add`."""
        return np.asarray(self._by_place("reward"))

    @property
    def timeouts(self) -> npt.NDArray[np.float32]:
        """1 where a time limit ended the episode, else 0."""
        return np.asarray(self._by_place("truncated"), np.float32)

    def reset(self) -> None:
        """Remove every stored step."""
        self.replay.clear()
        self.replay.end_episode()

    def _by_place(self, name: str) -> Any:
        ids, capacity = self.replay.stored_ids()[0], self.replay.capacity

        def placed(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
            places = np.zeros((capacity, *rows.shape[1:]), rows.dtype)
            places[ids % capacity] = rows
            return places.reshape(self.buffer_size, self.n_envs, *rows.shape[1:])

        return map_leaves(placed, self.replay.get(ids)[name])
