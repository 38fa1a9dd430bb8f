"""A replay in shards: one protocol, one exact sampling distribution, several processes or machines."""

import math
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListOf
from contextlib import ExitStack, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, checked, instance, optional, whole
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import snapshots
from replaylab.distributed.replay.figures import RemoteReplayStats, ShardFigures
from replaylab.distributed.replay.ids import EPOCHS_PER_REPLAY, MOST_EPOCHS, global_ids, shard_of
from replaylab.distributed.replay.options import DECLARED, RemoteConfig, RemoteOptions
from replaylab.distributed.replay.reader import POLL, ROWS, RemoteReader
from replaylab.distributed.replay.shard import ActorLost, Declaration
from replaylab.distributed.replay.writer import RemoteWriter, checked_envs
from replaylab.errors import ConfigError, OverSizeError, StorageError
from replaylab.replay import Fifo, ReplayBuffer, Retention, Sampler, Seed, Transform, Uniform

if TYPE_CHECKING:
    from replaylab.distributed.replay.calls import RayClient

ROWS_AT_ONCE = 4096
"""Steps that move to another shard in one call."""

SECONDS_TO_SAVE = 60.0
"""Seconds that `save` waits for a shard that is being restarted."""


class RemoteReplay(RemoteReader):
    """A replay in shards, each a `ReplayBuffer` in its own process, from which batches follow one exact distribution.

    It is a `Replay`: shapes, axes and errors are those of `ReplayBuffer`. The shards are Ray actors of the cluster that
    this process is connected to, or of the one at `options.address`, or of a Ray on this machine that `close` ends.
    Environment workers store steps through a `writer` each, in any process. The process that creates the replay
    learns, or several learners do, with a `reader` each.

    P(i) is as if all steps were stored in one buffer. The shards' totals may change while a batch is on its way:
    ``probability`` and ``weight`` are those of the draw that really happened, so that nothing is biased. New steps get
    the largest priority of their shard. Ids contain the epoch of their shard: feedback for a shard that was lost, or
    for what it held before, changes nothing and is counted.

    If transforms look at neighbors of a step, or ``next_obs`` is derived, environment i of E stores in shard ⌊i·S/E⌋:
    S must be at most E, and workers need contiguous environments. Otherwise unrolls go to the shards in turn.

    Samplers must draw in proportion to a number of each step: `Uniform`, `Prioritized`, `ReLo`, `LAP`; of
    `replaylab.research`, `AntiPrioritized` and `Permuted` (within each shard).

    Args:
        capacity: C, the steps kept in all shards together; each keeps C/S.
        fields: As for `ReplayBuffer`, like all that are not listed here.
        num_envs: E, the environments of all writers together.
        sampler: One of those above.
        retention: What each shard keeps. A `Reservoir` is uniform over all shards if each gets equally many steps.
        min_size: Steps that must be stored in all shards together before a batch is drawn.
        seed: Seed of all random streams. What is drawn still depends on when calls arrive.
        shards: S.
        options: Placement, snapshots, and the address of the cluster.

    Attributes:
        run: Name of this replay in the cluster; the names of its actors begin with it.

    It also has ``capacity``, ``shards``, ``fields``, ``given_fields``, ``num_envs``, ``autoreset`` and ``sampler``, as
    they were declared.

    Raises:
        ConfigError, FieldError: An argument is out of its range, or the sampler's distribution cannot be joined.
        OverSizeError: The shards on a node need more memory together than it has.
        StorageError: The folder for snapshots cannot be written to.
        MissingExtraError: Ray is not installed.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        num_envs: int | None = None,
        sampler: Sampler = Uniform(),  # noqa: B008 - frozen
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        retention: Retention = Fifo(),  # noqa: B008
        autoreset: Any = None,
        min_size: int = 1,
        episodes: Literal["flags", "manual"] = "flags",
        seed: Seed = None,
        shards: int = 2,
        options: RemoteOptions = RemoteOptions(),  # noqa: B008
    ) -> None:
        declared: dict[str, Any] = {"fields": fields, "num_envs": num_envs, "sampler": sampler, "next_obs": next_obs}
        declared |= {"transforms": transforms, "retention": retention, "autoreset": autoreset, "episodes": episodes}
        self._open(RemoteConfig(capacity, declared, min_size, shards, seed), options, None)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        sampler: Sampler | None = None,
        transforms: ListOf[Transform] | None = None,
        shards: int | None = None,
        seed: Seed = None,
        options: RemoteOptions = RemoteOptions(),  # noqa: B008
    ) -> Self:
        """Return what `save`, or snapshots in the background, wrote.

        Open episodes end, since writers begin new ones. With the same number of shards each continues from its own
        snapshot, under a new epoch. With another number the steps are stored again: each snapshot is read once, by a
        temporary shard, episodes stay complete, and priorities and ages stay about the same; steps that do not fit into
        their shard are dropped. Ids from before count as those of lost shards.

        Args:
            path: The folder.
            sampler: As for `ReplayBuffer.load`.
            transforms: Likewise.
            shards: S; None: as many as there were.
            seed: Seed of random streams that are not restored.
            options: As for the constructor.

        Raises:
            SnapshotError: There is no complete snapshot.
            StorageError: It cannot be read.
            ConfigError: As for the constructor.
        """
        saved = snapshots.read(path)
        template = ReplayBuffer.load(saved.template, sampler=sampler, transforms=transforms, continue_episodes=False)
        declared = {name: getattr(template._parts.config, name) for name in DECLARED}
        about, loaded = saved.about, cls.__new__(cls)
        shards = about["shards"] if shards is None else shards
        loaded._open(RemoteConfig(about["capacity"], declared, about["min_size"], shards, seed), options, saved)
        return loaded

    @property
    def size(self) -> int:
        """Steps stored now, in all shards."""
        self.refresh()
        return sum(tally.size for tally in self._tallies())

    @property
    def next_id(self) -> int:
        """A number above every id assigned so far."""
        self.refresh()
        known = [(slot.number, slot.tally) for slot in self._slots if slot.tally]
        ids = [global_ids(tally.epoch, number, np.array([tally.next_id])) for number, tally in known]
        return int(max(ids, default=np.zeros(1))[0])

    def __len__(self) -> int:
        """Return how many steps are stored now, in all shards."""
        return self.size

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError("a RemoteReplay stays in its process; send its reader() or its writer() to others")

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteReplay(capacity={self.capacity:,}, shards={self.shards}, sampler={self.sampler})"

    def writer(self, envs: ListOf[int] | None = None, *, window: int = 4, unroll: int = 128) -> RemoteWriter:
        """Return a writer for an environment worker; it can be sent to other processes.

        Args:
            envs: The worker's environments, best contiguous; None: all. Two writers must not share one.
            window: Unrolls that may be unacknowledged before the next one waits.
            unroll: Time steps that `add` collects before it sends them, at most.

        Raises:
            ConfigError: There are no such environments.
        """
        picked = checked_envs(envs, self._config.envs)
        window = checked("window", window, whole(most=1_000))
        unroll = checked("unroll", unroll, whole(most=100_000))
        return RemoteWriter(self._clients, self._config, picked, window, unroll)

    def reader(self, rank: int = 0, world_size: int = 1) -> RemoteReader:
        """Return a reader for one of several learners; it can be sent to other processes.

        Each draws independently from the same distribution.

        Args:
            rank: The learner's number, from 0.
            world_size: Number of learners.

        Raises:
            ConfigError: The rank is not below the number of learners.
        """
        world_size = checked("world_size", world_size, whole())
        return RemoteReader(self._clients, self._config, checked("rank", rank, whole(0, world_size - 1)), world_size)

    def add(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store one time step of every environment, wait until it is acknowledged, and return the ids.

        Where several processes step environments, each has a `writer`, which does not wait. The id of a step that was
        lost with its shard is −1.

        Raises:
            FieldError, ShapeError, DtypeError: As for `ReplayBuffer.add`.
        """
        with self._adding:
            self._own_writer.collect(where=where, final_obs=final_obs, **steps)
            (ids,) = self._own_writer.send()
            self._own_writer.flush()
        return int(ids[0]) if self.num_envs is None else ids

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store T time steps at once, as T calls of `add` would."""
        with self._adding:
            parts = self._own_writer.extend(where=where, final_obs=final_obs, **steps)
            self._own_writer.flush()
        ids = np.concatenate(parts)
        return ids[:, 0] if self.num_envs is None else ids

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately; see `ReplayBuffer.end_episode`."""
        with self._adding:
            self._own_writer.end_episode(where)

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 ``...``; for those of lost shards and of dropped steps it is 0.
            batch_size: Not needed: no distribution here depends on it.
            progress: Likewise.

        Raises:
            DtypeError: The ids are not whole numbers.
        """
        _check_unneeded(batch_size, progress)
        flat = self._flat(ids)
        self.refresh()  # with pending feedback
        answers = self._ask("probabilities", flat)
        line, chances = sum(tally.total for _, tally in answers.values()), np.zeros(flat.shape)
        for number, (within_shard, tally) in answers.items():
            chances += np.where(shard_of(flat) == number, within_shard, 0.0) * (tally.total / line if line else 0.0)
        return chances.reshape(np.shape(ids))

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> RemoteReplayStats:
        """Return figures of all shards, and of each: what is stored, drawn and lost, and how fast.

        Args:
            batch_size: Not needed: no figure here depends on it.
            progress: Likewise.
        """
        _check_unneeded(batch_size, progress)
        self.refresh()
        answers, shards = self._ask("figures"), []
        for slot in self._slots:
            epoch = slot.tally.epoch if slot.tally else self._about["epoch"]
            lost = ShardFigures(slot.number, epoch, live=False, losses=epoch - self._about["epoch"] + 1)
            figures, _ = answers.get(slot.number, (lost, None))
            shards.append(replace(figures, lost_steps=slot.lost_steps))
        added = sum(slot.tally.next_id - slot.first_id + slot.lost_steps for slot in self._slots if slot.tally)
        samples = sum(shard.drawn for shard in shards)
        return RemoteReplayStats(
            size=sum(shard.size for shard in shards),
            capacity=self.capacity,
            added=added,
            samples=samples,
            samples_per_insert=samples / added if added else math.nan,
            total_priority=sum(shard.total for shard in shards),
            stale_updates=self._stale + sum(shard.stale_feedback for shard in shards),
            priority_age=self.priority_age,
            losses=sum(shard.losses for shard in shards),
            lost_steps=sum(slot.lost_steps for slot in self._slots),
            shards=tuple(shards),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write each shard's own snapshot into a folder, and then what they are; see `load`.

        Writers may continue. On several machines it is a folder that all of them see.

        Raises:
            StorageError: It cannot be written to, or a shard was lost and not restarted in time.
            SnapshotError: The options cannot be written down.
        """
        saving = snapshots.saving_in(path, self._about)
        self.refresh()
        self._template.save(saving.template)
        until = time.monotonic() + SECONDS_TO_SAVE
        while (answers := self._ask("save", saving)).keys() != set(range(self.shards)):
            if time.monotonic() > until:
                raise StorageError(
                    f"a shard was lost while it was to be saved to {saving.folder}, and was not restarted within "
                    f"{SECONDS_TO_SAVE:.0f} seconds; {len(answers)} of {self.shards} were saved; save again later"
                )
            time.sleep(POLL)
        snapshots.seal(saving)

    def close(self) -> None:
        """End the shards, and its own Ray; what they hold is gone, except for snapshots."""
        self._opened.close()
        with self._lock:  # not before: a draw in another thread may hold it, and wait for steps
            for slot in self._slots:
                slot.lost = slot.for_good = True
            self._group = self._ahead = None

    def _open(self, config: RemoteConfig, options: RemoteOptions, saved: snapshots.Saving | None) -> None:
        options = checked("options", options, instance(RemoteOptions, "RemoteOptions(...)"))
        self.run, self._adding, like = uuid4().hex, Lock(), config.template
        self.capacity, self.shards, self.num_envs, self.replicas = config.capacity, config.shards, like.num_envs, None
        self.fields, self.given_fields, self.autoreset = like.fields, like.given_fields, like.autoreset
        self.sampler: Sampler = like.sampler
        epoch = 0 if saved is None else saved.about["epoch"] + EPOCHS_PER_REPLAY
        if epoch + EPOCHS_PER_REPLAY > MOST_EPOCHS:
            raise StorageError(f"the snapshot is of epoch {epoch - 1}, and no epochs are left for ids; start empty")
        self._about = {name: getattr(config, name) for name in ("capacity", "min_size", "shards")}
        self._about |= {"epoch": epoch, "run": f"run-{self.run}"}
        snapshot, saving = options.snapshot, None
        if snapshot is not None:
            saving = snapshots.Saving(Path(snapshot.folder).resolve(), self._about, snapshot.period)
        with ExitStack() as opened:
            start = connect(options, opened)
            if saving is not None:  # all nodes must see it
                config.template.save(saving.template)
            same = saved if saved is not None and saved.about["shards"] == config.shards else None
            clients = started(start, self.run, declarations(config, epoch, same, saving), opened)
            RemoteReader.__init__(self, clients, config)
            if saved is not None:
                with suppress(StorageError):  # the folder may be read-only
                    snapshots.claim(saved, epoch)
                if same is None:
                    self._take_over(start, saved)
            if saving is not None:
                self._ask("keep_saving")  # not before: a new snapshot replaces the one that is being loaded
            self._own_writer = RemoteWriter(clients, config, np.arange(config.envs), 64, ROWS_AT_ONCE)
            self._opened = opened.pop_all()

    def _take_over(self, start: "Start", saved: snapshots.Saving) -> None:
        """Let temporary shards read a snapshot of another number of shards, and move their steps to the new ones."""
        before = replace(self._config, shards=saved.about["shards"])
        with ExitStack() as opened:
            clients = started(start, f"{self.run}-old", declarations(before, 0, saved), opened)
            parts = 1 + max(tally.size for tally in results(clients, "tally")) // (ROWS_AT_ONCE * self.shards)
            for part in range(parts):
                for number, new in enumerate(self._clients):
                    for steps in results(clients, "export", part, parts, number, self.shards):
                        results([new], "take_over", *steps)


def declarations(
    config: RemoteConfig, epoch: int, saved: snapshots.Saving | None, saving: snapshots.Saving | None = None
) -> list[Declaration]:
    """Return the declaration of each shard, which begins from its own snapshot if there is one."""
    folders = [None if saved is None else saved.folder_of(number) for number in range(config.shards)]
    return [Declaration(number, epoch, config, folder, saving) for number, folder in enumerate(folders)]


Start = Callable[[str, ListOf[Declaration]], "ListOf[RayClient]"]
"""A function that starts the shards of a run."""


def connect(options: RemoteOptions, opened: ExitStack) -> Start:
    """Connect to Ray, until `opened` is closed, and return a function that starts shards."""
    session = RaySession(options.address)
    opened.callback(session.close)
    session.open()
    from replaylab.distributed.replay.calls import start_shards  # imports Ray

    return lambda run, declarations: start_shards(run, declarations, options.placement)


def started(start: Start, run: str, declarations: ListOf[Declaration], opened: ExitStack) -> "ListOf[RayClient]":
    """Start shards, which end with `opened`, and wait until they have begun.

    Raises:
        OverSizeError: Those on a node need more memory than it has.
        StorageError: A shard ended, or its node does not see the folder for snapshots.
    """
    clients = start(run, declarations)
    for client in clients:
        opened.callback(client.kill)
    begun = results(clients, "begin")
    for node, memory, _ in begun:
        needed = [nbytes for place, _, nbytes in begun if place == node]
        if sum(needed) > memory:
            raise OverSizeError(
                f"{len(needed)} shards on node {node} need {sum(needed) / 2**20:,.1f} MiB together, but it has "
                f'{memory / 2**20:,.1f} MiB; use a smaller capacity, store less in a step (next_obs="derived", '
                'compressed or smaller fields), or add nodes and pass placement="spread"'
            )
    return clients


def results(clients: "ListOf[RayClient]", method: str, *arguments: Any) -> list[Any]:
    """Call a method of shards, and return the results.

    Raises:
        StorageError: A shard ended.
    """
    try:
        return [pending.result() for pending in [client.call(method, *arguments) for client in clients]]
    except ActorLost as error:
        raise StorageError(f"a shard ended before all had begun: {str(error).partition(chr(10))[0]}") from error


def _check_unneeded(batch_size: int | None, progress: float | None) -> None:
    """Check arguments of any `Replay` on which no answer here depends."""
    checked("batch_size", batch_size, optional(ROWS))
    checked("progress", progress, optional(FRACTION))
