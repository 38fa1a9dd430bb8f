"""The replay buffer, to which a training loop adds steps and from which it samples batches."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from replaylab.replay import episodes as by_episode
from replaylab.replay import introspection, persistence
from replaylab.replay import prefetch as ahead
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.common_members import CommonMembers
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.spaces import options_for_env
from replaylab.replay.storage import Handle, Retention, Storage
from replaylab.replay.transforms import Transform


class ReplayBuffer(CommonMembers):
    """Stores steps, draws batches from an exactly known sampling distribution, and takes the learner's feedback.

    Every stored step gets a number, its ``id``, that is never reused; when more than `capacity` are stored the oldest
    is dropped. Leading axes of every array are replicas R, time steps T, environments E, in this order; each is present
    only if declared (R: `replicas`, E: `num_envs`) or required by the call (T: `extend`). All methods may be called
    from several threads at once, and from signal handlers and callbacks (`distribution`, `weights`, `score`). After a
    fork the child finds every buffer between two calls, and can use it; its first draw raises `ConfigError` unless
    it has called `reseed`. A buffer that draws in Python (a custom sampler, `LaBER`, a tape) raises `ConfigError` there
    if another thread was drawing from it.

    Args:
        capacity: C, how many steps are kept, in each replica.
        fields: The fields of a step: name → `Field`, or nested mappings and tuples of them.
        num_envs: E, environments stepped together. They share the C places; None: no E axis.
        replicas: R independent buffers in one, each with its own C steps, priorities and random stream,
            served by one call; None: no R axis.
        sampler: What to draw.
        transforms: Transforms of the drawn steps: `NStep`, `FrameStack`, `Hindsight`, `Sequence`, in any combination.
        next_obs: "stored", or "derived": ``next_obs`` is read from the row of the environment's next step; only an
            episode's last one is stored in a separate row. Half the memory, equal batches.
        retention: What is kept: `Fifo` (default) or `Reservoir`.
        storage: Where the rows are stored: None (default): in this process's memory; a `SharedMemory` or a `MemoryMap`.
        autoreset: How the environments reset: "next_step", "same_step", "disabled" or a Gymnasium
            `AutoresetMode`; see `add`. None: every step given is a true transition.
        count_replays: Whether to count each step's draws, for `stats`: four bytes a step, one cache miss a drawn row.
        min_size: Steps that must be stored (in each replica) before a batch is drawn; until then `sample` raises
            `EmptyBufferError`.
        episodes: What ends an episode: "flags": a step whose ``terminated`` or ``truncated`` is set, and
            `end_episode`; transforms then need one of these fields. "manual": a buffer with transforms may lack both
            fields; you call `end_episode` wherever an episode ends.
        seed: Seed of the buffer's own random stream; with `replicas` also one seed for each, and replica r
            then draws exactly as a single buffer of that seed. None: fresh entropy.

    Raises:
        FieldError, ConfigError: An argument is out of its range.
        OverSizeError: The buffer would not fit into this machine's memory.
        StorageError: `storage` cannot be created, or holds rows of another declaration.

    Example:
        >>> import numpy as np
        >>> from replaylab import Field, ReplayBuffer
        >>> buffer = ReplayBuffer(1000, {"obs": Field((3,)), "reward": Field()}, seed=0)
        >>> buffer.add(obs=np.zeros(3), reward=1.0)
        0
        >>> buffer.sample(4).obs.shape
        (4, 3)
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        num_envs: int | None = None,
        replicas: int | None = None,
        sampler: Sampler = BufferConfig.sampler,
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        retention: Retention = BufferConfig.retention,
        storage: Storage | None = None,
        autoreset: Any = None,
        count_replays: bool = False,
        min_size: int = 1,
        episodes: Literal["flags", "manual"] = "flags",
        seed: Seed = None,
    ) -> None:
        config = BufferConfig(
            capacity,
            fields,
            num_envs=num_envs,
            replicas=replicas,
            sampler=sampler,
            transforms=transforms,
            next_obs=next_obs,
            retention=retention,
            storage=storage,
            autoreset=autoreset,
            count_replays=count_replays,
            min_size=min_size,
            episodes=episodes,
        )
        self._make(config, seed)
        self._call_core()

    def _call_core(self) -> None:
        """Replace `add` and `extend` by the core's methods, without a Python frame, if they do the same."""
        if self._parts.stores_in_core:
            for name, call in (("add", self._parts.core.add_step), ("extend", self._parts.core.extend_steps)):
                if getattr(type(self), name) is getattr(ReplayBuffer, name):
                    vars(self)[name] = call

    @classmethod
    def for_env(
        cls,
        env: Any,
        capacity: int,
        *,
        replicas: int | None = None,
        extra_fields: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "ReplayBuffer":
        """Return a buffer for the transitions of a Gymnasium environment or vector environment.

        Its fields are obs, action, reward (float32), next_obs, terminated and truncated, with the shapes and
        dtypes of the spaces, and `extra_fields`. A vector environment sets ``num_envs`` and the autoreset
        mode. With `replicas` R its sub-environments are dealt out to the replicas in order, so R must divide
        their number; one each leaves no E axis. `options` are the constructor's. With a
        ``FrameStack(stacked_input=True)`` its fields are declared as single frames of the space's stacks.

        Raises:
            FieldError: A space has no fixed size, or does not hold stacks for ``stacked_input=True``.
            ConfigError: The autoreset mode is not declared, or `replicas` does not divide the number of
                sub-environments.
        """
        return cls(capacity, **options_for_env(env, replicas, extra_fields, options))

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Mapping[str, Any]],
        capacity: int | None = None,
        *,
        fields: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return a buffer that holds these episodes.

        Args:
            episodes: Mappings of the arguments of `extend_episode`.
            capacity: C. None: the steps of all episodes, which are then in memory twice while they are stored.
            fields: The fields of a step. None: those of the first episode, in its dtypes; but with transforms floating
                rewards become float32, as `NStep` and others need them.
            **options: The constructor's; ``next_obs`` is "derived" unless it is given, or a storage or a `Reservoir`,
                which need it "stored".

        Raises:
            ConfigError: There is no episode.
            FieldError, ShapeError, DtypeError: An episode does not fit the first one, or `fields`.

        Example:
            >>> import numpy as np
            >>> from replaylab import ReplayBuffer
            >>> episode = {"obs": np.arange(4.0), "action": np.zeros(3, int), "reward": np.ones(3), "terminated": True}
            >>> buffer = ReplayBuffer.from_episodes([episode, episode], seed=0)
            >>> len(buffer), buffer.get([2])["next_obs"].tolist()
            (6, [3.0])
        """
        options, coming = by_episode.options_for_episodes(episodes, capacity, fields, options)
        buffer = cls(**options)
        for number, episode in enumerate(coming):
            with by_episode.numbered(number):
                buffer.extend_episode(**episode)
        return buffer

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as declared."""
        return dict(self._parts.config.fields)

    @property
    def replicas(self) -> int | None:
        """R, or None without a replica axis."""
        return self._parts.config.replicas

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The transforms that turn a drawn step into a row of a batch."""
        return tuple(self._parts.config.transforms)

    @property
    def storage(self) -> Storage | None:
        """The storage of the rows; None: this process's memory."""
        return self._parts.config.storage

    @property
    def next_obs(self) -> str:
        """Whether next observations are "stored" or "derived"."""
        return self._parts.config.next_obs

    @property
    def autoreset(self) -> str | None:
        """The environments' autoreset mode, or None."""
        mode: str | None = self._parts.config.autoreset
        return mode

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields as `add` takes them: as declared, except stacks with ``FrameStack(stacked_input=True)``."""
        return self._parts.layout.unflatten(iter(self._parts.layout.input_fields.values()))

    def add(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store one time step of every environment and return the ids.

        Args:
            where: bool ``[R] [E]``; where False nothing is stored. None: everywhere True.
            final_obs: In "same_step" mode ``infos["final_obs"]``: an ended environment's true last
                observation, which is stored as its ``next_obs`` (the one `step` returned is already the next
                episode's first). In "next_step" mode nothing is needed: the step after an episode's end is
                the environment resetting itself, and the buffer leaves it out.
            **steps: Every declared field, of shape ``[R] [E] *field.shape``, of its dtype or of another whose
                values it can store.

        Returns:
            int64 ``[R] [E]``, an int when there is neither axis; −1 where nothing was stored.

        Raises:
            FieldError: A field or `final_obs` is missing or unknown.
            ShapeError, DtypeError: A value breaks the axis rule or does not fit the field's dtype.
        """
        core = self._parts.core
        values, _ = self._parts.layout.steps(core, steps, final_obs, where, many=False)
        return self._parts.engine.store(lambda: core.add(values, where), values, 1)

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store T time steps at once, as T calls of `add` would.

        With `replaylab.research.Permuted` in a `Reservoir`, the calls use other random numbers.
        Arguments, results and errors are those of `add` with a T axis: ``[R] T [E] *field.shape``.
        """
        core = self._parts.core
        values, length = self._parts.layout.steps(core, steps, final_obs, where, many=True)
        return self._parts.engine.store(lambda: core.extend(values, where, length), values, length)

    def extend_episode(self, /, *, obs: Any, terminated: Any = False, truncated: Any = False, **steps: Any) -> Any:
        """Store a complete episode of T steps, given by its T + 1 observations.

        Steps stored before and afterwards belong to other episodes. Flags are stored unchanged. If neither is set, the
        episode was abandoned, and its last step is treated like a truncated one.

        Args:
            obs: ``(T + 1, *shape)``, from the first observation to the one after the last action.
            terminated: Whether the task ended there; or of each step, bool ``T``.
            truncated: Whether the episode was cut off there; likewise.
            **steps: Every other field except ``next_obs``, ``T *field.shape``.

        Returns:
            int64 ``T``, the ids.

        Raises:
            FieldError: A field is missing or unknown.
            ShapeError, DtypeError: A value does not fit; nothing is stored.
            ConfigError: The buffer has replicas or several environments, or environments that reset themselves.
        """
        steps = by_episode.steps_of_episode(self._parts, obs, terminated, truncated, steps)
        self.end_episode()
        ids = self.extend(**steps).reshape(-1)
        self.end_episode()
        return ids

    def episodes(self) -> Iterator[dict[str, Any]]:
        """Yield the stored episodes, environment by environment, as arguments of `extend_episode`.

        An episode ends where it terminated or was truncated, before a removed step, and where the environment's next
        step does not begin with the observation that this one led to. The oldest one lacks the steps that were
        overwritten; the newest may not have ended. In a storage, each process that adds has its own environments. The
        buffer must not be added to meanwhile.

        Raises:
            FieldError: A field is missing: ``obs`` and ``next_obs``, declared alike, ``terminated`` and ``truncated``.
            ConfigError: The buffer has replicas, or does not know which step follows which.
        """
        return by_episode.episodes(self._parts)

    def sample(self, batch_size: int, *, progress: npt.ArrayLike | None = None, out: Batch | None = None) -> Batch:
        """Draw a batch in every replica.

        Args:
            batch_size: B ≥ 1. `Online` gives one row and `Combined("plus")` B + 1.
            progress: Training progress in [0, 1], for a sampler that has a schedule (β): one number, or of each
                replica, float (R,), where they progress separately. None: the schedule's start value, with one warning.
            out: A batch from an equal call; its arrays are overwritten and it is returned.

        Raises:
            EmptyBufferError: Nothing, or not enough, or less than `min_size` is stored, or every priority is zero.
            ConfigError: `batch_size` or `progress` is out of its range, or `out` is given with a sampler written in
                Python; or the process was forked, and `reseed` was not called.
            ShapeError, FieldError: `out` does not fit.
        """
        return self._parts.engine.sample(batch_size, progress, out)

    def batches(
        self,
        batch_size: int,
        *,
        prefetch: int = 0,
        total: int | None = None,
        progress: float | Callable[[int], float] | None = None,
        pin_memory: bool = False,
        device: Any = None,
    ) -> Generator[Batch, None, None]:
        """Yield batches without end, or `total` of them, optionally drawn ahead in a background thread.

        Batch k is drawn from the buffer's state when batch k − `prefetch` is requested (at the start, for the first
        ones). While a requested draw is pending, `add`, `extend`, `update_priorities` and the other calls that would
        change it wait. So the batches depend only on the seed and the calls, not on the thread's speed. A closed
        iterator has drawn what it requested. A step may be overwritten between the draw and the feedback;
        `update_priorities` then ignores its id.

        `save` writes the batches that were drawn ahead and not delivered. `batches` of the loaded buffer, with the same
        `batch_size`, yields those first, so that the run continues as if it had not been interrupted. They count as
        its batches 0, 1, ... An iterator that is closed drops what it has drawn ahead: save before you close it.

        Args:
            batch_size: B, as for `sample`.
            prefetch: How many batches to draw ahead; 0: none, and no thread.
            total: How many batches to yield; None: no end.
            progress: As for `sample`, or a function of k that gives it, called when batch k is asked for.
            pin_memory: Pin every batch, so that ``batch.torch("cuda")`` copies while Python continues. Each has its
                own memory, which PyTorch uses again after its copy has ended.
            device: Where to put every batch, ahead with `prefetch`: "jax" (JAX's default device), a `jax.Device` or
                sharding, or a device of PyTorch such as "cuda:0"; the batch then holds that library's arrays, as
                `Batch.jax` and `Batch.torch` return them. To a CUDA device a batch is copied in one piece, from pinned
                memory, on its own stream, for which the stream current at ``next`` waits. None: NumPy's.

        Raises:
            MissingExtraError: The library of `device` is not installed.
            ConfigError: An option is out of its range; the other errors are those of `sample`, raised where the
                batch would have come.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer = ReplayBuffer(100, {"x": Field()}, seed=0)
            >>> buffer.extend(x=[1.0, 2.0, 3.0]).tolist()
            [0, 1, 2]
            >>> for batch in buffer.batches(2, prefetch=1, total=3):
            ...     print(buffer.update_priorities(batch.id, batch.x))
            2
            2
            2
        """
        return ahead.batches(self, batch_size, prefetch, total, progress, pin_memory, device)

    def get(self, ids: npt.ArrayLike) -> dict[str, Any]:
        """Return the stored steps of these ids, as columns nested like the fields, ``[R] ... *field.shape``.

        Raises:
            IdError: A step is not stored, or not any more.
        """
        return self._parts.layout.unflatten(iter(self._parts.core.gather(ids, False).values()))

    def write(self, ids: npt.ArrayLike, /, **values: Any) -> int:
        """Change stored values of these steps, such as recurrent states, relabeled rewards or labels.

        Later draws, `get` and `columns` show the new values; batches that were returned before keep theirs. Ids are
        treated as `update_priorities` does: those whose step has been dropped since change nothing, nor does −1; for
        equal ids, the last one counts. Other fields, priorities, replay counts and random streams stay. The next
        `save` writes all rows again.

        With ``next_obs="derived"``, a step's ``obs`` is also the ``next_obs`` of the step before it, if they were equal
        when the step was added; both change. An episode's last ``next_obs``, and that of the newest step, are separate
        values: pass ``next_obs`` to change them. Passed for another step, it changes the ``obs`` of the next one, after
        the ``obs`` of the same call was written.

        Args:
            ids: int64 ``[R] ...``, from `add`, `extend` or a batch.
            **values: Some of the fields, of shape ``[R] ... *field.shape`` and a dtype that `add` takes; nested
                fields may be given in part. A tensor of PyTorch may be on any device. With
                ``FrameStack(stacked_input=True)``: single frames.

        Returns:
            How many of the ids were still stored.

        Raises:
            FieldError: A field is unknown, or ``terminated``, ``truncated`` or the clock of `Aged`, or there is none.
            ShapeError, DtypeError: A value does not fit its field or the ids; nothing is changed.
            IdError: An id was never assigned.
            ConfigError: The rows are in a `storage`, where other processes read them at any time.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer = ReplayBuffer(3, {"x": Field(), "label": Field((), int)}, seed=0)
            >>> ids = buffer.extend(x=[0.0, 1.0, 2.0, 3.0], label=[-1, -1, -1, -1])
            >>> buffer.write(ids, label=[5, 6, 7, 8])  # the first step was overwritten
            3
            >>> buffer.get([1, 3])["label"].tolist()
            [6, 8]
        """
        return self._parts.core.write(ids, self._parts.layout.written(values))

    @property
    def columns(self) -> dict[str, Any]:
        """Read-only views of every field by slot, ``[R] C *field.shape``; id i is in slot i mod C.

        A derived ``next_obs`` and compressed fields are left out (in a tuple: None); `get` returns them. In a
        `Reservoir` a step may be in any slot.

        Raises:
            ConfigError: The rows are in a `storage`, where others may write into them at any time.
        """
        return introspection.columns(self._parts)

    def as_batch(self, ids: npt.ArrayLike) -> Batch:
        """Return these steps in the form of a drawn batch, transformed; every weight is 1.

        It changes neither replay counts nor random streams: draws continue as if it had not been called. If a transform
        picks at random (`Hindsight`), it picks as in the next draw.

        Args:
            ids: int64 ``[R] B``, of stored steps.

        Raises:
            IdError: A step is not stored, or not any more.
            OverSizeError: The batch would not fit into this machine's memory.
        """
        return introspection.as_batch(self._parts, ids)

    def stored_ids(self) -> list[npt.NDArray[np.int64]]:
        """Return the ids of the stored steps, replica by replica, (N,), oldest first."""
        return introspection.stored_ids(self._parts)

    def replay_counts(self) -> list[npt.NDArray[np.int64]]:
        """Return how often each stored step was drawn, replica by replica, (N,) in the order of `stored_ids`.

        Raises:
            ConfigError: The buffer was made without ``count_replays=True``.
        """
        return introspection.replay_counts(self._parts)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        sampler: Sampler | None = None,
        transforms: ListOf[Transform] | None = None,
        storage: Storage | None = None,
        continue_episodes: bool | None = None,
        seed: Seed = None,
    ) -> Self:
        """Return the buffer that `save` wrote.

        Args:
            path: The folder.
            sampler: The sampler it was saved with, if that is a custom one. Or the same with other options: stored
                priorities keep their meaning under another α (of α = 0 only whether they are positive is known).
            transforms: The transforms it was saved with, if `Hindsight` is among them (functions are not saved).
            storage: The storage it was saved with, if that has moved since.
            continue_episodes: Whether the next steps continue the open episodes. True: the environments
                continue where they were, and the buffer continues exactly as the saved one would have. False: the
                environments are reset; each open episode ends at its last stored step, which becomes truncated. None:
                the first `add` raises if an episode was open. Rows in a `storage` are not changed: there the steps
                of a loaded buffer always begin other episodes.
            seed: Seed of another random stream, as for `reseed`: processes that load one snapshot draw different
                batches if each passes another seed. None: draws continue exactly.

        Raises:
            ConfigError: `path` is not a path.
            SnapshotError: The snapshot is damaged, not complete, or no snapshot, or the storage is another one.
            StorageError: The folder cannot be read, or the storage cannot be opened.
        """
        overrides = {"sampler": sampler, "transforms": transforms, "storage": storage}
        buffer = persistence.load(cls, BufferConfig, path, overrides, continue_episodes)
        if seed is not None:
            buffer.reseed(seed)
        return buffer

    def restore(self, path: str | os.PathLike[str], *, continue_episodes: bool | None = None) -> None:
        """Restore, in place, the state that a buffer of the same declaration wrote with `save`.

        The buffer stays the same object, so references to it and to its methods stay valid. Custom samplers and
        functions are kept, because snapshots do not store them; so is the `storage`, if the snapshot's rows are in one.

        Args:
            path: The folder.
            continue_episodes: As for `load`.

        Raises:
            ConfigError: Batches are being drawn ahead from the buffer.
            SnapshotError: The snapshot is of a buffer that was declared otherwise; or as for `load`.
            StorageError: As for `load`.
        """
        super().restore(path, continue_episodes=continue_episodes)
        self._call_core()

    def part(self, replicas: npt.ArrayLike) -> Self:
        """Return a new buffer of some of the replicas, each of which continues exactly as it would have here.

        Args:
            replicas: Their numbers, or bool (R,); at least one.

        Raises:
            ConfigError: There is no replica axis, `replicas` is empty or has unknown numbers, or a `storage` is used.
        """
        return persistence.part(self, replicas)

    def handle(self) -> Handle:
        """Return what another process needs to open the rows of this buffer's `storage`.

        Pickling such a buffer does the same: unpickling opens the same rows, with separate priorities and a separate
        random stream. A buffer whose rows are in this process's memory is pickled completely, as a snapshot; as an
        argument of a spawned process it needs `reseed` there before it draws.

        Raises:
            ConfigError: The rows are in this process's memory.
        """
        return persistence.handle(self)

    def flush(self) -> None:
        """Flush all steps added to a `MemoryMap` to disk, so that a power cut does not lose them."""
        self._parts.core.flush()

    def close(self) -> None:
        """Flush and release the `storage`; the buffer cannot be used afterwards.

        The rows stay until ``buffer.storage.unlink()``.
        """
        self._parts.core.flush()
        self._parts.core.close()

    def __repr__(self) -> str:
        return introspection.text(self._parts)

    def _repr_html_(self) -> str:
        return introspection.html(self._parts)
