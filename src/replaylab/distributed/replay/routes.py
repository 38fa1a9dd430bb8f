"""Which shard a step goes to: that of its episode, and the next shard for the environment's next episode."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.replay import ReplayBuffer

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ENDS = ("terminated", "truncated")


class Route(NamedTuple):
    """What goes to one shard.

    Attributes:
        shard: Which.
        at: Of which of the T time steps and of which of the writer's environments; slices where these follow each
            other, so that nothing need be copied.
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
    if number and place in the episode say so, whatever became of copies.

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
        self._told_ends = all(name in template.fields for name in ENDS)
        self._alone = not self._told_ends and not template.transforms and template.next_obs == "stored"
        self._home = envs % shards
        self._episode = np.random.default_rng().integers(2**50, size=len(envs))  # no other writer has these numbers
        self._resets = np.zeros(len(envs), np.bool_)
        self._ran = np.zeros(len(envs), np.int64)  # stored steps of the episode, or run, so far

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take arrays over that may be views of what was received, which cannot be written to."""
        vars(self).update({name: np.copy(one) if isinstance(one, np.ndarray) else one for name, one in state.items()})

    def route(self, columns: dict[str, Any], given: Flags) -> Iterator[Route]:
        """Yield what goes where, of columns ``T e *shape`` and of which of their steps are given, (T, e)."""
        if not len(given):
            return
        ends: Flags = np.zeros(given.shape, np.bool_)
        for name in ENDS if self._told_ends else ():
            ends |= (columns[name] != 0).reshape(given.shape)
        stored = self._without_resets(given, ends) if self._skips else given
        ran = self._ran
        if self._alone:
            ends = (ran + np.cumsum(stored, 0)) % self._run == 0
        over: Flags = stored & ends
        if stored.all() and not over[:-1].any() and (self._home == self._home[0]).all():  # all to one shard
            shard, episodes = int(self._home[0]), np.empty(given.shape, np.int64)
            episodes[:] = self._episode
            self._ran = np.where(over[-1], 0, ran + len(given))
            self._leave(over[-1])
            yield Route(shard, (slice(None), slice(None)), np.arange(given.shape[1]), stored, episodes, ran)
            return
        before: Ids = np.cumsum(over, 0) - over  # how many episodes each environment has ended before this step
        home, episodes = (self._home + before) % self._shards, self._episode + before
        count = ran + np.cumsum(stored, 0)
        self._ran = count[-1] - np.where(over, count, 0).max(0)
        self._leave(over.sum(0))
        for shard in np.unique(home[stored]).tolist():
            mine = stored & (home == shard)
            rows, envs = np.flatnonzero(mine.any(1)), np.flatnonzero(mine.any(0))
            first, last = rows[0], rows[-1] + 1
            gaps = len(rows) < last - first or len(envs) < mine.shape[1]
            at: Any = np.ix_(rows, envs) if gaps else (slice(first, last), slice(None))
            begun: Flags = before[mine.argmax(0)[envs], envs] == 0  # before this call
            yield Route(shard, at, envs, mine[at], episodes[at], np.where(begun, ran[envs], 0))

    def end_episode(self, asked: Flags) -> list[tuple[int, Ids]]:
        """End the episodes of these environments, bool (e,); return which shards are to know it of which of them."""
        told = [(shard, np.flatnonzero(asked & (self._home == shard))) for shard in np.unique(self._home[asked])]
        self._resets &= ~asked
        self._ran = np.where(asked, 0, self._ran)
        self._leave(asked)
        return [(int(shard), columns) for shard, columns in told]

    def _without_resets(self, given: Flags, ends: Flags) -> Flags:
        """Return which steps are given and no resets, (T, e)."""
        stored = np.empty_like(given)
        for t, now in enumerate(given):
            stored[t] = now & ~self._resets
            self._resets = np.where(now, stored[t] & ends[t], self._resets)
        return stored

    def _leave(self, over: npt.NDArray[Any]) -> None:
        """Move each environment on by so many episodes, to as many shards further."""
        self._home = (self._home + over) % self._shards
        self._episode = self._episode + over
