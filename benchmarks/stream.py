"""Steps in episodes, without end, each known by its number: so a drawn row can be compared with the truth."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import ACTION, OBS, Pool, wrapped
from benchmarks.scene import Drawer

EPISODE = 400
TABLE = 64_000
CHUNK = 1000

Steps = NDArray[np.int64]


class Stream:
    """Step i has observation i of 17 float32, the first of them i itself (exact below 2^24).

    Episodes have 400 steps; every second one is terminated, the others are truncated. `next_obs` is the next
    step's observation, and after an episode's last step its own observation: number −(i + 1).
    """

    @classmethod
    @cache
    def shared(cls) -> "Stream":
        """Return the one that every contestant gets, so that it counts as nobody's memory."""
        return cls(0)

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._obs = rng.standard_normal((TABLE, OBS), dtype=np.float32)
        self._action = rng.standard_normal((TABLE, ACTION), dtype=np.float32)
        self._reward = rng.standard_normal(TABLE, dtype=np.float32)

    def obs(self, i: Steps) -> NDArray[np.float32]:
        """Return the observations of steps i."""
        rows = self._obs[i % TABLE]
        rows[..., 0] = i
        return rows

    def next_obs(self, i: Steps) -> NDArray[np.float32]:
        """Return what followed steps i."""
        rows = self.obs(i + 1)
        rows[..., 0] *= np.where(self.ended(i), -1, 1)
        return rows

    def action(self, i: Steps) -> NDArray[np.float32]:
        """Return the actions of steps i."""
        return self._action[i % TABLE]

    def reward(self, i: Steps) -> NDArray[np.float32]:
        """Return the rewards of steps i."""
        return self._reward[i % TABLE]

    @staticmethod
    def terminated(i: Steps) -> NDArray[np.bool_]:
        """Say which of steps i terminated their episode."""
        return i % (2 * EPISODE) == EPISODE - 1

    @staticmethod
    def truncated(i: Steps) -> NDArray[np.bool_]:
        """Say at which of steps i the episode was cut off."""
        return i % (2 * EPISODE) == 2 * EPISODE - 1

    @staticmethod
    def ended(i: Steps) -> NDArray[np.bool_]:
        """Say which of steps i were their episode's last."""
        return i % EPISODE == EPISODE - 1

    def steps(self, first: int, length: int) -> Pool:
        """Return consecutive steps as columns."""
        i = np.arange(first, first + length)
        return Pool(
            self.obs(i), self.action(i), self.next_obs(i), self.reward(i), self.terminated(i), self.truncated(i)
        )


def number_of(obs: NDArray[np.float32]) -> Steps:
    """Read the steps' numbers off their observations, or off what followed them (then less one)."""
    return np.rint(obs[..., 0]).astype(np.int64)


class StreamDrawer(Drawer):
    """A buffer that holds the stream's steps."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.stream = Stream.shared()

    def chunks(self, length: int = CHUNK) -> Iterator[Pool]:
        """Go through the steps that fill and wrap the ring."""
        for first in range(0, wrapped(self.capacity), length):
            self.added = first + length
            yield self.stream.steps(first, length)
