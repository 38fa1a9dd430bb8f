"""A replay inside a data pipeline: steps go in, batches come out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from replaylab import arguments
from replaylab.errors import ConfigError, EmptyBufferError, FieldError, SnapshotError
from replaylab.replay import snapshot
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.steps import Step, fields_of_step, steps_of
from replaylab.replay.config_json import is_custom
from replaylab.replay.data.arrays import MOST, positive
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed
from replaylab.replay.manifest import PLAIN, folder_of, whole

COMPARED = {"capacity", "fields", "num_envs", "replicas", "sampler", "transforms", "next_obs", "retention"}
MOST_STEPS = 2**62


class ReplayStream:
    """Takes steps from an iterable, stores each, and yields a batch for each once enough are stored.

    The next step is taken when the next batch is asked for, no sooner, so that a source that acts with what the
    learner has learned acts with all of it. The learner may hold `buffer` and feed back to it. A second iteration
    goes through the source again and keeps what is stored.

    Args:
        source: Steps (mappings of a field's name to its value, as `ReplayBuffer.add` takes them), or lists of
            them, which count as their steps one after another.
        buffer: Where they are stored; or a capacity, for a buffer whose fields are those of the first step, with
            uniform draws.
        batch_size: B, at most the capacity.
        warmup: How many steps must be stored before the first batch; None: B.
        progress: Training progress in [0, 1], or a function of how many batches were drawn before.
        seed: Seed of the buffer, where only its capacity is given.

    Attributes:
        source: As given.
        taken: How many steps were taken so far.
        drawn: How many batches were drawn so far.

    Raises:
        ConfigError: An option is out of its range, or `seed` is given beside a buffer.

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
        buffer: ReplayBuffer | int,
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
        self._buffer = buffer if isinstance(buffer, ReplayBuffer) else None
        self._capacity = buffer.capacity if isinstance(buffer, ReplayBuffer) else positive("buffer", buffer)
        self._batch_size = positive("batch_size", batch_size, most=MOST)
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

    def __iter__(self) -> Iterator[Batch]:
        """Go through the source once and yield batches."""
        for item in self._items():
            for step in steps_of(item):
                batch = self.push(step)
                if batch is not None:
                    yield batch

    def push(self, step: Step) -> Batch | None:
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
    def buffer(self) -> ReplayBuffer:
        """The memory itself, for the learner to feed back to.

        Raises:
            EmptyBufferError: Only a capacity was given, and no step has told the fields yet.
        """
        if self._buffer is None:
            raise EmptyBufferError(
                "the buffer is made when the first step tells its fields; take a batch first, or pass a ReplayBuffer"
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
        """Return what `restore` needs to go on exactly: the memory and the counters, but nothing of the source.

        Args:
            folder: Save the buffer there (incrementally, see `ReplayBuffer.save`) and return only where it is. None:
                the state holds the snapshot's files, and is as large as the buffer.
        """
        folder = arguments.checked("folder", folder, arguments.optional(arguments.place("a folder")))
        saved: dict[str, Any] | None = None
        if self._buffer is not None and folder is not None:
            self._buffer.save(folder)
            place = str(Path(folder).resolve())
            saved = {"folder": place, "token": snapshot.read_manifest(Path(place))["token"]}
        elif self._buffer is not None:
            with TemporaryDirectory() as place:
                self._buffer.save(place)
                saved = {"files": {file.name: file.read_bytes() for file in Path(place).iterdir()}}
        return {"taken": self.taken, "drawn": self.drawn, "buffer": saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state. The buffer stays the same object, so that a learner that holds it goes on with it.

        Raises:
            SnapshotError: The state is of another kind of memory, or its folder has been saved to since.
        """
        taken, drawn, saved = _checked(state)
        if saved is None and self._buffer is not None:
            raise SnapshotError("the state is from before the first step; restore it into a stream without a buffer")
        if saved is not None and "folder" in saved:
            folder = folder_of(saved["folder"], "restore")
            if snapshot.read_manifest(folder)["token"] != saved["token"]:
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
        """Put a saved buffer's inside into the one here."""
        own = self._buffer
        mine = {"capacity": self._capacity} if own is None else own._made.to_json()
        given: dict[str, Any] = {}  # what a snapshot cannot hold: samplers and functions of the user's own
        for name in ("sampler", "transforms"):
            if own is not None and is_custom(mine[name]):
                given[name] = getattr(own, name)
        loaded = ReplayBuffer.load(place, **given)
        theirs = loaded._made.to_json()
        for name in COMPARED & mine.keys():
            if theirs[name] != mine[name]:
                raise SnapshotError(
                    f"the state is of a buffer with {name}={getattr(loaded, name)}, but this one has "
                    f"{mine[name] if own is None else getattr(own, name)}; make the stream as the saved one was made"
                )
        if own is None:
            self._buffer = loaded
            return
        if "_drawer" in own.__dict__:
            raise ConfigError("batches are being drawn ahead from the buffer; close the iterators, then restore")
        own.__dict__.clear()
        own.__dict__.update(loaded.__dict__)

    def _items(self) -> Iterable[Any]:
        return self.source

    def _first_seed(self) -> Seed:
        return self._seed

    def _stored(self) -> Any:
        """Return how many steps have been stored so far."""
        if self._buffer is None:
            return 0
        next_ids = self._buffer._core.counts()[1]
        return next_ids[0] if self._buffer.replicas is None else np.array(next_ids, np.int64)


def _checked(state: Any) -> tuple[int, int, Mapping[str, Any] | None]:
    """Return the counters of a state and what it has of the buffer: a folder and its token, or files by plain names.

    Raises:
        SnapshotError: It is none that `ReplayStream.state` returned.
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
