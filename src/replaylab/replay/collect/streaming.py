"""A replay inside a data pipeline: steps go in, batches come out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from replaylab import arguments
from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError, EmptyBufferError, FieldError, SnapshotError
from replaylab.files.manifest import PLAIN, folder_of, whole
from replaylab.replay import snapshot
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.source_items import fields_of_step, steps_of
from replaylab.replay.data.arrays import positive
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed
from replaylab.replay.protocols import Replay, RestorableReplay, a_replay, require

MOST_STEPS = 2**62


class ReplayStream:
    """Takes steps from an iterable, stores each, and yields a batch for each once enough are stored.

    The next step is taken when the next batch is asked for, no sooner, so that a source that acts with what the
    learner has learned acts with all of it. The learner may hold `buffer` and feed back to it. A second iteration
    goes through the source again and keeps what is stored.

    Args:
        source: Steps (mappings of a field's name to its value, as `ReplayBuffer.add` takes them), or lists of
            them, which count as their steps one after another.
        buffer: Where they are stored, any `Replay`; or a capacity, for a `ReplayBuffer` whose fields are those of the
            first step, with uniform draws.
        batch_size: B, at most the capacity.
        warmup: How many steps must be stored before the first batch; None: B.
        progress: Training progress in [0, 1], or a function of how many batches were drawn before.
        seed: Seed of the buffer, where only its capacity is given.

    Attributes:
        source: As given.
        taken: How many steps were taken so far.
        drawn: How many batches were drawn so far.

    Raises:
        ConfigError: An option is out of its range, or `seed` is given together with a buffer.

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
    ) -> None:
        if not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            raise ConfigError(f"`source` must be an iterable of steps or of lists of them, but got {source!r:.80}")
        self.source = source
        self.taken = 0
        self.drawn = 0
        self._buffer = None if isinstance(buffer, int | np.integer) else arguments.checked("buffer", buffer, _buffer)
        self._capacity = positive("buffer", buffer) if self._buffer is None else self._buffer.capacity
        self._batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        self._warmup = self._batch_size if warmup is None else positive("warmup", warmup)
        self._progress = progress
        self._seed = seed
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

    steps_of = staticmethod(steps_of)

    def __iter__(self) -> Iterator[Batch]:
        """Go through the source once and yield batches."""
        for item in self._items():
            for step in self.steps_of(item):
                batch = self.push(step)
                if batch is not None:
                    yield batch

    def push(self, step: Mapping[str, Any]) -> Batch | None:
        """Store one step and return the batch for it, or None while too few are stored.

        Raises:
            FieldError, ShapeError, DtypeError: The step does not fit; see `ReplayBuffer.add`.
        """
        if not isinstance(step, Mapping):
            raise FieldError(
                f"a step must be a mapping of a field's name to its value, but got {arguments.shown(step)}"
            )
        if self._buffer is None:
            self._buffer = ReplayBuffer(self._capacity, fields_of_step(step), seed=self._first_seed())
        self._buffer.add(**step)
        self.taken += 1
        if len(self._buffer) < self._warmup:
            return None
        progress = self._progress(self.drawn) if callable(self._progress) else self._progress
        batch = self._buffer.sample(self._batch_size, progress=progress)
        self.drawn += 1
        return batch

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
        """The slot the next step goes into: int, or int64 ``[R]``."""
        return self._stored() % self._capacity

    @property
    def cycles(self) -> Any:
        """How often the memory has been filled to its end: int, or int64 ``[R]``."""
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
            saved = {"folder": place, "token": _token(Path(place))}
        elif self._buffer is not None:
            with TemporaryDirectory() as place:
                self._buffer.save(place)
                saved = {"files": {file.name: file.read_bytes() for file in Path(place).iterdir()}}
        return {"taken": self.taken, "drawn": self.drawn, "buffer": saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state. The buffer stays the same object, so that a learner that holds it continues with it.

        Raises:
            SnapshotError: The state is of another kind of memory, or its folder has been saved to since.
            ConfigError: The buffer is not a `RestorableReplay`, or batches are being drawn ahead from it.
        """
        taken, drawn, saved = _checked(state)
        if saved is None and self._buffer is not None:
            raise SnapshotError("the state is from before the first step; restore it into a stream without a buffer")
        if saved is not None and "folder" in saved:
            folder = folder_of(saved["folder"], "restore")
            if _token(folder) != saved["token"]:
                raise SnapshotError(f"{folder} holds a later snapshot than the state's; use the latest state")
            self._load(folder)
        elif saved is not None:
            with TemporaryDirectory() as place:
                for name, content in saved["files"].items():
                    (Path(place) / name).write_bytes(content)
                self._load(Path(place))
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
            require(self._buffer, RestorableReplay, f"{type(self).__name__}.restore").restore(place)
            return
        loaded = ReplayBuffer.load(place)
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
    except arguments.Unfit as unfit:
        raise arguments.Unfit(f"a capacity, {unfit}") from None


def _token(folder: Path) -> str:
    """Return what distinguishes a saved replay from later ones in the same folder: a snapshot's token, or a digest."""
    if (folder / "manifest.json").exists() or not folder.is_dir():
        return str(snapshot.read_manifest(folder)["token"])
    digest = sha256()
    for file in sorted(folder.iterdir()):
        digest.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    return digest.hexdigest()


def _checked(state: Any) -> tuple[int, int, Mapping[str, Any] | None]:
    """Return the counters of a state and what it has of the buffer: a folder and its token, or files by plain names.

    Raises:
        SnapshotError: `ReplayStream.state` did not return it.
    """
    try:
        taken, drawn, saved = whole(state["taken"], MOST_STEPS), whole(state["drawn"], MOST_STEPS), state["buffer"]
        if saved is not None and "folder" not in saved:
            for name, content in saved["files"].items():
                if not PLAIN.fullmatch(name) or not isinstance(content, bytes):
                    raise ValueError(f"a file is called {name!r:.80}")
        elif saved is not None and not isinstance(saved["token"], str):
            raise ValueError("a folder without a token")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"the state must be one that `state` returned, but got {state!r:.80} ({error!r})") from None
    return taken, drawn, saved
