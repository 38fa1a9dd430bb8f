"""The episodes under way in a shard: which steps continue with them, and which begin others."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class OpenEpisodes:
    """What a shard knows of each environment's last stored step.

    A step follows it only if it is the next one of the same episode. So no episode is joined to another: not where a
    writer takes over what another one has left, nor where two copies of one writer continue from the same step, nor
    where steps between them were lost with a shard.

    Args:
        envs: E.
    """

    def __init__(self, envs: int) -> None:
        self._number = np.full(envs, -1, np.int64)  # its episode's, as its writer numbers them
        self._count = np.zeros(envs, np.int64)  # steps of the episode, with it
        self._first = np.full(envs, -1, np.int64)  # id of the episode's first step here

    def goes_on(self, envs: Ids, where: Flags, episodes: Ids, follows: Ids) -> Flags:
        """Return of which environments the first step that comes follows the last one stored, bool (e,).

        Args:
            envs: The environments' numbers, int64 (e,).
            where: bool (T, e): which steps come; of each environment at least one.
            episodes: int64 (T, e): the number of each step's episode; it never falls.
            follows: int64 (e,): how many stored steps of its episode each environment's first one follows.
        """
        number = episodes[where.argmax(axis=0), np.arange(len(envs))]
        same: Flags = (number == self._number[envs]) & (follows == self._count[envs])
        return same

    def note(self, envs: Ids, where: Flags, episodes: Ids, follows: Ids, goes_on: Flags, ids: Ids) -> Ids:
        """Take note of steps that are stored now, and return the id of the first step of each one's episode, (T, e).

        Args:
            envs: As for `goes_on`, as the next three.
            where: Likewise.
            episodes: Likewise.
            follows: Likewise.
            goes_on: What that returned.
            ids: The steps' ids, int64 (T, e), which rise.
        """
        known = np.where(goes_on, self._number[envs], -1)
        numbers = np.maximum.accumulate(np.vstack([known, np.where(where, episodes, -1)]), axis=0)
        begun = np.where(where & (episodes != numbers[:-1]), ids, -1)
        first: Ids = np.maximum.accumulate(np.vstack([self._first[envs], begun]), axis=0)[1:]
        of_last = where & (episodes == numbers[-1])
        self._number[envs], self._first[envs] = numbers[-1], first[-1]
        self._count[envs] = of_last.sum(axis=0) + np.where((of_last == where).all(axis=0), follows, 0)
        return first
