"""A shard: an ordinary `ReplayBuffer`, with an epoch, counters, and snapshots of itself."""

import logging
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay import snapshots
from replaylab.distributed.replay.blocks import Placed, mapped
from replaylab.distributed.replay.figures import ShardFigures
from replaylab.distributed.replay.ids import Ids, own_ids
from replaylab.distributed.replay.options import EPISODE, RemoteConfig
from replaylab.episode_ends import ENDS
from replaylab.errors import EmptyBufferError, ReplayError, StorageError
from replaylab.machine import machine_memory
from replaylab.replay import Batch, ReplayBuffer
from replaylab.research import AntiPrioritized
from replaylab.trees import flatten, unflatten

log = logging.getLogger("replaylab.distributed")

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_BLOCKS = 32
"""Blocks of readers that a shard keeps mapped."""

RUN = 1024
"""Independent steps that move to another shard together."""


class ActorLost(Exception):  # noqa: N818 - callers handle it; users never see it
    """An actor died before it answered, or has not begun. It will be restarted, unless `for_good`."""

    def __init__(self, reason: str, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


class Tally(NamedTuple):
    """Figures of a shard right after a call, the last part of every answer."""

    epoch: int
    serial: int  # number of tallies before
    size: int
    total: float  # as in `SamplingTotals`, like the next two
    least: float
    rows: int
    next_id: int  # the next step's own id
    first_id: int  # `next_id` when this epoch began: that of its snapshot


@dataclass(frozen=True)
class Declaration:
    """Everything a shard is made from."""

    number: int
    epoch: int  # its first; each restart adds 1
    config: RemoteConfig
    folder: str | None = None  # its snapshot
    saving: snapshots.Saving | None = None  # snapshots in the background


class Unroll(NamedTuple):
    """Steps of a writer's consecutive environments for one shard.

    One whose number does not follow that of the writer's previous unroll begins new episodes: steps may be lost.
    """

    writer: int
    number: int
    first_env: int  # among those of the shard
    where: Flags  # (T, e): the steps that are stored
    begins: Flags  # (e,): environments whose first step begins an episode in any case
    columns: dict[str, Any]  # path → values of the n stored steps, (n, *shape), time step by time step
    td_error: Floats | None = None  # initial TD errors, (n,); None: the largest priority of the shard


class Shard:
    """One shard. Calls are executed one after another.

    Args:
        declaration: What it is made from; `begin` makes it, so that errors are those of a call.
        restarts: How often it was lost before; if it was, it begins at once.
        node: Id of its node; None: the machine's name.
    """

    buffer: ReplayBuffer

    def __init__(self, declaration: Declaration, restarts: int = 0, node: str | None = None) -> None:
        self._declared, self._restarts, self._config = declaration, restarts, declaration.config
        self._number, self._epoch = declaration.number, declaration.epoch + restarts
        self._node = node or platform.node()
        self._serial = self._drawn = self._stale = 0
        self._started, self._saves = time.monotonic(), Lock()
        self._saving_error: str | None = None
        self._shares: list[list[Ids]] = []
        self._blocks, self._like = dict[str, mmap](), dict[str, Any]()  # the block used last is the last one
        if restarts:
            self.begin()
            self.keep_saving()

    def begin(self) -> tuple[str, int, int]:
        """Create the buffer, empty or from a snapshot; return the node, its memory and that of the buffer in bytes.

        Raises:
            StorageError: The folder for snapshots is another one here.
        """
        saving = self._declared.saving
        if saving is not None and not self._restarts and not saving.template.exists():
            raise StorageError(
                f"`snapshot` must name a folder that all nodes share, but node {self._node} does not have the same "
                f"{saving.folder} as the learner; use a shared file system"
            )
        root = int(self._config.root.generate_state(1, np.uint64)[0])
        seed = np.random.SeedSequence((root, self._number, self._epoch))
        buffer = self._loaded() or ReplayBuffer(**self._config.shard_options(self._number), seed=seed)
        self._first_id = buffer.next_id
        envs = buffer.num_envs or 1
        self._last_unroll = np.full((2, envs), -1, np.int64)  # writer and number
        self._episodes = np.full(envs, 2 * buffer.next_id, np.int64)  # above all numbers before
        self.buffer = buffer
        return self._node, machine_memory(), buffer.nbytes

    def keep_saving(self) -> Tally:
        """Save it in the background from now on, if snapshots are declared."""
        if (saving := self._declared.saving) is not None:
            Thread(target=self._save_in_background, args=(saving,), daemon=True).start()
        return self.tally()

    def add(self, unroll: Unroll) -> tuple[Ids, Tally]:
        """Store an unroll and return the shard's own ids of its steps, (n,)."""
        return self._store(unroll), self.tally()

    def draw(
        self, counts: Sequence[int], feedback: Sequence[tuple[Ids, Floats, bool]] = (), block: str | None = None
    ) -> tuple[dict[str, Any] | Placed | None, Tally]:
        """Take feedback, then draw the given number of rows for each of several batches.

        Args:
            counts: Number of rows for each batch.
            feedback: Global ids of this shard, values, and whether these are TD errors; applied in order.
            block: Name of a block for the rows of one batch, if the caller is on this node.

        Returns:
            Columns by path, batch after batch; None if nothing can be drawn. ``probability`` is that within this shard.
        """
        buffer = self.buffer
        for ids, values, td_errors in feedback:
            steps = own_ids(ids, self._epoch, buffer.next_id)
            num_stored = buffer.update_priorities(steps, **{"td_error" if td_errors else "priority": values})
            self._stale += int((ids >= 0).sum()) - num_stored
        try:
            if block is not None and counts[0] and (placed := self._place(block, counts[0])):
                self._drawn += counts[0]
                return placed, self.tally()
            batches = [dict(flatten(dict(buffer.sample(count)))) for count in counts if count]
        except EmptyBufferError:
            return None, self.tally()
        self._drawn += sum(counts)
        names = [path for path in batches[0] if path not in self._config.hidden] if batches else []
        if len(batches) == 1:
            return {path: batches[0][path] for path in names}, self.tally()
        return {path: np.concatenate([batch[path] for batch in batches]) for path in names}, self.tally()

    def probabilities(self, ids: Ids) -> tuple[Floats, Tally]:
        """Return the probabilities of global ids in a draw from this shard, 0 for ids of another epoch."""
        steps = own_ids(ids, self._epoch, self.buffer.next_id)
        return np.where(steps >= 0, self.buffer.probabilities(steps), 0.0), self.tally()

    def tally(self) -> Tally:
        """Return its figures after a call."""
        buffer, totals = self.buffer, self.buffer.sampling_totals()
        assert totals is not None  # RemoteReplay has rejected other samplers
        self._serial += 1
        return Tally(self._epoch, self._serial, buffer.size, *totals, buffer.next_id, self._first_id)

    def figures(self) -> tuple[ShardFigures, Tally]:
        """Return its figures, without lost steps.

        Raises:
            ActorLost: It has not begun.
        """
        if not hasattr(self, "buffer"):
            raise ActorLost("the shard has not begun")
        tally, seconds = self.tally(), max(time.monotonic() - self._started, 1e-9)
        figures = ShardFigures(
            number=self._number,
            epoch=self._epoch,
            live=True,
            losses=self._restarts,
            node=self._node,
            size=tally.size,
            total=tally.total,
            added=tally.next_id - tally.first_id,
            adds_per_second=(tally.next_id - tally.first_id) / seconds,
            drawn=self._drawn,
            draws_per_second=self._drawn / seconds,
            stale_feedback=self._stale,
            nbytes=self.buffer.nbytes,
            snapshot_error=self._saving_error,
        )
        return figures, tally

    def save(self, saving: snapshots.Saving) -> Tally:
        """Write a snapshot; other threads may change the buffer. A kill leaves the previous one or the new one."""
        with self._saves:
            self.buffer.save(saving.folder_of(self._number))
        return self.tally()

    def export(self, part: int, parts: int, target: int, targets: int) -> tuple[dict[str, Any], list[int], Floats]:
        """Return steps that one of several other shards is to take over: columns, lengths of episodes, and priorities.

        Its episodes are divided into `parts` by age, from the oldest.
        """
        self._shares = self._shares or self._dealt_out(targets)
        runs = self._shares[target]
        runs = runs[part * len(runs) // parts : (part + 1) * len(runs) // parts]
        ids = np.concatenate([np.zeros(0, np.int64), *runs])
        return dict(flatten(self.buffer.get(ids))), [len(run) for run in runs], self._priorities(ids)

    def take_over(self, columns: dict[str, Any], lengths: Sequence[int], priorities: Floats) -> None:
        """Store what `export` of another shard returned."""
        ids, ends = [], np.cumsum(lengths).tolist()
        for length, end in zip(lengths, ends, strict=True):
            rows = {path: column[end - length : end] for path, column in columns.items()}
            ids.append(self._store(Unroll(-1, 0, 0, np.ones((length, 1), np.bool_), np.ones(1, np.bool_), rows)))
        self._first_id = self.buffer.next_id
        if ids and self.buffer.sampler.wants_feedback:
            self.buffer.update_priorities(np.concatenate(ids), priority=priorities)

    def _place(self, block: str, rows: int) -> Placed | None:
        """Draw a batch into a block; return None if it is of another node, or too small."""
        like = self._like = self._like or dict(self.buffer.sample(1))
        placed = Placed.like(block, dict(flatten(like)), rows)
        try:
            memory = self._blocks.pop(block) if block in self._blocks else mapped(block, placed.end * 3 // 2)
        except OSError:
            return None
        self._blocks[block] = memory
        if len(self._blocks) > MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        if placed.end > len(memory):
            return None
        columns = placed.arrays(memory)
        self.buffer.sample(rows, out=Batch(unflatten(like, iter(columns.values()))))
        for path in self._config.hidden:
            placed.places.pop(path, None)
        return placed

    def _store(self, unroll: Unroll) -> Ids:
        """Store an unroll and return the ids of its steps, (n,)."""
        buffer, where, columns = self.buffer, unroll.where, unroll.columns
        if self._config.keeps_episodes:
            first, last = unroll.first_env, unroll.first_env + where.shape[1]
            mask = np.zeros((len(where), buffer.num_envs or 1), np.bool_)
            mask[:, first:last] = where
            columns = columns | {EPISODE: self._numbered(unroll, slice(first, last))}
            columns = {path: _spread(column, mask) for path, column in columns.items()}
            ids = np.asarray(buffer.extend(where=mask, **unflatten(buffer.fields, iter(columns.values()))))[mask]
        else:
            ids = np.asarray(buffer.extend(**unflatten(buffer.fields, iter(columns.values()))))
        if unroll.td_error is not None:
            buffer.update_priorities(ids, unroll.td_error)
        return ids

    def _numbered(self, unroll: Unroll, envs: slice) -> Ids:
        """End episodes that an unroll does not continue, and return the episode number of each of its steps, (n,)."""
        where, last = unroll.where, self._last_unroll[:, envs]
        begins = unroll.begins | (last[0] != unroll.writer) | (last[1] != unroll.number - 1)
        last[0], last[1] = unroll.writer, unroll.number
        if begins.any():
            over = np.zeros(len(self._episodes), np.bool_)
            over[envs] = begins
            self.buffer.end_episode(over)
        ended = np.zeros(where.shape, np.bool_)
        flags = [unroll.columns[name].reshape(-1) != 0 for name in ENDS if name in unroll.columns]
        ended[where] = np.any(flags, axis=0) if flags else False
        counts = self._episodes[envs] + begins + np.cumsum(ended, axis=0)
        numbers = (counts - ended) * len(self._episodes) + np.arange(envs.start, envs.stop)
        self._episodes[envs] = counts[-1]
        return np.asarray(numbers[where])

    def _dealt_out(self, targets: int) -> list[list[Ids]]:
        """Return the ids that each of several shards is to take over: complete episodes or short runs, oldest first."""
        (ids,) = self.buffer.stored_ids()
        if not self._config.keeps_episodes:
            shares = [ids[(target + self._number) % targets :: targets] for target in range(targets)]
            return [np.array_split(share, len(share) // RUN + 1) for share in shares]
        numbers = self.buffer.columns[EPISODE][ids % self.buffer.capacity]
        order = np.argsort(numbers, kind="stable")
        runs = np.split(ids[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        loads, taken = [0] * targets, list[list[Ids]]([[] for _ in range(targets)])
        for run in sorted((run for run in runs if len(run)), key=lambda run: int(run[0])):
            target = min(range(targets), key=lambda t: (loads[t], (t - self._number) % targets))
            loads[target] += len(run)
            taken[target].append(run)
        return taken

    def _priorities(self, ids: Ids) -> Floats:
        """Return p of stored steps, of the sampling distribution P(i) = p^α / Σ p^α."""
        masses = self.buffer.probabilities(ids) * self.tally().total
        alpha = getattr(self.buffer.sampler, "alpha", 1.0)
        exponent = -alpha if isinstance(self.buffer.sampler, AntiPrioritized) else alpha
        positive = (masses > 0.0) & (exponent != 0.0)
        return np.where(positive, np.power(masses, 1.0 / (exponent or 1.0), where=positive, out=masses.copy()), masses)

    def _loaded(self) -> ReplayBuffer | None:
        """Return the buffer of the newest snapshot, whose open episodes end; None without one.

        A restarted shard whose snapshot cannot be read starts empty.
        """
        declared, options = self._declared, self._config.shard_options(self._number)
        saved = declared.saving.folder_of(self._number) if declared.saving and self._restarts else None
        folders = [folder for folder in (saved, declared.folder) if folder and Path(folder, "manifest.json").exists()]
        if not folders:
            return None
        parts = {name: options[name] for name in ("sampler", "transforms")}
        try:
            return ReplayBuffer.load(folders[0], continue_episodes=False, **parts)
        except (ReplayError, OSError) as error:
            if not self._restarts:
                raise
            log.warning("shard %d starts empty, since its snapshot cannot be read: %s", self._number, error)
            return None

    def _save_in_background(self, saving: snapshots.Saving) -> None:
        time.sleep(saving.period * (self._number + 1) / saving.about["shards"])  # not all shards at once
        while True:
            try:
                self.save(saving)
                snapshots.seal_if_complete(saving)
                self._saving_error = None
            except (ReplayError, OSError) as error:
                self._saving_error = str(error)
                log.warning("shard %d could not be saved: %s", self._number, error)
            time.sleep(saving.period)


def _spread(column: npt.NDArray[Any], mask: Flags) -> npt.NDArray[Any]:
    """Return values (n, *shape) as (T, E, *shape), with zeros where the mask (T, E) is False."""
    if len(column) == mask.size:
        return column.reshape(*mask.shape, *column.shape[1:])
    wide = np.zeros((*mask.shape, *column.shape[1:]), column.dtype)
    wide[mask] = column
    return wide
