"""What a buffer holds, as the library's own buffers show it: arrays by place and environment."""

from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer

from replaylab.integrations.sb3.layout import Obs
from replaylab.replay import ReplayBuffer


class Places(LibraryBuffer):
    """The attributes of the library's buffers. Arrays (C / E, E, ...) are copies, zero where nothing is stored yet."""

    replay: ReplayBuffer

    @property
    def pos(self) -> int:  # type: ignore[override]
        """The place of the next time step."""
        return int(self.replay.next_id) // self.n_envs % self.buffer_size

    @property
    def full(self) -> bool:  # type: ignore[override]
        """Whether every place is taken."""
        return len(self.replay) == self.replay.capacity

    def size(self) -> int:
        """Return how many time steps are stored."""
        return len(self.replay) // self.n_envs

    @property
    def observations(self) -> Obs:  # type: ignore[override]
        """Observations, or a dict of them; with `frame_stack` single frames."""
        return self._by_place("obs")

    @property
    def next_observations(self) -> Obs:  # type: ignore[override]
        """What followed them."""
        return self._by_place("next_obs")

    @property
    def actions(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """Actions."""
        return np.asarray(self._by_place("action"))

    @property
    def rewards(self) -> npt.NDArray[np.float32]:  # type: ignore[override]
        """Rewards, as they were given."""
        return np.asarray(self._by_place("reward"))

    @property
    def dones(self) -> npt.NDArray[np.float32]:  # type: ignore[override]
        """Whether the steps ended their episodes, by termination or by a time limit."""
        return np.asarray(self._by_place("terminated") | self._by_place("truncated"), np.float32)

    @property
    def timeouts(self) -> npt.NDArray[np.float32]:  # type: ignore[override]
        """Whether a time limit ended their episodes."""
        return np.asarray(self._by_place("truncated"), np.float32)

    def _by_place(self, name: str) -> Any:
        ids = self.replay.stored_ids()[0]
        rows = self.replay.get(ids)[name]
        if isinstance(rows, dict):
            return {key: self._placed(ids, values) for key, values in rows.items()}
        return self._placed(ids, rows)

    def _placed(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        capacity = self.replay.capacity
        placed = np.zeros((capacity, *rows.shape[1:]), rows.dtype)
        placed[ids % capacity] = rows
        return placed.reshape(self.buffer_size, self.n_envs, *rows.shape[1:])
