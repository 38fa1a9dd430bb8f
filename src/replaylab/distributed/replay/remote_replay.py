"""A replay in shards: one protocol, one exact sampling distribution, several processes or machines."""

import math
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from contextlib import ExitStack
from os import PathLike
from threading import Condition
from typing import Any, Literal, Self
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, LARGEST_AXIS, checked, optional, shown, whole
from replaylab.distributed.replay import snapshots as saved
from replaylab.distributed.replay.draws import Draws
from replaylab.distributed.replay.feedback import Feedback, are_ids, values_of
from replaylab.distributed.replay.figures import RemoteReplayStats, shard_figures
from replaylab.distributed.replay.options import (
    DECLARED,
    Declared,
    RemoteConfig,
    RemoteOptions,
    environments,
    inner_sampler,
)
from replaylab.distributed.replay.shards import ShardPool, global_ids, id_parts
from replaylab.distributed.replay.snapshots import Restored, Saver
from replaylab.distributed.replay.supervisor import PERIOD, Supervisor
from replaylab.distributed.replay.writer import RemoteWriter
from replaylab.errors import ConfigError
from replaylab.files.folder import folder_of
from replaylab.replay import Batch, Fifo, ReplayBuffer, Retention, Sampler, Schedules, Seed, Transform, Uniform

_ROWS = whole(most=LARGEST_AXIS)
"""The rule of batch sizes."""


class RemoteReplay(Declared):
    """A replay in shards, each a `ReplayBuffer` in its own process, drawn from by one exact distribution.

    It is a `Replay`: shapes, axes and errors are those of `ReplayBuffer`. The shards are Ray actors of the cluster that
    this process is connected to, or of the one at `options.address`, or of a Ray on this machine that `close` ends.
    Environment workers store steps through a `writer` each, from wherever they are; one process, which made it,
    learns. An episode lives in one shard, so every transform is exact.

    P(i) is as if all steps lay in one buffer; where the shards' totals have moved while a batch was on its way,
    ``probability`` and ``weight`` are those of the draw as it was really made, so that nothing is biased. Rows of a
    batch come shard by shard. A new step gets the largest priority of its shard. Ids hold the epoch of their shard:
    feedback for a shard that is lost, or for what it held before, changes nothing and is counted.

    Samplers: those whose distribution is in proportion to a number of each step: `Uniform`, `Prioritized`, `ReLo`,
    `LAP`; of `replaylab.research`, `AntiPrioritized` and `Permuted` (within each shard).

    Args:
        capacity: C, how many steps are kept in all shards together; each keeps C/S.
        fields: As for `ReplayBuffer`, as all that follow.
        num_envs: E, the environments of all writers together.
        replicas: None; there is no replica axis.
        sampler: What to draw, one of those above.
        transforms: What a drawn step becomes.
        next_obs: "stored" or "derived".
        retention: What each shard keeps, by itself: over all of them a `Reservoir` is uniform as far as each is given
            equally many steps.
        storage: None; the rows lie in the shards' memory.
        autoreset: The environments' autoreset mode.
        count_replays: Whether to count how often each step is drawn.
        min_size: Steps that must be stored in all shards together before a batch is drawn.
        episodes: What ends an episode.
        seed: Of all random streams. What is drawn still depends on when calls arrive.
        shards: S.
        options: Placement, batches requested in advance, limits, snapshots, and the address of the cluster.

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
        replicas: None = None,
        sampler: Sampler = Uniform(),  # noqa: B008 - frozen
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        retention: Retention = Fifo(),  # noqa: B008
        storage: None = None,
        autoreset: Any = None,
        count_replays: bool = False,
        min_size: int = 1,
        episodes: Literal["flags", "manual"] = "flags",
        seed: Seed = None,
        shards: int = 2,
        options: RemoteOptions = RemoteOptions(),  # noqa: B008
    ) -> None:
        if replicas is not None or storage is not None:
            raise ConfigError(
                f"a RemoteReplay has neither replicas nor a storage, but got (replicas={shown(replicas)}, "
                f"storage={shown(storage)}); leave them out"
            )
        declared: dict[str, Any] = {"fields": fields, "num_envs": num_envs, "sampler": sampler, "next_obs": next_obs}
        declared |= {"transforms": transforms, "retention": retention, "autoreset": autoreset, "episodes": episodes}
        self._open(RemoteConfig(capacity, declared, count_replays, min_size, shards, seed, options), None)

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
        """Return what `save`, or a snapshot in the background, wrote.

        Open episodes end as with ``continue_episodes=False`` of `ReplayBuffer.load`, since writers begin new ones.
        With the same number of shards each continues from its own snapshot, with new epochs. With another number the
        steps are stored again: episodes stay whole, priorities and ages stay about what they were; where shards are
        full, those that do not fit are dropped. Ids from before are those of lost shards.

        Args:
            path: The folder.
            sampler: As for `ReplayBuffer.load`.
            transforms: Likewise.
            shards: S, None: as many as there were.
            seed: Of what is not restored.
            options: As for the constructor.

        Raises:
            SnapshotError: There is no whole snapshot.
            StorageError: It cannot be read.
            ConfigError: As for the constructor.
        """
        folder = folder_of(path, "load")
        about = saved.read(folder)
        slot = folder / about["run"] / saved.TEMPLATE
        template = ReplayBuffer.load(slot, sampler=sampler, transforms=transforms, continue_episodes=False)
        shards = about["shards"] if shards is None else shards
        if shards != about["shards"] and template.given_fields != template.fields:
            raise ConfigError(
                f"a FrameStack that is given stacks is restored onto as many shards as it was saved from, "
                f"{about['shards']}, but got shards={shown(shards)}"
            )
        declared = {name: getattr(template._parts.config, name) for name in DECLARED}
        saved_options = {name: about[name] for name in ("capacity", "count_replays", "min_size")}
        config = RemoteConfig(**saved_options, declared=declared, shards=shards, seed=seed, options=options)
        load_options = {"sampler": inner_sampler(template.sampler), "transforms": transforms}
        loaded = cls.__new__(cls)
        loaded._open(config, Restored(folder, about, load_options))
        return loaded

    @property
    def size(self) -> int:
        """Steps stored now, in all shards."""
        with self._lock:
            self._pool.refresh()
            return self._pool.size

    @property
    def next_id(self) -> int:
        """A number above every id assigned so far."""
        with self._lock:
            self._pool.refresh()
            slots = [slot for slot in self._pool.slots if slot.tally]
            next_ids = [global_ids(s.epoch, s.number, np.array([s.tally.next_id])) for s in slots if s.tally]
            return max((int(ids[0]) for ids in next_ids), default=0)

    def __len__(self) -> int:
        """Return how many steps are stored now, in all shards."""
        return self.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteReplay(capacity={self.capacity:,}, shards={self.shards}, sampler={self.sampler})"

    def writer(self, envs: ListOf[int] | None = None, *, window: int = 8) -> RemoteWriter:
        """Return a writer for an environment worker; it can be sent to other processes.

        Args:
            envs: Which of the E environments are the worker's; None: all. No two writers share one.
            window: Calls that may be unacknowledged before the next one waits.

        Raises:
            ConfigError: There are no such environments.
            StorageError: The replay was closed.
        """
        options = environments(envs, self.num_envs or 1), checked("window", window, whole(most=1_000))
        with self._lock:
            self._pool.check_going()
            return self._writer(*options, None)

    def add(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store one time step of every environment, wait until it is acknowledged, and return the ids.

        Where several processes step environments, each has a `writer`, which does not wait.

        Raises:
            FieldError, ShapeError, DtypeError: As for `ReplayBuffer.add`.
        """
        ids = self._put(steps, where, final_obs, many=False)[0]
        return int(ids[0]) if self.num_envs is None else ids

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store T time steps at once, as T calls of `add` would."""
        ids = self._put(steps, where, final_obs, many=True)
        return ids[:, 0] if self.num_envs is None else ids

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately; see `ReplayBuffer.end_episode`."""
        with self._lock:
            self._own_writer.end_episode(where)
            self._own_writer.flush()

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch from all shards.

        Its arrays are the caller's. Where a shard is lost meanwhile, its rows are drawn from the others.

        Args:
            batch_size: B ≥ 1.
            progress: Training progress in [0, 1], if β has a schedule. None: its start value, with one warning.

        Raises:
            EmptyBufferError: Too little is stored, or every priority is zero; or the limiter allows no batch, and has
                not for its `timeout`.
            ConfigError: An argument is out of its range.
            OverSizeError: The object store is too small for the batches on their way.
            StorageError: No shard is there, and none comes.
        """
        batch_size = checked("batch_size", batch_size, _ROWS)
        checked("progress", progress, optional(FRACTION))
        beta = None if self._schedules is None else self._schedules.at(progress)[0]
        with self._lock:
            return Batch(self._draws.batch(batch_size, beta))

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Send the learner's feedback for these steps to their shards.

        Args:
            ids: int64 ``...``, of batches.
            td_error: δ of the same shape.
            priority: Instead of `td_error`: p itself, of each id, or one number for all.

        Returns:
            How many of them are still stored: as far as their shards have reported;
            with ``strict=True``, exactly. Those
            that are not are counted in `stats`.

        Raises:
            PriorityError, ShapeError, DtypeError, ConfigError: As for `ReplayBuffer.update_priorities`.
            IdError: An id was never given out; those of shards that are lost are not distinguished.
        """
        steps = np.asarray(ids)
        if not are_ids(steps):
            return self._template.update_priorities(ids, td_error, priority=priority)  # raises
        steps = steps.astype(np.int64)
        self._template.update_priorities(np.full(steps.shape, -1), td_error, priority=priority)  # checks the values
        values = values_of(priority if td_error is None else td_error)
        values = np.broadcast_to(values, steps.size)  # one priority for all
        with self._lock:
            return self._feedback.send(steps.reshape(-1), values, td_error is not None)

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 ``...``; of lost shards and dropped steps it is 0.
            batch_size: Not needed: no closed form here depends on it.
            progress: Likewise.

        Raises:
            IdError, DtypeError: As for `update_priorities`.
        """
        _check_unneeded(batch_size, progress)
        steps = np.asarray(ids)
        if not are_ids(steps):
            return self._template.probabilities(ids)  # raises
        flat = steps.astype(np.int64).reshape(-1)
        with self._lock:
            self._feedback.check(flat)
            epoch, shard, step = id_parts(flat)
            requests = []
            for slot in self._pool.live():
                mask = (shard == slot.number) & (epoch == slot.epoch)
                requests.append((slot, slot.client, mask, self._pool.ask(slot, "distribution", step[mask])))
            distribution, line = np.zeros(len(flat)), 0.0
            for slot, client, mask, pending in requests:
                answer = None if pending is None else self._pool.answer(slot, client, pending)
                if answer is not None:
                    probabilities, tally = answer
                    distribution[mask] = probabilities * tally.total
                    line += tally.total
        return (distribution / line if line > 0.0 else distribution).reshape(steps.shape)

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> RemoteReplayStats:
        """Return figures of all shards, and of each: what is stored and drawn, how fast, and what was lost.

        Args:
            batch_size: Not needed: no figure here depends on it.
            progress: Likewise.
        """
        _check_unneeded(batch_size, progress)
        with self._lock:
            self._feedback.flush()
            shards = shard_figures(self._pool)
            added = self._pool.inserted
            return RemoteReplayStats(
                size=self._pool.size,
                capacity=self.capacity,
                added=added,
                samples=self._draws.drawn,
                samples_per_insert=self._draws.drawn / added if added else math.nan,
                total_priority=sum(self._pool.totals()),
                stale_updates=self._feedback.stale,
                topped_up=self._draws.topped_up,
                losses=sum(slot.losses for slot in self._pool.slots),
                lost_steps=sum(slot.lost_steps for slot in self._pool.slots),
                snapshot_error=self._saver.error,
                shards=shards,
            )

    def save(self, path: str | PathLike[str]) -> None:
        """Write each shard's own snapshot into a folder, and then what they are; see `load`.

        On several machines it is a folder that all of them see.

        Raises:
            StorageError: It cannot be written to, or a shard is lost meanwhile.
            SnapshotError: The options cannot be written down.
        """
        folder = folder_of(path, "save")
        with self._lock:
            self._own_writer.flush()
            self._feedback.flush()
            self._pool.refresh()
            self._saver.save(folder, self._pool, self._template, self._about)

    def close(self) -> None:
        """End the shards, and its own Ray; what they hold is gone, except for snapshots."""
        with self._lock:
            if self._supervisor is not None:
                self._supervisor.stop()
            self._pool.stop()
            self._opened.close()

    def tend(self) -> bool:
        """See to lost shards and to snapshots; done in the background, twice a second, and by `sample`.

        False: the replay is closed.
        """
        with self._lock:
            if self._pool.stopped:
                return False
            self._pool.refresh(PERIOD if self._pool.transport.background else 0.0)
            self._saver.tend(self._pool, self._template, self._about)
        return True

    def _open(self, config: RemoteConfig, restored: Restored | None) -> None:
        self._config, self._template, self._lock = config, config.template, Condition()
        options = config.options
        with ExitStack() as opened:
            transport = options.carrier(config.shards, opened)
            self._saver = Saver(options.snapshot, config.shards, restored)
            with self._saver.probe() as probe:
                self._pool = ShardPool(transport, config.declarations(restored), self._saver.folder, probe)
            self._draws = Draws(
                *(self._pool, self.sampler, 0 if options.strict else options.prefetch, options.limiter),
                *(config.min_size, options.strict, np.random.default_rng(config.stream()), self._lock.wait),
            )
            betas = [self.sampler.beta] if hasattr(self.sampler, "beta") else []
            self._schedules = Schedules(type(self.sampler).__name__, betas) if betas else None
            self._feedback = Feedback(self._pool, self._template, options.strict)
            self._own_writer = self._writer(np.arange(self.num_envs or 1), 8, self._pool)
            if restored is not None:
                self._pool.go_on_from(restored.about["inserted"])
                allowed = math.inf if options.limiter is None else options.limiter.allowed(self._pool.inserted)
                # another limiter begins where it may continue
                self._draws.drawn = int(min(restored.about["drawn"], allowed))
            tend = WeakMethod(self.tend)

            def tend_if_used() -> bool:
                method = tend()
                return method is not None and method()

            self._supervisor = Supervisor(tend_if_used) if transport.background else None
            self._opened = opened.pop_all()

    @property
    def _about(self) -> dict[str, Any]:
        """The members of a snapshot's manifest that concern all shards."""
        declared = ("shards", "capacity", "min_size", "count_replays")
        return {name: getattr(self._config, name) for name in declared} | {
            "inserted": self._pool.inserted,
            "drawn": self._draws.drawn,
            "epoch": max(slot.epoch for slot in self._pool.slots),
        }

    def _writer(self, envs: npt.NDArray[np.int64], window: int, pool: ShardPool | None) -> RemoteWriter:
        clients = [slot.client for slot in self._pool.slots]
        template, run = self._config.template_of(len(envs)), self._config.run
        return RemoteWriter(self._pool.transport, clients, template, envs, window, run, pool, self._pool.check_going)

    def _put(self, steps: dict[str, Any], where: Any, final_obs: Any, many: bool) -> npt.NDArray[np.int64]:
        with self._lock:
            ids = self._own_writer.put(steps, where, final_obs, many)
            self._own_writer.flush()
            return ids


def _check_unneeded(batch_size: int | None, progress: float | None) -> None:
    """Check arguments of any `Replay` on which no answer here depends."""
    checked("batch_size", batch_size, optional(_ROWS))
    checked("progress", progress, optional(FRACTION))
