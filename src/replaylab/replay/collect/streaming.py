"""A replay inside a data pipeline: steps go in, batches come out."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from replaylab import arguments
from replaylab.arguments import LARGEST_AXIS, InvalidArgument, text, tuple_of, whole
from replaylab.errors import ConfigError, EmptyBufferError, FieldError, SnapshotError
from replaylab.files.folder import contents_of, digest_of, folder_of, folder_with
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.data.arrays import as_array, widened
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field, Tree, field_at
from replaylab.replay.data.seeding import Seed
from replaylab.replay.prefetch import progress_at
from replaylab.replay.protocols import Replay, RestorableReplay, a_replay, require
from replaylab.replay.samplers.sampler import Sampler
from replaylab.trees import flatten, unflatten

PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)
"""Names of files in a folder itself, on every system."""


class ReplayStream:
    """Takes steps from an iterable, stores each, and yields a batch for each once enough are stored.

    The next step is taken only when the next batch is requested, so that a source that acts by the learner's policy
    uses its newest parameters. The learner may hold `buffer` and feed back to it. A second iteration goes through the
    source again and keeps what is stored.

    Args:
        source: Steps (mappings of a field's name to its value, as `ReplayBuffer.add` takes them; NamedTuples and
            dataclasses of them; or tuples, see `names`), or lists of steps, which count as their steps one by one.
        buffer: Where they are stored, any `Replay`; or a capacity, for a `ReplayBuffer` whose fields are those of the
            first step.
        batch_size: B, at most the capacity.
        warmup: How many steps must be stored before the first batch; None: B.
        progress: Training progress in [0, 1], or a function of how many batches were drawn before.
        seed: Seed of the buffer, where only its capacity is given.
        sampler: Its sampler; None: `Uniform`, which may draw a step twice in a batch.
        names: The fields' names in the order of a tuple's values; None: those of the `ReplayBuffer` that is given.

    `len` is the number of stored steps. `position` and `cycles` count what was written: after exactly as many steps as
    the capacity they are 0 and 1. (Memories that wrap at the next step would say that many and 0.)

    Attributes:
        source: The iterable.
        taken: How many steps were taken so far.
        drawn: How many batches were drawn so far.

    Raises:
        ConfigError: An option is out of its range, or `seed` or `sampler` is given together with a buffer.

    Example:
        >>> steps = ({"obs": [0.1 * t, 0.0], "reward": 1.0} for t in range(100))
        >>> stream = ReplayStream(steps, 50, batch_size=8, seed=0)
        >>> sum(batch.obs.shape == (8, 2) for batch in stream)
        93
        >>> stream.size, stream.position, stream.cycles
        (50, 0, 2)
    """

    def __init__(
        self,
        source: Iterable[Any],
        buffer: Replay | int,
        batch_size: int,
        *,
        warmup: int | None = None,
        progress: float | Callable[[int], float] | None = None,
        seed: Seed = None,
        sampler: Sampler | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            raise ConfigError(f"`source` must be an iterable of steps or of lists of them, but got {source!r:.80}")
        self.source = source
        self.taken = 0
        self.drawn = 0
        self._buffer = None if isinstance(buffer, int | np.integer) else arguments.checked("buffer", buffer, _buffer)
        self._capacity = arguments.checked("buffer", buffer, whole()) if self._buffer is None else self._buffer.capacity
        self._batch_size = arguments.checked("batch_size", batch_size, whole(most=LARGEST_AXIS))
        self._warmup = self._batch_size if warmup is None else arguments.checked("warmup", warmup, whole())
        self._progress = progress
        self._seed, self._sampler = seed, sampler
        self._names = arguments.checked("names", names, arguments.optional(tuple_of(text, "a sequence of field names")))
        if self._names is None and isinstance(self._buffer, ReplayBuffer):
            self._names = tuple(self._buffer.fields)
        if self._batch_size > self._capacity:
            raise ConfigError(
                "`batch_size` must be at most the capacity, or every batch repeats rows, but got "
                f"(batch_size={self._batch_size:,}, capacity={self._capacity:,})"
            )
        if self._warmup > self._capacity:
            raise ConfigError(
                f"`warmup` must be at most the capacity, or no batch is ever drawn, but got (warmup={warmup}, "
                f"capacity={self._capacity})"
            )
        if seed is not None and self._buffer is not None:
            raise ConfigError("`seed` is for a buffer made here, but one was given; seed that one")
        if sampler is not None and self._buffer is not None:
            raise ConfigError("`sampler` is for a buffer made here, but one was given; make that one with the sampler")

    def steps_of(self, item: Any) -> Sequence[Mapping[str, Any]]:
        """Return an item of the source as a sequence of steps, each a mapping of a field's name to its value.

        Raises:
            FieldError: It is neither a step nor a list of steps.
        """
        return steps_of(item, self._names)

    def __iter__(self) -> Iterator[Batch]:
        """Go through the source once and yield batches."""
        for item in self._items():
            for step in self.steps_of(item):
                batch = self.push(step)
                if batch is not None:
                    yield batch

    def push(self, step: Any) -> Batch | None:
        """Store one step and return the batch for it, or None while too few are stored.

        Raises:
            FieldError, ShapeError, DtypeError: The step does not fit; see `ReplayBuffer.add`.
        """
        steps = self.steps_of(step)
        if len(steps) != 1:
            raise FieldError(f"`push` takes one step, but got {arguments.shown(step)}; push them one by one")
        if self._buffer is None:
            options: dict[str, Any] = {"sampler": self._sampler, "seed": self._first_seed()}
            self._buffer = ReplayBuffer(self._capacity, fields_of_step(steps[0]), **options)
        self._buffer.add(**steps[0])
        self.taken += 1
        if len(self._buffer) < self._warmup:
            return None
        batch = self.sample()
        self.drawn += 1
        return batch

    def sample(self, batch_size: int | None = None) -> Batch:
        """Return a batch from what is stored now, which takes no step and is not counted in `drawn`.

        Args:
            batch_size: None: B.

        Raises:
            EmptyBufferError: Nothing is stored, or too little for the sampler.
        """
        progress = progress_at(self._progress, self.drawn)()
        return self.buffer.sample(self._batch_size if batch_size is None else batch_size, progress=progress)

    def __len__(self) -> int:
        return 0 if self._buffer is None else len(self._buffer)

    @property
    def buffer(self) -> Replay:
        """The memory itself, for the learner to feed back to.

        Raises:
            EmptyBufferError: Only a capacity was given, and the fields are not known before the first step.
        """
        if self._buffer is None:
            raise EmptyBufferError(
                "the buffer is made from the fields of the first step; take a batch first, or pass a ReplayBuffer"
            )
        return self._buffer

    @property
    def size(self) -> Any:
        """Steps stored now: int, or int64 ``[R]``."""
        return 0 if self._buffer is None else self._buffer.size

    @property
    def position(self) -> Any:
        """Slot of the next step: int, or int64 ``[R]``."""
        return self._stored() % self._capacity

    @property
    def cycles(self) -> Any:
        """Number of times that the memory has been filled to its end: int, or int64 ``[R]``."""
        return self._stored() // self._capacity

    def state(self, folder: str | PathLike[str] | None = None) -> dict[str, Any]:
        """Return what `restore` needs to continue exactly: the memory and the counters, but nothing of the source.

        Args:
            folder: Save the buffer there (incrementally, see `ReplayBuffer.save`) and return only where it is. None:
                the state holds the snapshot's files, and is as large as the buffer.
        """
        folder = arguments.checked("folder", folder, arguments.optional(arguments.place("a folder")))
        saved: dict[str, Any] | None = None
        if self._buffer is not None and folder is not None:
            self._buffer.save(folder)
            place = str(Path(folder).resolve())
            saved = {"folder": place, "digest": digest_of(Path(place))}
        elif self._buffer is not None:
            saved = {"files": contents_of(self._buffer.save)}
        return {"taken": self.taken, "drawn": self.drawn, "buffer": saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state in place: the buffer stays the same object, so references to it stay valid.

        Raises:
            SnapshotError: The state is of another kind of memory, or its folder has been saved to since.
            ConfigError: The buffer is not a `RestorableReplay`, or batches are being drawn ahead from it.
        """
        taken, drawn, saved = _checked(state)
        if saved is None and self._buffer is not None:
            raise SnapshotError("the state is from before the first step; restore it into a stream without a buffer")
        if saved is not None and "folder" in saved:
            folder = folder_of(saved["folder"], "restore")
            if digest_of(folder) != saved["digest"]:
                raise SnapshotError(f"{folder} holds a later snapshot than the state's; use the latest state")
            self._load(folder)
        elif saved is not None:
            with folder_with(saved["files"]) as folder:
                self._load(folder)
        self.taken, self.drawn = taken, drawn

    def __repr__(self) -> str:
        memory = f"capacity {self._capacity:,}" if self._buffer is None else repr(self._buffer)
        return (
            f"{type(self).__name__}(batches of {self._batch_size:,} from {self._warmup:,} steps on; "
            f"taken {self.taken:,}, position {self.position}, cycles {self.cycles}; {memory})"
        )

    def _load(self, place: Path) -> None:
        """Restore the buffer from a folder."""
        if self._buffer is not None:
            buffer = require(self._buffer, RestorableReplay, f"{type(self).__name__}.restore")
            buffer.restore(place, continue_episodes=True)
            return
        loaded = ReplayBuffer.load(place, continue_episodes=True)
        if loaded.capacity != self._capacity:
            raise SnapshotError(
                f"the snapshot is of a buffer with capacity={loaded.capacity}, but this one has {self._capacity}; make "
                "the stream as the saved one was made"
            )
        self._buffer = loaded

    def _items(self) -> Iterable[Any]:
        return self.source

    def _first_seed(self) -> Seed:
        return self._seed

    def _stored(self) -> Any:
        """Return how many steps have been stored so far."""
        return 0 if self._buffer is None else self._buffer.next_id


def _buffer(value: Any) -> Replay:
    """A replay, where a capacity would do as well."""
    try:
        return a_replay(value)
    except arguments.InvalidArgument as invalid:
        raise arguments.InvalidArgument(f"a capacity, {invalid}") from None


def _checked(state: Any) -> tuple[int, int, Mapping[str, Any] | None]:
    """Return the counters of a state and what it has of the buffer: a folder and its digest, or files by plain names.

    Raises:
        SnapshotError: `ReplayStream.state` did not return it.
    """
    try:
        taken, drawn, saved = whole(0)(state["taken"]), whole(0)(state["drawn"]), state["buffer"]
        if saved is not None and "folder" not in saved:
            for name, content in saved["files"].items():
                if not PLAIN.fullmatch(name) or not isinstance(content, bytes):
                    raise ValueError(f"a file is called {name!r:.80}")
        elif saved is not None and not isinstance(saved["digest"], str):
            raise ValueError("a folder without a digest")
    except (InvalidArgument, LookupError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"the state must be one that `state` returned, but got {state!r:.80} ({error!r})") from None
    return taken, drawn, saved


def steps_of(item: Any, names: Sequence[str] | None = None) -> Sequence[Mapping[str, Any]]:
    """Return an item of a source as a sequence of steps.

    A step is a mapping, a NamedTuple or a dataclass of values by name; or a tuple with a value for each of `names`.

    Raises:
        FieldError: It is neither a step nor a list of steps.
    """
    single = _step(item, names)
    if single is not None:
        return (single,)
    steps = [_step(step, names) for step in item] if isinstance(item, list | tuple) else [None]
    if None in steps:
        forms = "NamedTuples, dataclasses, or tuples where `names` says what their values are"
        raise FieldError(
            f"the source must give steps (mappings of a field's name to its value, {forms}) or lists of them, but gave "
            f"{item!r:.80}"
        )
    return [step for step in steps if step is not None]


def _step(item: Any, names: Sequence[str] | None) -> Mapping[str, Any] | None:
    """Return a step as a mapping, None if the item is not a step."""
    if isinstance(item, Mapping):
        return item
    if is_dataclass(item) and not isinstance(item, type):
        return {step_field.name: getattr(item, step_field.name) for step_field in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    plain = isinstance(item, tuple) and names is not None and len(item) == len(names)
    if plain and any(_step(value, names) is None for value in item):  # otherwise it is a tuple of steps
        return dict(zip(names or (), item, strict=True))
    return None


def fields_of_step(step: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the fields that hold one step: arrays keep shape and dtype; Python's floats become float32.

    Example:
        >>> fields_of_step({"obs": np.zeros((2, 2), np.uint8), "reward": 1.0})
        {'obs': Field((2, 2), uint8), 'reward': Field((), float32)}
    """

    def field(path: str, value: Any) -> Field:
        array = widened(as_array(f"field `{path}`", value))
        plain = not hasattr(value, "dtype") and array.dtype == np.float64
        return field_at(path, array.shape, np.float32 if plain else array.dtype)

    fields: dict[str, Tree] = unflatten(step, iter([field(path, value) for path, value in flatten(step)]))
    return fields
