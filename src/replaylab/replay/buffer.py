"""The replay buffer: what a training loop adds to and samples from."""

from collections.abc import Callable, Generator, Mapping
from collections.abc import Sequence as ListOf
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, checked, flag, mapping
from replaylab.errors import ConfigError, FieldError
from replaylab.replay import prefetch as ahead
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.data import seeding
from replaylab.replay.data.arrays import checked_progress, ids_array, positive, values_array
from replaylab.replay.data.batch import Batch, copy_batch, delivery
from replaylab.replay.data.fields import Tree, flatten
from replaylab.replay.data.memory import check_batch_memory
from replaylab.replay.episodes import Episodic
from replaylab.replay.introspection import display as show
from replaylab.replay.introspection.stats import ReplayStats, replay_counts, stats_of, stored_ids
from replaylab.replay.samplers.custom.sampler import CustomSampler
from replaylab.replay.samplers.custom.state import CustomState, flags_of
from replaylab.replay.samplers.laber import LaBER, Rescorer
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.tape import Tape, TapePlayer
from replaylab.replay.samplers.uniform import Uniform
from replaylab.replay.spaces import autoreset_of_env, fields_of_env, single_frames
from replaylab.replay.storage.retention import Fifo, Retention
from replaylab.replay.storage.storage import Storage
from replaylab.replay.transforms.frame_stack import FrameStack
from replaylab.replay.transforms.transform import Transform


class ReplayBuffer(Episodic):
    """Stores steps, draws batches of them by an exactly known law, and takes the learner's feedback.

    Every stored step gets a number, its ``id``, that is never reused; when more than `capacity` are stored
    the oldest is dropped. Leading axes of every array are replicas R, time steps T, environments E, in this
    order, each present only where declared (R: `replicas`, E: `num_envs`) or called for (T: `extend`).
    All methods may be called from several threads at once.

    Args:
        capacity: C, how many steps are kept, in each replica.
        fields: The fields of a step: name → `Field`, or nested mappings and tuples of them.
        num_envs: E, environments stepped together. They share the C places; None: no E axis.
        replicas: R independent buffers in one, each with its own C steps, priorities and random stream,
            served by one call; None: no R axis.
        sampler: What to draw.
        transforms: What a drawn step becomes: `NStep`, `FrameStack`, `Hindsight`, `Sequence`, in any combination.
        next_obs: "stored", or "derived": what is given for the field ``next_obs`` is not stored twice but found in
            the row that follows, or, where that is another one, in a row of its own. Half the memory, the same
            batches.
        retention: What is kept: `Fifo` (default) or `Reservoir`.
        storage: Where the rows lie: None (default): in this process's memory; a `SharedMemory` or a `MemoryMap`.
        autoreset: How the environments reset: "next_step", "same_step", "disabled" or a Gymnasium
            `AutoresetMode`; see `add`. None: every step given is a true transition.
        count_replays: Whether to count how often each step is drawn, for `stats`: it costs four bytes a step and
            one cache miss per drawn row.
        min_size: Steps that must be stored (in each replica) before a batch is drawn; until then `sample` raises
            `EmptyBufferError`.
        seed: Seed of the buffer's own random stream; with `replicas` also one seed for each, and replica r
            then draws exactly as a single buffer of that seed. None: fresh entropy.

    Raises:
        FieldError, ConfigError: An argument is out of its range.
        OverSizeError: The buffer would not fit into this machine's memory.
        StorageError: `storage` cannot be made, or what is there was declared otherwise.

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
        fields: Mapping[str, Tree],
        *,
        num_envs: int | None = None,
        replicas: int | None = None,
        sampler: Sampler = Uniform(),  # noqa: B008 - frozen
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        retention: Retention = Fifo(),  # noqa: B008
        storage: Storage | None = None,
        autoreset: Any = None,
        count_replays: bool = False,
        min_size: int = 1,
        seed: seeding.Seed = None,
    ) -> None:
        self._config = BufferConfig(
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
        )
        self._layout = BufferLayout(self._config)
        self._core = self._layout.make_core(seed)
        self._saved: dict[Path, str] = {}  # folder → token of the snapshot there that this buffer equals or grew from
        self._custom: CustomState | None = None
        if isinstance(self.sampler, CustomSampler):
            generators = seeding.sampling_generators(seed, replicas)
            stride = self._layout.sequence.length - self._layout.sequence.overlap if self._layout.sequence else None
            self._custom = CustomState(self._core, self.sampler, generators, self.capacity, num_envs or 1, stride)
        self._rescorer: Rescorer | None = None
        if isinstance(self.sampler, LaBER):
            generators = seeding.sampling_generators(seed, replicas, seeding.ReplayStreamKey.RESCORING)
            self._rescorer = Rescorer(self._core, self.sampler, generators)
        self._player: TapePlayer | None = None
        if isinstance(self.sampler, Tape):
            generators = seeding.sampling_generators(seed, replicas)
            self._player = TapePlayer(self._core, self.sampler, generators, replicas or 1)
        # The same methods without a Python frame and its keyword dict, which are most of what they cost.
        if self._layout.plain and type(self).add is ReplayBuffer.add:
            self.__dict__["add"] = self._core.add_step
        if self._layout.plain and type(self).extend is ReplayBuffer.extend:
            self.__dict__["extend"] = self._core.extend_steps

    @classmethod
    def for_env(
        cls,
        env: Any,
        capacity: int,
        *,
        replicas: int | None = None,
        extra_fields: Mapping[str, Tree] | None = None,
        **options: Any,
    ) -> "ReplayBuffer":
        """Return a buffer for the transitions of a Gymnasium environment or vector environment.

        Its fields are obs, action, reward (float32), next_obs, terminated and truncated, with the shapes and
        dtypes of the spaces, and `extra_fields`. A vector environment sets ``num_envs`` and the autoreset
        mode. With `replicas` R its sub-environments are dealt out to the replicas in order, so R must divide
        their number; one each leaves no E axis. `options` are the constructor's. With a
        ``FrameStack(stacked_input=True)`` its fields are declared as single frames of the space's stacks.

        Raises:
            FieldError: A space has no fixed size, or none of stacks.
            ConfigError: The autoreset mode is not declared, or `replicas` does not divide the number of
                sub-environments.
        """
        num_envs: int | None = getattr(env, "num_envs", None)
        if replicas is not None:
            total = num_envs or 1
            if total % positive("replicas", replicas):
                raise ConfigError(f"`replicas` must divide the {total} sub-environments, but got {replicas}")
            num_envs = None if total == replicas else total // replicas
        fields = {**fields_of_env(env), **checked("extra_fields", extra_fields or {}, mapping)}
        transforms = options.get("transforms", ())
        for one in transforms if isinstance(transforms, ListOf) else ():  # else it is refused below
            if isinstance(one, FrameStack) and one.stacked_input:
                fields = single_frames(fields, one)
        options = {"autoreset": autoreset_of_env(env)} | options
        return cls(capacity, fields, num_envs=num_envs, replicas=replicas, **options)

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
            FieldError: A field is missing or unknown, or `final_obs` is.
            ShapeError, DtypeError: A value breaks the axis rule or does not fit the field's dtype.
        """
        values, _ = self._layout.steps(self._core, steps, final_obs, where, many=False)
        return self._recorded(values, 1, lambda: self._core.add(values, where))

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store T time steps at once, as T calls of `add` would (`Permuted` in a `Reservoir` by other random numbers).

        Arguments, results and errors are those of `add` with a T axis: ``[R] T [E] *field.shape``.
        """
        values, length = self._layout.steps(self._core, steps, final_obs, where, many=True)
        return self._recorded(values, length, lambda: self._core.extend(values, where, length))

    def check_steps(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> None:
        """Raise what `extend` would raise of these steps; store nothing, and let nothing follow them.

        For steps that are stored elsewhere. It copies no value that has its field's dtype. With a `FrameStack` of
        stacked input, steps are checked as those that follow the last stored ones.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer = ReplayBuffer(10, {"x": Field((2,))})
            >>> buffer.check_steps(x=[[1.0, 2.0], [3.0, 4.0]]), len(buffer)
            (None, 0)
        """
        values, length = self._layout.steps(self._core, steps, final_obs, where, many=True)
        axes = [n for n in (self.replicas, length, self.num_envs) if n is not None]
        self._core.extend(values, np.zeros(axes, np.bool_) if where is None else np.zeros_like(where), length)

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Say that environments were reset separately: their next step does not follow a stored step.

        Needed only if an episode is left without an end (neither terminated nor truncated); no transform then looks
        over that border, and in "next_step" mode the coming step is stored.

        Args:
            where: bool ``[R] [E]``; None: in all environments.
        """
        self._core.end_episode(where)
        if self._custom is not None:
            with self._custom.lock.held():
                self._custom.end_episode(where, (self.replicas or 1, self.num_envs or 1))

    def clear(self) -> None:
        """Drop every stored step.

        Ids are not reused: the next one is the next multiple of C, so that id i is still in slot i mod C. Random
        streams and episodes continue, too: the next step belongs to the episode begun before, unless `end_episode` is
        called. The sampler forgets its feedback. The memory is kept for later steps.

        Raises:
            ConfigError: The rows are in a `storage`, which other processes use too.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer = ReplayBuffer(10, {"x": Field()}, seed=0)
            >>> ids, _ = buffer.extend(x=[1.0, 2.0]), buffer.clear()
            >>> len(buffer), buffer.add(x=4.0), buffer.update_priorities(ids, [1.0, 1.0])
            (0, 10, 0)
        """
        with nullcontext() if self._custom is None else self._custom.lock.held(adding=True):
            self._saved.clear()  # ids do not show what changed; also to who saves between the two
            self._core.clear()
            self._saved.clear()
            if self._custom is not None:
                self._custom.clear()

    def sample(self, batch_size: int, *, progress: npt.ArrayLike | None = None, out: Batch | None = None) -> Batch:
        """Draw a batch in every replica.

        Args:
            batch_size: B ≥ 1. `Online` gives one row and `Combined("plus")` B + 1.
            progress: Training progress in [0, 1], needed if the sampler has a schedule (β): one number, or of each
                replica, float (R,), where they progress apart.
            out: A batch from an equal call; its arrays are overwritten and it is returned.

        Raises:
            EmptyBufferError: Nothing, or not enough, or less than `min_size` is stored, or every priority is zero.
            ConfigError: `batch_size` or `progress` is out of its range, or `progress` is missing; or `out` is
                given with a sampler written in Python.
            ShapeError, FieldError: `out` does not fit.
        """
        layout = self._layout
        if not (type(batch_size) is int and 0 < batch_size <= layout.usual_batch):
            batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
            check_batch_memory(layout.batch_row_nbytes, batch_size * (self.replicas or 1))
        scheduled = layout.scheduled(progress)
        if layout.in_core and out is None:
            columns = self._core.sample(batch_size, scheduled, None)
            if layout.plain_batches:
                return Batch(columns)
            layout.relabel(columns)
            return layout.batch(columns)
        if not layout.in_core and out is not None:
            raise ConfigError("`out` is not taken with a sampler written in Python; leave it out")
        if self._custom is not None:
            return self._sample_custom(self._custom, batch_size, progress)
        if self._rescorer is not None:
            kept = self._rescorer.keep(self._pool(batch_size, self._rescorer.sampler.m, scheduled), batch_size)
            self._core.count(kept.id)
            return kept
        if self._player is not None:
            return self._replay_tape(self._player, batch_size)
        if not isinstance(out, Batch):
            raise FieldError(
                f"`out` must be a Batch that an equal call to sample returned, but got {type(out).__name__}"
            )
        if layout.hindsight is not None and layout.n_step is not None:  # its columns take another shape first
            copy_batch(self.sample(batch_size, progress=progress), out)
            return out
        own = dict(flatten(out.__dict__)) if layout.nested else out.__dict__
        layout.relabel(self._core.sample(batch_size, scheduled, own))
        return out

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

        Batch k is drawn from the buffer as it stands when batch k − `prefetch` is asked for (at the start, for the
        first ones). Until a draw that was asked for is made, `add`, `extend`, `update_priorities` and the other
        calls that would change it wait. So what comes is a function of the seed and of the calls, however fast the
        thread is; an iterator that is closed has drawn what it asked for. A step may be overwritten between the
        draw and the feedback: ids see to it that `update_priorities` then changes nothing.

        Args:
            batch_size: B, as for `sample`.
            prefetch: How many batches to draw ahead; 0: none, and no thread.
            total: How many batches to yield; None: no end.
            progress: As for `sample`, or a function of k that gives it, called when batch k is asked for.
            pin_memory: Pin every batch, so that ``batch.torch("cuda")`` copies while Python continues. Each has its
                own memory, which PyTorch uses again after its copy has ended.
            device: Where to put every batch, ahead with `prefetch`: "jax" (JAX's default device), a `jax.Device` or
                sharding, or a device of PyTorch such as "cuda:0"; the batch then holds that library's arrays, as
                `Batch.jax` and `Batch.torch` return them. None: NumPy's.

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
        batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        prefetch = positive("prefetch", prefetch, most=LARGEST_AXIS, least=0)
        total = None if total is None else positive("total", total)
        pin_memory = checked("pin_memory", pin_memory, flag)
        return ahead.batches(self, batch_size, prefetch, total, progress, delivery(pin_memory, device))

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Give the sampler the learner's feedback for these steps.

        Ids whose step has been dropped since change nothing, nor does −1; of equal ids the last one counts.
        Samplers that take no feedback count the ids and change nothing.

        Args:
            ids: int64 ``[R] ...``, from `add`, `extend` or a batch.
            td_error: δ of the same shape, of any sign: p = |δ| + ε. An array of JAX or a tensor of PyTorch that is on
                another device is waited for and copied once.
            priority: Instead of `td_error`: p itself, ≥ 0; a step of priority 0 is never drawn.

        Returns:
            How many of the ids were still stored.

        Raises:
            PriorityError: A value is NaN, infinite, or a negative priority; nothing is changed.
            IdError: An id was never given out.
            ShapeError, DtypeError: The arrays do not fit each other.
        """
        if (td_error is None) == (priority is None):
            raise ConfigError("`update_priorities` takes either `td_error` or `priority`; pass exactly one of them")
        values = priority if td_error is None else td_error
        name = "priority" if td_error is None else "td_error"
        if self._custom is None:
            try:
                return self._core.update(ids, values, td_error is not None)
            except TypeError:
                values_array(name, values)  # which says of PyTorch's error, of bfloat16, what to do
                raise
        rows, fed = ids_array(ids), values_array(name, values)
        found = self._core.update(rows, fed, td_error is not None)
        shape = (self.replicas or 1, -1)
        rows, fed = rows.reshape(shape), fed.reshape(shape)
        if self._layout.sequence is not None:  # feedback is the whole block's
            blocks = self._blocks(rows)
            rows, fed = blocks.reshape(shape), np.repeat(fed, blocks.shape[-1], axis=-1)
        with self._custom.lock.held():
            self._custom.update(rows, fed)
        return found

    def as_batch(self, ids: npt.ArrayLike) -> Batch:
        """Return these steps in the form of a drawn batch, transformed; every weight is 1.

        It changes neither replay counts nor random streams: draws continue as if it had not been called. Where a
        transform picks at random (`Hindsight`), it picks as in the next draw.

        Args:
            ids: int64 ``[R] B``, of stored steps.

        Raises:
            IdError: A step is not stored, or not any more.
            OverSizeError: The batch would not fit into this machine's memory.
        """
        rows = ids_array(ids)
        check_batch_memory(self._layout.batch_row_nbytes, rows.size)
        columns = self._core.gather(rows, True, True)
        self._layout.relabel(columns)
        if self._layout.sequence is not None and rows.size:  # a sequence's id is that of its oldest stored step
            rows = self._core.blocks(rows, True)[..., 0]
        return self._layout.batch(columns | {"weight": np.ones(rows.shape, np.float32), "id": rows})

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> ReplayStats:
        """Return figures of what is stored, drawn and prioritized now; takes time and memory O(N).

        Args:
            batch_size: B, for the figures of a law that depends on it; None: they are None.
            progress: Training progress, likewise.
        """
        batch_size = None if batch_size is None else positive("batch_size", batch_size, most=LARGEST_AXIS)
        if progress is not None:
            checked_progress(progress, self.replicas)
        return stats_of(self, batch_size, progress)

    def stored_ids(self) -> list[npt.NDArray[np.int64]]:
        """Return the ids of the stored steps, replica by replica, (N,), oldest first."""
        return stored_ids(self)

    def replay_counts(self) -> list[npt.NDArray[np.int64]]:
        """Return how often each stored step was drawn, replica by replica, (N,) in the order of `stored_ids`.

        Raises:
            ConfigError: The buffer was made without ``count_replays=True``.
        """
        return replay_counts(self)

    def __repr__(self) -> str:
        return show.text(self)

    def _repr_html_(self) -> str:
        return show.html(self)

    def _recorded(self, values: Mapping[str, Any], length: int, store: Callable[[], Any]) -> Any:
        """Store steps, and record them for a custom sampler."""
        if self._custom is None:
            self._core.await_draws()
            return store()
        flags = flags_of(values)
        with self._custom.lock.held(adding=True):
            ids = store()
            self._custom.stored(ids, flags, (self.replicas or 1, length, self.num_envs or 1))
        return ids

    def _pool(self, batch_size: int, times: int, scheduled: list[float]) -> Batch:
        rows = positive("batch_size", batch_size, most=LARGEST_AXIS // times) * times
        check_batch_memory(self._layout.batch_row_nbytes, rows * (self.replicas or 1))
        columns = self._core.sample(rows, scheduled, None, counted=False)
        self._layout.relabel(columns)
        return self._layout.batch(columns)

    def _replay_tape(self, player: TapePlayer, batch_size: int) -> Batch:
        with player.lock.held():
            ids, columns = player.draw(batch_size, self.replicas, self.min_size)
            self._layout.relabel(columns)
            own = {"weight": np.ones(ids.shape, np.float32), "probability": np.full(ids.shape, np.nan), "id": ids}
            return self._layout.batch(columns | own)

    def _sample_custom(self, custom: CustomState, batch_size: int, progress: npt.ArrayLike | None) -> Batch:
        with custom.lock.held():
            views, drawn, probabilities = custom.draw(batch_size, self.min_size)
            ids = drawn
            if self._layout.sequence is not None:
                blocks = self._blocks(drawn)
                ids, probabilities = blocks[..., 0], self._block_law(custom, blocks, batch_size)
            weights = custom.weights(views, probabilities, progress)
            custom.count(drawn)
            own: dict[str, Any] = {"weight": weights.astype(np.float32), "probability": probabilities, "id": ids}
            if self.replicas is None:
                own = {name: column[0] for name, column in own.items()}
            columns = self._core.gather(drawn if self.replicas is not None else drawn[0], True)
            self._layout.relabel(columns)
            return self._layout.batch(columns | own)
