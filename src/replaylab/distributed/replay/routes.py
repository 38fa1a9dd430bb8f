"""Which shard a step goes to: that of its episode, and the next shard for the environment's next episode."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import ENDS
from replaylab.replay import ReplayBuffer

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Route(NamedTuple):
    """What goes to one shard.

    Attributes:
        shard: Number of the shard.
        at: Index of its time steps and of the writer's environments; slices if these are contiguous, so that nothing
            is copied.
        columns: Which environments these are, int64 (e,).
        where: Which of these are its steps, bool (t, e).
        episodes: The number of each one's episode, int64 (t, e).
        follows: How many stored steps of its episode each environment's first one follows, int64 (e,).
    """

    shard: int
    at: tuple[Any, Any]
    columns: Ids
    where: Flags
    episodes: Ids
    follows: Ids


class Routes:
    """Follows the episodes of a writer's environments.

    An episode ends with ``terminated`` or ``truncated``, or by `end_episode`. Without these fields all steps until
    `end_episode` go to one shard, or, where nothing looks around them, as many as `run` says.

    It can be sent to other processes between two steps of an episode: a shard joins a step to the one before it only
    if number and slot in the episode report it, whatever became of copies.

    In mode "next_step" the step after an end is the environment resetting itself. It is left out here: a shard that
    takes another's place would not know of the end.

    Args:
        template: A buffer declared as the writer's steps are.
        envs: The numbers of this writer's environments.
        shards: S.
        run: How many steps of an environment go to a shard before the next gets as many, where nothing looks around.
    """

    def __init__(self, template: ReplayBuffer, envs: Ids, shards: int, run: int) -> None:
        self._shards, self._run, self._skips = shards, run, template.autoreset == "next_step"
        self._has_ends = all(name in template.fields for name in ENDS)
        self._alone = not self._has_ends and not template.transforms and template.next_obs == "stored"
        self._home = envs % shards
        self._episode = np.random.default_rng().integers(2**50, size=len(envs))  # no other writer has these numbers
        self._resets = np.zeros(len(envs), np.bool_)
        self._ran = np.zeros(len(envs), np.int64)  # stored steps of the episode, or run, so far

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copy the arrays, which may be read-only views of received data."""
        vars(self).update(
            {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}
        )

    def route(self, columns: dict[str, Any], taken: Flags) -> Iterator[Route]:
        """Yield the steps of each shard, of columns ``T e *shape`` and a mask of the steps taken, (T, e)."""
        if not len(taken):
            return
        ends: Flags = np.zeros(taken.shape, np.bool_)
        for name in ENDS if self._has_ends else ():
            ends |= (columns[name] != 0).reshape(taken.shape)
        stored = self._without_resets(taken, ends) if self._skips else taken
        ran = self._ran
        if self._alone:
            ends = (ran + np.cumsum(stored, 0)) % self._run == 0
        over: Flags = stored & ends
        if stored.all() and not over[:-1].any() and (self._home == self._home[0]).all():  # all to one shard
            shard, episodes = int(self._home[0]), np.empty(taken.shape, np.int64)
            episodes[:] = self._episode
            self._ran = np.where(over[-1], 0, ran + len(taken))
            self._leave(over[-1])
            yield Route(shard, (slice(None), slice(None)), np.arange(taken.shape[1]), stored, episodes, ran)
            return
        before: Ids = np.cumsum(over, 0) - over  # how many episodes each environment has ended before this step
        home, episodes = (self._home + before) % self._shards, self._episode + before
        count = ran + np.cumsum(stored, 0)
        self._ran = count[-1] - np.where(over, count, 0).max(0)
        self._leave(over.sum(0))
        for shard in np.unique(home[stored]).tolist():
            shard_mask = stored & (home == shard)
            rows, envs = np.flatnonzero(shard_mask.any(1)), np.flatnonzero(shard_mask.any(0))
            first, last = rows[0], rows[-1] + 1
            gaps = len(rows) < last - first or len(envs) < shard_mask.shape[1]
            at: Any = np.ix_(rows, envs) if gaps else (slice(first, last), slice(None))
            begun: Flags = before[shard_mask.argmax(0)[envs], envs] == 0  # before this call
            yield Route(shard, at, envs, shard_mask[at], episodes[at], np.where(begun, ran[envs], 0))

    def end_episode(self, mask: Flags) -> list[tuple[int, Ids]]:
        """End the episodes of environments, bool (e,); return the shards to inform, each with environments."""
        environments_of_shards = [
            (shard, np.flatnonzero(mask & (self._home == shard))) for shard in np.unique(self._home[mask])
        ]
        self._resets &= ~mask
        self._ran = np.where(mask, 0, self._ran)
        self._leave(mask)
        return [(int(shard), columns) for shard, columns in environments_of_shards]

    def _without_resets(self, taken: Flags, ends: Flags) -> Flags:
        """Return the mask of steps that are taken and not resets, (T, e)."""
        stored = np.empty_like(taken)
        for t, now in enumerate(taken):
            stored[t] = now & ~self._resets
            self._resets = np.where(now, stored[t] & ends[t], self._resets)
        return stored

    def _leave(self, over: npt.NDArray[Any]) -> None:
        """Move each environment on by so many episodes, to as many shards further."""
        self._home = (self._home + over) % self._shards
        self._episode = self._episode + over
