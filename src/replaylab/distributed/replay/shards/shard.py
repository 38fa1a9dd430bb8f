"""A shard: an ordinary `ReplayBuffer`, and what makes calls from elsewhere safe: epoch, numbered adds, totals told."""

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.notes import ShardNotes, read_notes, write_notes
from replaylab.distributed.replay.shards.open_episodes import OpenEpisodes
from replaylab.distributed.replay.shards.packing import Packed, unpacked
from replaylab.distributed.replay.shards.reinsertion import absorb, spread
from replaylab.distributed.replay.shards.transport import Declaration
from replaylab.distributed.versions import check_version
from replaylab.errors import EmptyBufferError, ReplayError, StorageError
from replaylab.files.atomic import writing
from replaylab.machine import machine_memory
from replaylab.replay import Fifo, FrameStack, ReplayBuffer
from replaylab.trees import take

Ids = npt.NDArray[np.int64]


class Tally(NamedTuple):
    """What every answer of a shard tells of it, as of the moment after the call.

    Attributes:
        epoch: Which of the shards of its place it is.
        serial: How many tallies it gave before.
        size: Steps stored.
        total: As in `SamplingTotals`, like the next two.
        least: The least of it that can be drawn.
        rows: Of how many rows.
        added: Steps that writers have stored in it, and in those that it continues from.
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


class Survey(NamedTuple):
    """What a shard needs and its node has, before it begins.

    Attributes:
        node: The node's id or name.
        memory: Bytes of memory that the node has.
        needed: Bytes of memory that the shard's buffer takes once it is full.
    """

    node: str
    memory: int
    needed: int


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

    def node(self) -> str:
        """Return the id or name of the node that it is on."""
        return platform.node()

    def survey(self, probe: str | None) -> Survey:
        """Return what the buffer will need and the node has; nothing is kept.

        Args:
            probe: A file in the folder for snapshots; None: there is none, or it was checked before.

        Raises:
            StorageError: The folder is not visible here, or cannot be written to.
            OverSizeError: The buffer alone needs more memory than the node has.
        """
        check_version(self._declared.version)
        if probe is not None:
            folder = Path(probe).parent
            if not Path(probe).exists():
                raise StorageError(
                    f"`snapshot` must name a folder that all nodes share, but node {self.node()} does not have the "
                    f"same {folder} as the learner; use a shared file system"
                )
            with writing(folder), NamedTemporaryFile(dir=folder):
                pass
        return Survey(self.node(), machine_memory(), ReplayBuffer(**self._declared.options).nbytes)

    def begin(self) -> Tally:
        """Create the buffer: empty, from this slot's snapshot, or from a part of other shards' steps."""
        declared = self._declared
        self._started = monotonic()
        self._serial = self._stored = self._drawn = self._fed = self._stale = self._repeated = 0
        self._notes = ShardNotes(np.zeros(declared.options["capacity"], np.int64))
        if declared.folder is not None and (Path(declared.folder) / "manifest.json").exists():
            # What came after the snapshot is lost: the next step follows no stored one.
            self.buffer = ReplayBuffer.load(declared.folder, continue_episodes=False, **declared.load_options or {})
            self._notes = read_notes(Path(declared.folder), self.buffer.next_id)
        else:
            seed = np.random.SeedSequence((declared.seed, declared.number, declared.epoch))
            self.buffer = ReplayBuffer(**declared.options, seed=seed)
            absorb(self.buffer, self._notes, declared)
        self._open = OpenEpisodes(self.buffer.num_envs or 1)
        self._stacks = any(isinstance(part, FrameStack) and part.stacked_input for part in self.buffer.transforms)
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
            number: Which of the writer's calls to this slot; the one after `acknowledged`, or after the last applied.
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
            accepted = where & ~(cut & (episodes == episodes[where.argmax(axis=0), np.arange(len(envs))]))
            ids = self._store(envs, steps, accepted, final_obs)
            some = accepted.any(axis=0)
            steps_taken = (envs[some], accepted[:, some], episodes[:, some], np.where(cut, 0, follows)[some])
            first = self._open.note(*steps_taken, goes_on[some], ids[:, some])
            if isinstance(self.buffer.retention, Fifo):
                stored = ids[:, some] >= 0
                self._notes.episodes[ids[:, some][stored] % self.buffer.capacity] = first[stored]
            count = int(accepted.sum())
            self._notes.added += count
            self._stored += count
            return ids

        return self._once(writer, number, acknowledged, where.shape, apply)

    def end_episode(self, writer: str, number: int, acknowledged: int, envs: Ids) -> tuple[Ids, Tally]:
        """Mark that environments were reset separately; numbered like `add`."""

        def apply() -> Ids:
            self._end_episode(envs)
            return np.zeros(0, np.int64)

        return self._once(writer, number, acknowledged, (0,), apply)

    def several(
        self, writer: str, acknowledged: int, heads: Sequence[tuple[int, str]], *parcels: Packed
    ) -> tuple[list[Ids | Exception], Tally]:
        """Apply several successive calls of a writer, and return the ids, or the error, of each.

        Args:
            writer: Id of the writer.
            acknowledged: As for `add`.
            heads: Number and method name of each call.
            parcels: Packed arguments of each call that follow `acknowledged`.
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
        """Return `counts` rows for each batch, as columns; ``probability`` is that within this shard.

        None for a batch of which no row is requested or can be drawn.
        """
        return [self._rows(count) if count else None for count in counts], self.tally()

    def update(self, epoch: int, ids: Ids, values: npt.NDArray[np.float64], td_errors: bool) -> tuple[int, Tally]:
        """Pass feedback for ids of this epoch to the sampler; return how many were still stored."""
        num_stored = 0
        if epoch == self._epoch:
            feedback = {"td_error": values} if td_errors else {"priority": values}
            num_stored = self.buffer.update_priorities(ids, **feedback)
        self._fed += num_stored
        self._stale += len(ids) - num_stored
        return num_stored, self.tally()

    def distribution(self, ids: Ids) -> tuple[npt.NDArray[np.float64], Tally]:
        """Return the probabilities of its own ids in a draw from this shard."""
        return self.buffer.probabilities(ids), self.tally()

    def tally(self) -> Tally:
        """Return what it tells of itself."""
        totals = self.buffer.sampling_totals()
        assert totals is not None  # RemoteReplay has refused other sampling distributions
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
        ids = applied.get(number, np.full(shape, -1))
        if isinstance(ids, str):
            raise ReplayError(ids)
        return ids, self.tally()

    def _applied(self, writer: str, number: int, acknowledged: int) -> dict[int, Ids | str]:
        """Return the applied calls of a writer, without acknowledged ones, after checking that none is missing."""
        if not self._begun:
            raise OutOfOrder
        before = self._notes.applied.get(writer, {0: np.zeros(0, np.int64)})
        last = max(before)
        if number > max(last, acknowledged) + 1:
            raise OutOfOrder
        applied = {call: ids for call, ids in before.items() if call > acknowledged or call == last}
        self._notes.applied[writer] = applied
        return applied

    def _store(self, envs: Ids, steps: Mapping[str, Any], where: npt.NDArray[np.bool_], final_obs: Any) -> Ids:
        """Store columns of some environments; zeros are passed for the others, and masked out."""
        count = self.buffer.num_envs
        if count is None:
            steps, final_obs = (take(tree, np.s_[:, 0]) for tree in (steps, final_obs))
            return np.asarray(self.buffer.extend(where=where[:, 0], final_obs=final_obs, **steps))[:, None]
        if len(envs) < count:
            steps, final_obs, where = (spread(tree, envs, count) for tree in (steps, final_obs, where))
        ids = self.buffer.extend(where=where, final_obs=final_obs, **steps)
        return np.asarray(ids[:, envs])
