"""A shard: an ordinary `ReplayBuffer`, and what makes calls from elsewhere safe: epoch, numbered adds, totals told."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.notes import ShardNotes, read_notes, write_notes
from replaylab.distributed.replay.shards.open_episodes import OpenEpisodes
from replaylab.distributed.replay.shards.packing import Packed, unpacked
from replaylab.distributed.replay.shards.reinsertion import absorb
from replaylab.distributed.replay.shards.transport import Declaration
from replaylab.distributed.replay.shards.trees import map_tree, spread
from replaylab.distributed.versions import check_version
from replaylab.errors import EmptyBufferError, ReplayError
from replaylab.replay import Fifo, FrameStack, ReplayBuffer

Ids = npt.NDArray[np.int64]


class Tally(NamedTuple):
    """What every answer of a shard tells of it, as of the moment after the call.

    Attributes:
        epoch: Which of the shards of its place it is.
        serial: How many tallies it gave before.
        size: Steps stored.
        total: Σ of what its law is in proportion to; see `LawTotals`, as for the next two.
        least: The least of it that can be drawn.
        rows: Of how many rows.
        added: Steps that writers have stored in it, and in those that it goes on from.
        next_id: The next step's own id.
    """

    epoch: int
    serial: int
    size: int
    total: float
    least: float
    rows: int
    added: int
    next_id: int


class OutOfOrder(Exception):  # noqa: N818 - a writer sends again, nobody else sees it
    """An add came before one that it follows."""


class Shard:
    """One shard. Its calls come one after the other; it waits for nobody.

    Args:
        declaration: What it is made from; `begin` makes it, so that errors come out of a call.
    """

    def __init__(self, declaration: Declaration) -> None:
        self._declared = declaration
        self._epoch = declaration.epoch
        self._begun = False

    def begin(self) -> Tally:
        """Make the buffer: empty, from this place's snapshot, or from a part of other shards' steps."""
        given = self._declared
        check_version(given.version)
        self._started = monotonic()
        self._serial = self._stored = self._drawn = self._fed = self._stale = self._repeated = 0
        self._notes = ShardNotes.empty(given.options["capacity"])
        if given.folder is not None and (Path(given.folder) / "manifest.json").exists():
            self.buffer = ReplayBuffer.load(given.folder, **given.given or {})
            self._notes = read_notes(Path(given.folder), self.buffer.next_id)
            self.buffer.end_episode()  # what came after the snapshot is lost: the next step follows no stored one
        else:
            seed = np.random.SeedSequence((given.seed, given.number, given.epoch))
            self.buffer = ReplayBuffer(**given.options, seed=seed)
            absorb(self.buffer, self._notes, given)
        self._open = OpenEpisodes(self.buffer.num_envs or 1)
        self._stacks = any(isinstance(one, FrameStack) and one.stacked_input for one in self.buffer.transforms)
        self._begun = True
        return self.tally()

    def add(
        self,
        writer: str,
        number: int,
        acknowledged: int,
        envs: Ids,
        steps: Mapping[str, Any],
        where: npt.NDArray[np.bool_],
        final_obs: Any,
        episodes: Ids,
        follows: Ids,
    ) -> tuple[Ids, Tally]:
        """Store T steps of some environments, once, however often they are sent.

        An environment's first step is joined to the one before it only if it is the next one of the same episode, and
        not where another writer has taken the environment over.

        Args:
            writer: Whose steps.
            number: Which of the writer's calls to this place; the one after `acknowledged`, or after the last applied.
            acknowledged: The last of its numbers that was acknowledged, by this shard or by one before it.
            envs: The environments' numbers, int64 (e,).
            steps: Columns ``T e *shape``; where the buffer has no E axis, e is 1.
            where: bool (T, e): what is stored.
            final_obs: As for `ReplayBuffer.extend`.
            episodes: int64 (T, e): the number of each step's episode.
            follows: int64 (e,): how many stored steps of its episode each environment's first one follows.

        Returns:
            The shard's own ids, int64 (T, e), −1 where nothing was stored, as where a stack's frames are lost; and the
            tally.

        Raises:
            OutOfOrder: A call between them has not come, or the shard has not begun.
        """

        def apply() -> Ids:
            goes_on = self._open.goes_on(envs, where, episodes, follows)
            if not goes_on.all():
                self._end_episode(envs[~goes_on])
            # Where frames before an episode's middle were lost, stacks of them cannot be made: its rest is left out.
            cut = ~goes_on & (follows > 0) & self._stacks
            there = where & ~(cut & (episodes == episodes[where.argmax(axis=0), np.arange(len(envs))]))
            ids = self._store(envs, steps, there, final_obs)
            some = there.any(axis=0)
            own = (envs[some], there[:, some], episodes[:, some], np.where(cut, 0, follows)[some])
            first = self._open.note(*own, goes_on[some], ids[:, some])
            if isinstance(self.buffer.retention, Fifo):
                stored = ids[:, some] >= 0
                self._notes.episodes[ids[:, some][stored] % self.buffer.capacity] = first[stored]
            count = int(there.sum())
            self._notes.added += count
            self._stored += count
            return ids

        return self._once(writer, number, acknowledged, where.shape, apply)

    def end_episode(self, writer: str, number: int, acknowledged: int, envs: Ids) -> tuple[Ids, Tally]:
        """Say that environments were reset separately; numbered as `add` is."""

        def apply() -> Ids:
            self._end_episode(envs)
            return np.zeros(0, np.int64)

        return self._once(writer, number, acknowledged, (0,), apply)

    def several(
        self, writer: str, acknowledged: int, heads: Sequence[tuple[int, str]], *parcels: Packed
    ) -> tuple[list[Ids | Exception], Tally]:
        """Make several of a writer's calls, which follow one another, and return the ids, or the error, of each.

        Args:
            writer: Whose.
            acknowledged: As for `add`.
            heads: Of each call, its number and the method's name.
            parcels: Of each call, what follows `acknowledged`.
        """
        answers = list[Ids | Exception]()
        for (number, method), parcel in zip(heads, parcels, strict=True):
            try:
                answers.append(getattr(self, method)(writer, number, acknowledged, *unpacked(parcel))[0])
            except OutOfOrder:
                raise
            except Exception as error:
                answers.append(error)
        return answers, self.tally()

    def draw(self, *counts: int) -> tuple[list[dict[str, Any] | None], Tally]:
        """Return so many rows for each batch, as columns, ``probability`` that of this shard alone.

        None where no row can be drawn, or none is asked for.
        """
        return [self._rows(count) if count else None for count in counts], self.tally()

    def update(self, epoch: int, ids: Ids, values: npt.NDArray[np.float64], td_errors: bool) -> tuple[int, Tally]:
        """Give the sampler feedback for its own ids, if they are of this epoch; return how many were still stored."""
        found = 0
        if epoch == self._epoch:
            given = {"td_error": values} if td_errors else {"priority": values}
            found = self.buffer.update_priorities(ids, **given)
        self._fed += found
        self._stale += len(ids) - found
        return found, self.tally()

    def law(self, ids: Ids) -> tuple[npt.NDArray[np.float64], Tally]:
        """Return the probabilities of its own ids in a draw from this shard."""
        return self.buffer.probabilities(ids), self.tally()

    def tally(self) -> Tally:
        """Return what it tells of itself."""
        totals = self.buffer.law_totals()
        assert totals is not None  # RemoteReplay has refused other laws
        self._serial += 1
        return Tally(self._epoch, self._serial, self.buffer.size, *totals, self._notes.added, self.buffer.next_id)

    def figures(self) -> tuple[dict[str, Any], Tally]:
        """Return what it has counted since it was started, and what memory it holds."""
        counted = {
            "seconds": monotonic() - self._started,
            "stored": self._stored,
            "drawn": self._drawn,
            "feedback": self._fed,
            "stale_feedback": self._stale,
            "repeated_adds": self._repeated,
            "nbytes": self.buffer.nbytes,
        }
        return counted, self.tally()

    def save(self, folder: str) -> Tally:
        """Write the shard's own snapshot; a kill at any moment leaves the old one or the new one, whole."""
        write_notes(Path(folder), self.buffer.next_id, self._notes)  # first: the buffer's manifest says which count
        self.buffer.save(folder)
        return self.tally()

    def _end_episode(self, envs: Ids) -> None:
        over = np.zeros(self.buffer.num_envs or 1, np.bool_)
        over[envs] = True
        self.buffer.end_episode(over[0] if self.buffer.num_envs is None else over)

    def _rows(self, count: int) -> dict[str, Any] | None:
        try:
            columns = dict(self.buffer.sample(count))
        except EmptyBufferError:
            return None
        del columns["weight"]
        self._drawn += count
        return columns

    def _once(
        self, writer: str, number: int, acknowledged: int, shape: tuple[int, ...], apply: Callable[[], Ids]
    ) -> tuple[Ids, Tally]:
        """Apply a writer's call unless it was, and return the ids that it brought then, or raise what it raised."""
        applied = self._applied(writer, number, acknowledged)
        if number > max(applied):
            try:
                applied[number] = apply()
            except Exception as error:
                applied[number] = f"{type(error).__name__}: {error}"
                raise
        else:
            self._repeated += 1
        found = applied.get(number, np.full(shape, -1))
        if isinstance(found, str):
            raise ReplayError(found)
        return found, self.tally()

    def _applied(self, writer: str, number: int, acknowledged: int) -> dict[int, Ids | str]:
        """Return which of a writer's calls were applied, without those it need not be told of; the next may come."""
        if not self._begun:
            raise OutOfOrder
        before = self._notes.applied.get(writer, {0: np.zeros(0, np.int64)})
        last = max(before)
        if number > max(last, acknowledged) + 1:
            raise OutOfOrder
        applied = {one: ids for one, ids in before.items() if one > acknowledged or one == last}
        self._notes.applied[writer] = applied
        return applied

    def _store(self, envs: Ids, steps: Mapping[str, Any], where: npt.NDArray[np.bool_], final_obs: Any) -> Ids:
        """Store columns of some environments; the others' are made up, and left out."""
        count = self.buffer.num_envs
        if count is None:
            steps, final_obs = (map_tree(itemgetter((slice(None), 0)), one) for one in (steps, final_obs))
            return np.asarray(self.buffer.extend(where=where[:, 0], final_obs=final_obs, **steps))[:, None]
        if len(envs) < count:
            steps, final_obs, where = (spread(one, envs, count) for one in (steps, final_obs, where))
        ids = self.buffer.extend(where=where, final_obs=final_obs, **steps)
        return np.asarray(ids[:, envs])
