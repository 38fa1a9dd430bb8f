"""A replay in shards: one protocol, one exact law, several processes or machines."""

import math
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from os import PathLike
from threading import Condition
from typing import Any, Literal, Self
from uuid import uuid4
from weakref import ref

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, LARGEST_AXIS, checked, optional, shown, whole
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import snapshots as saved
from replaylab.distributed.replay.draws import Draws
from replaylab.distributed.replay.feedback import Feedback, are_ids, values_of
from replaylab.distributed.replay.figures import RemoteReplayStats, shard_figures
from replaylab.distributed.replay.limiter import Limiter
from replaylab.distributed.replay.options import DECLARED, Declared, Means, RemoteOptions, environments, inner_sampler
from replaylab.distributed.replay.shards.fleet import Fleet
from replaylab.distributed.replay.shards.ids import global_ids, places_of
from replaylab.distributed.replay.shards.transport import Transport
from replaylab.distributed.replay.shards.trees import leaves
from replaylab.distributed.replay.snapshots import Restored, Saver, Snapshots
from replaylab.distributed.replay.supervisor import PERIOD, Supervisor
from replaylab.distributed.replay.writer import RemoteWriter
from replaylab.errors import ConfigError, OverSizeError
from replaylab.files.manifest import folder_of
from replaylab.replay import Batch, Fifo, ReplayBuffer, Retention, Sampler, Seed, Transform, Uniform, as_schedule


class RemoteReplay(Declared):
    """A replay in shards, each an ordinary `ReplayBuffer` in a process of its own, drawn from by one exact law.

    It is a `Replay`: shapes, axes and errors are those of `ReplayBuffer`. The shards are Ray actors of the cluster that
    this process is connected to, or else of the one at `address`, or of a Ray on this machine that `close` ends.
    Environment workers store steps through a `writer` each, from wherever they are; one process, which made it,
    learns. An episode lives in one shard, so every transform is exact.

    P(i) is as if all steps lay in one buffer; where the shards' totals have moved while a batch was on its way,
    ``probability`` and ``weight`` are those of the draw as it was really made, so that nothing is biased. Rows of a
    batch come shard by shard. A new step gets the largest priority of its shard. Ids hold the epoch of their shard:
    feedback for a shard that is lost, or for what it held before, changes nothing and is counted.

    Samplers: those whose law is in proportion to a number of each step: `Uniform`, `Prioritized`, `ReLo`, `LAP`,
    `AntiPrioritized`, `Permuted` (within each shard).

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
        seed: Of all random streams. What is drawn still depends on when calls arrive.
        shards: S.
        placement: Where they are: None: as Ray likes; "spread": on as many nodes as there are; or a node id for each.
        prefetch: Batches that are on their way beside the one that `sample` waits for.
        limiter: How often steps may be drawn; None: as often as you like.
        snapshot: Where shards are saved in the background; None: a shard that is lost begins empty.
        strict: Read all totals before every draw, draw none ahead, and wait for the answer to every feedback.
        transport: What carries the calls; None: Ray.
        address: Of the Ray cluster, as for `RaySession`.

    Raises:
        ConfigError, FieldError: An argument is out of its range, or the sampler's law cannot be joined.
        OverSizeError: A shard would not fit into its machine's memory.
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
        seed: Seed = None,
        shards: int = 2,
        placement: str | ListOf[str] | None = None,
        prefetch: int = 1,
        limiter: Limiter | None = None,
        snapshot: Snapshots | None = None,
        strict: bool = False,
        transport: Transport | None = None,
        address: str | None = None,
    ) -> None:
        if replicas is not None or storage is not None:
            raise ConfigError(
                f"a RemoteReplay has neither replicas nor a storage, but got (replicas={shown(replicas)}, "
                f"storage={shown(storage)}); leave them out"
            )
        declared: dict[str, Any] = {
            "fields": fields,
            "num_envs": num_envs,
            "sampler": sampler,
            "transforms": transforms,
        }
        declared |= {"next_obs": next_obs, "retention": retention, "autoreset": autoreset}
        means = Means(shards, placement, prefetch, limiter, snapshot, strict, seed, transport, address)
        self._open(RemoteOptions(capacity, declared, count_replays, min_size, means), None)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        sampler: Sampler | None = None,
        transforms: ListOf[Transform] | None = None,
        shards: int | None = None,
        placement: str | ListOf[str] | None = None,
        prefetch: int = 1,
        limiter: Limiter | None = None,
        snapshot: Snapshots | None = None,
        strict: bool = False,
        seed: Seed = None,
        transport: Transport | None = None,
        address: str | None = None,
    ) -> Self:
        """Return what `save`, or a snapshot in the background, wrote.

        With the same number of shards each goes on from its own snapshot, with new epochs. With another number the
        steps are stored anew: episodes stay whole, priorities and ages stay about what they were; where shards are
        full, those that do not fit are dropped. Ids from before are those of lost shards.

        Args:
            path: The folder.
            sampler: As for `ReplayBuffer.load`.
            transforms: Likewise.
            shards: S, None: as many as there were.
            placement: As for the constructor, as all that follow.
            prefetch: Likewise.
            limiter: Likewise.
            snapshot: Likewise.
            strict: Likewise.
            seed: Of what is not restored.
            transport: As for the constructor.
            address: Likewise.

        Raises:
            SnapshotError: There is no whole snapshot.
            StorageError: It cannot be read.
            ConfigError: As for the constructor.
        """
        folder = folder_of(path, "load")
        about = saved.read(folder)
        template = ReplayBuffer.load(folder / about["run"] / saved.TEMPLATE, sampler=sampler, transforms=transforms)
        shards = about["shards"] if shards is None else shards
        if shards != about["shards"] and template.given_fields != template.fields:
            raise ConfigError(
                f"a FrameStack that is given stacks is restored onto as many shards as it was saved from, "
                f"{about['shards']}, but got shards={shown(shards)}"
            )
        means = Means(shards, placement, prefetch, limiter, snapshot, strict, seed, transport, address)
        declared = {name: getattr(template, name) for name in DECLARED}
        options = RemoteOptions(about["capacity"], declared, about["count_replays"], about["min_size"], means)
        given = {"sampler": inner_sampler(template.sampler), "transforms": transforms}
        loaded = cls.__new__(cls)
        loaded._open(options, Restored(folder, about, given))
        return loaded

    @property
    def size(self) -> int:
        """Steps stored now, in all shards."""
        with self._lock:
            self._fleet.refresh()
            return self._fleet.size

    @property
    def next_id(self) -> int:
        """A number above every id given out so far."""
        with self._lock:
            self._fleet.refresh()
            known = [(one.epoch, one.number, np.array([one.tally.next_id])) for one in self._fleet.places if one.tally]
            return max((int(global_ids(*one)[0]) for one in known), default=0)

    def __len__(self) -> int:
        """Return how many steps are stored now, in all shards."""
        return self.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shards = self._options.means.shards
        return f"RemoteReplay(capacity={self._options.capacity:,}, shards={shards}, sampler={self.sampler})"

    def writer(self, envs: ListOf[int] | None = None, *, window: int = 8) -> RemoteWriter:
        """Return a writer for an environment worker; it can be sent to other processes.

        Args:
            envs: Which of the E environments are the worker's; None: all. No two writers share one.
            window: Calls that may be unacknowledged before the next one waits.

        Raises:
            ConfigError: There are no such environments.
        """
        given = environments(envs, self.num_envs or 1), checked("window", window, whole(most=1_000))
        with self._lock:
            return self._writer(*given, None)

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
        """Say that environments were reset separately; see `ReplayBuffer.end_episode`."""
        with self._lock:
            self._own.end_episode(where)
            self._own.flush()

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch from all shards.

        Its arrays are the caller's. Where a shard is lost meanwhile, its rows are drawn from the others.

        Args:
            batch_size: B ≥ 1.
            progress: Training progress in [0, 1], needed if β has a schedule.

        Raises:
            EmptyBufferError: Too little is stored, or every priority is zero; or the limiter allows no batch, and has
                not for its `timeout`.
            ConfigError: An argument is out of its range.
            OverSizeError: The object store is too small for the batches on their way.
            StorageError: No shard is there, and none comes.
        """
        batch_size = checked("batch_size", batch_size, whole(most=LARGEST_AXIS))
        beta = self._beta(progress)
        with self._lock:
            return Batch(self._draws.batch(batch_size, beta, self._check_room))

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Send the learner's feedback for these steps to their shards.

        Args:
            ids: int64 ``...``, of batches.
            td_error: δ of the same shape.
            priority: Instead of `td_error`: p itself.

        Returns:
            How many of them are still stored: as far as their shards have told; with ``strict=True``, exactly. Those
            that are not are counted in `stats`.

        Raises:
            PriorityError, ShapeError, DtypeError, ConfigError: As for `ReplayBuffer.update_priorities`.
            IdError: An id was never given out; those of shards that are lost are not told apart.
        """
        steps = np.asarray(ids)
        if not are_ids(steps):
            return self._template.update_priorities(ids, td_error, priority=priority)  # raises
        steps = steps.astype(np.int64)
        self._template.update_priorities(np.full(steps.shape, -1), td_error, priority=priority)  # checks the values
        values = values_of(priority if td_error is None else td_error)
        with self._lock:
            return self._feedback.send(steps.reshape(-1), values, td_error is not None)

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 ``...``; of lost shards and dropped steps it is 0.
            batch_size: Not needed: no law here depends on it.
            progress: Likewise.

        Raises:
            IdError, DtypeError: As for `update_priorities`.
        """
        if batch_size is not None:
            checked("batch_size", batch_size, whole(most=LARGEST_AXIS))
        checked("progress", progress, optional(FRACTION))
        steps = np.asarray(ids)
        if not are_ids(steps):
            return self._template.probabilities(ids)  # raises
        flat = steps.astype(np.int64).reshape(-1)
        with self._lock:
            self._feedback.check(flat)
            return self._law(flat).reshape(steps.shape)

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> RemoteReplayStats:
        """Return figures of all shards, and of each: what is stored and drawn, how fast, and what was lost.

        Args:
            batch_size: Not needed: no figure here depends on it.
            progress: Likewise.
        """
        if batch_size is not None:
            checked("batch_size", batch_size, whole(most=LARGEST_AXIS))
        checked("progress", progress, optional(FRACTION))
        with self._lock:
            self._feedback.flush()
            shards = shard_figures(self._fleet)
            added = self._fleet.inserted
            return RemoteReplayStats(
                size=self._fleet.size,
                capacity=self.capacity,
                added=added,
                samples=self._draws.drawn,
                samples_per_insert=self._draws.drawn / added if added else math.nan,
                total_priority=sum(self._fleet.totals()),
                stale_updates=self._feedback.stale,
                topped_up=self._draws.topped_up,
                losses=sum(place.losses for place in self._fleet.places),
                lost_steps=sum(place.lost_steps for place in self._fleet.places),
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
            self._own.flush()
            self._feedback.flush()
            self._fleet.refresh()
            self._saver.save(folder, self._fleet, self._template, self._about)

    def close(self) -> None:
        """End the shards, and a Ray of its own; what they hold is gone, but for snapshots."""
        with self._lock:
            if self._supervisor is not None:
                self._supervisor.stop()
            self._fleet.stop()
            if self._session is not None:
                self._session.close()

    def tend(self) -> bool:
        """See to lost shards and to snapshots; done in the background, twice a second, and by `sample`.

        False: the replay is closed.
        """
        with self._lock:
            if self._fleet.stopped:
                return False
            self._fleet.refresh(PERIOD if self._fleet.transport.background else 0.0)
            self._saver.tend(self._fleet, self._template, self._about)
        return True

    def _open(self, options: RemoteOptions, restored: Restored | None) -> None:
        self._session: RaySession | None = None
        self._options, self._template, self._lock = options, options.template, Condition()
        if options.means.transport is None:
            self._session = RaySession(options.means.address)
            self._session.open()
        try:
            self._start(options, restored)
        except BaseException:
            if self._session is not None:
                self._session.close()
            raise

    def _start(self, options: RemoteOptions, restored: Restored | None) -> None:
        if options.means.transport is None:
            from replaylab.distributed.replay.shards.ray_transport import connected  # imports Ray

            transport: Transport = connected(uuid4().hex, options.means.placement, options.means.shards)
        else:
            transport = options.means.transport
        self._saver = Saver(options.means.snapshot, options.means.shards, restored)
        self._fleet = Fleet(transport, options.declarations(restored), self._saver.folder)
        self._draws = Draws(
            *(self._fleet, self.sampler, 0 if options.means.strict else options.means.prefetch, options.means.limiter),
            *(options.min_size, options.means.strict, np.random.default_rng(options.stream()), self._lock.wait),
        )
        self._feedback = Feedback(self._fleet, self._template, options.means.strict)
        self._own = self._writer(np.arange(self.num_envs or 1), 8, self._fleet)
        self._room_for = 0
        if restored is not None:
            self._fleet.go_on_from(restored.about["inserted"])
            allowed = math.inf if options.means.limiter is None else options.means.limiter.allowed(self._fleet.inserted)
            self._draws.drawn = int(min(restored.about["drawn"], allowed))  # another limiter begins where it may go on
        self._supervisor = Supervisor(Tending(ref(self))) if transport.background else None

    @property
    def _about(self) -> dict[str, Any]:
        """What a snapshot says of all shards together."""
        options = self._options
        return {
            "shards": options.means.shards,
            "capacity": options.capacity,
            "min_size": options.min_size,
            "count_replays": options.count_replays,
            "inserted": self._fleet.inserted,
            "drawn": self._draws.drawn,
            "epoch": max(place.epoch for place in self._fleet.places),
        }

    def _writer(self, envs: npt.NDArray[np.int64], window: int, fleet: Fleet | None) -> RemoteWriter:
        clients = [place.client for place in self._fleet.places]
        template, run = self._options.template_of(len(envs)), self._options.run
        return RemoteWriter(self._fleet.transport, clients, template, envs, window, run, fleet)

    def _put(self, steps: dict[str, Any], where: Any, final_obs: Any, many: bool) -> npt.NDArray[np.int64]:
        with self._lock:
            ids = self._own.put(steps, where, final_obs, many)
            self._own.flush()
            return ids

    def _beta(self, progress: float | None) -> float | None:
        """Return β now, None for samplers without."""
        checked("progress", progress, optional(FRACTION))
        if not hasattr(self.sampler, "beta"):
            return None
        schedule = as_schedule(self.sampler.beta)
        if progress is None and schedule.bounds[0] < schedule.bounds[1]:
            raise ConfigError(
                f"{type(self.sampler).__name__} has a number that changes over the run ({schedule}), so `progress` in "
                "[0, 1] is needed; pass progress=step / total_steps, or make it constant"
            )
        return schedule(progress or 0.0)

    def _law(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        epoch, shard, step = places_of(ids)
        asked = []
        for place in self._fleet.live():
            mine = (shard == place.number) & (epoch == place.epoch)
            asked.append((place, place.client, mine, self._fleet.ask(place, "law", step[mine])))
        law, line = np.zeros(len(ids)), 0.0
        for place, client, mine, pending in asked:
            answer = None if pending is None else self._fleet.answer(place, client, pending)
            if answer is not None:
                own, tally = answer
                law[mine] = own * tally.total
                line += tally.total
        return law / line if line > 0.0 else law

    def _check_room(self, wanted: int, part: Any) -> None:
        """Raise `OverSizeError` if the object store has no room for the batches on their way."""
        on_their_way = self._options.means.prefetch + 1
        if wanted == self._room_for:
            return
        needed = sum(leaf.nbytes for leaf in leaves(part)) * wanted // len(part["id"]) * on_their_way
        room = self._fleet.transport.batch_room()
        if needed > room:
            raise OverSizeError(
                f"{on_their_way} batches of {wanted:,} rows need {needed / 2**20:,.1f} MiB on their way, but the "
                f"object store has {room / 2**20:,.1f} MiB; use a smaller batch_size or prefetch, or start Ray with a "
                "larger object_store_memory"
            )
        self._room_for = wanted


class Tending:
    """Looks after a replay as long as it is used.

    Args:
        replay: It.
    """

    def __init__(self, replay: "ref[RemoteReplay]") -> None:
        self._replay = replay

    def __call__(self) -> bool:
        """Look after it; False: it is not used any more."""
        replay = self._replay()
        return replay is not None and replay.tend()
