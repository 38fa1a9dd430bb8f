"""The engines that draw the batches of a buffer: the compiled core, or a sampler written in Python on top of it.

Shapes: R replicas, B rows, T time steps, E environments. A sampler returns its engine (`Sampler.engine`); the buffer
calls it without knowing its kind.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import LARGEST_AXIS
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError
from replaylab.machine import check_batch_memory
from replaylab.replay.data.arrays import as_array, positive
from replaylab.replay.data.batch import Batch, checked_out, copy_batch
from replaylab.replay.data.forks import BufferLock
from replaylab.replay.data.schedules import Schedules
from replaylab.replay.data.seeding import ReplayStreamKey, Seed, sampling_generators, sampling_streams
from replaylab.trees import flatten

UNFED_LIMIT = 1000
"""Batches that may be drawn before the first feedback."""


class UnfedDraws:
    """Counts the batches that are drawn before the first feedback, and warns once at `UNFED_LIMIT`.

    Priorities that differ without feedback, as those of a snapshot or of a storage do, are no reason for a warning.

    Args:
        sampler: Name of the sampler's class.
        priorities: Name of the sampler's priorities in the core's state; None: it has none.
    """

    def __init__(self, sampler: str, priorities: str | None) -> None:
        self._sampler, self._priorities, self._drawn = sampler, priorities, 0

    def counted(self, core: _core.Replay) -> "UnfedDraws | None":
        """Count a batch; return None if no more need to be counted."""
        self._drawn += 1
        if self._drawn < UNFED_LIMIT:
            return self
        if self._priorities is None or not self._differ(core):
            warnings.warn(
                f"{self._sampler} draws by priorities, but {UNFED_LIMIT:,} batches were drawn and none was fed back, "
                "so all steps still have the priority of a new step; call update_priorities(batch.id, td_error) after "
                "each update (with TorchRL update_tensordict_priority(batch)), or use a sampler without feedback, such "
                "as Uniform()",
                stacklevel=4,
            )
        return None

    def _differ(self, core: _core.Replay) -> bool:
        """Whether some stored steps have different priorities."""
        for name, values in core.state().items():
            if name.endswith(f".sampler.{self._priorities}"):
                positive = values[values > 0]
                if positive.size and positive.min() < positive.max():
                    return True
        return False


Core = _core.Replay
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Layout(Protocol):
    """The part of `BufferLayout`, which documents it, that engines use."""

    capacity: int
    num_envs: int | None
    replicas: int | None
    min_size: int
    schedules: Schedules
    usual_batch: int
    plain_batches: bool
    nested: bool
    reshapes: bool
    stride: int | None
    batch_row_nbytes: int

    def relabel(self, columns: dict[str, Any]) -> None:
        """Recompute the flat columns that depend on the goal, in place."""

    def batch(self, columns: dict[str, Any]) -> Batch:
        """Return flat columns as a batch."""


class DrawEngine:
    """Draws batches, returns probabilities and takes feedback; this base class delegates to the compiled core.

    Attributes:
        lock: The buffer's lock.
        unfed: Counts the batches of a sampler that depends on feedback until the first comes; None: none are counted.
    """

    def __init__(self, core: _core.Replay, layout: Layout) -> None:
        self._core, self._layout, self.lock = core, layout, BufferLock(core)
        self.unfed: UnfedDraws | None = None

    @property
    def in_python(self) -> "PythonEngine[Any] | None":
        """The engine itself if it draws in Python (it then has generators), otherwise None."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of memory held in addition to the core's."""
        return 0

    @property
    def moved_share(self) -> Floats | None:
        """Share of the rows drawn so far that came from a distant bin, (R,); None: no tape is drawn from."""
        return None

    def sample(self, batch_size: int, progress: npt.ArrayLike | None, out: Batch | None) -> Batch:
        """Draw a batch; see `ReplayBuffer.sample`."""
        layout = self._layout
        if self.unfed is not None:
            self.unfed = self.unfed.counted(self._core)
        if not (type(batch_size) is int and 0 < batch_size <= layout.usual_batch):
            batch_size = self._checked_size(batch_size)
        scheduled = layout.schedules.at(progress)
        if out is None:
            columns = self._core.sample(batch_size, scheduled, None)
            if layout.plain_batches:
                return Batch(columns)
            layout.relabel(columns)
            return layout.batch(columns)
        out = checked_out(out)
        if layout.reshapes:  # the columns of the core have another shape than those of the batch
            copy_batch(self.sample(batch_size, progress, None), out)
            return out
        columns = dict(flatten(out.__dict__)) if layout.nested else out.__dict__
        layout.relabel(self._core.sample(batch_size, scheduled, columns))
        return out

    def store(self, store: Callable[[], Any], values: Mapping[str, Any], length: int) -> Any:  # noqa: ARG002
        """Let the core store T time steps, and return their ids.

        Args:
            store: The call of the core.
            values: The steps, by field.
            length: T.
        """
        return store()

    def end_episode(self, where: npt.ArrayLike | None) -> None:
        """Record that environments were reset; `where` is bool ``[R] [E]``."""
        self._core.end_episode(where)

    def clear(self) -> None:
        """Drop every step."""
        self._core.clear()

    def remove(self, ids: npt.ArrayLike) -> int:
        """Remove steps; return how many of the ids were still stored."""
        return self._core.remove(ids)

    def probabilities(self, ids: npt.ArrayLike, batch_size: int, scheduled: list[float]) -> Floats:
        """Return the probabilities of these steps; see `ReplayBuffer.probabilities`."""
        return self._core.probabilities(ids, batch_size, scheduled)

    def totals(self) -> list[Any]:
        """Return each replica's `SamplingTotals`; empty if the distribution is not proportional to such masses."""
        return self._core.totals()

    def update(self, ids: npt.ArrayLike, values: npt.ArrayLike, are_errors: bool) -> int:
        """Take feedback: TD errors or priorities; return how many of the ids are still stored."""
        return self._core.update(ids, values, are_errors)

    def reseed(self, seed: Seed) -> None:
        """Continue with the random streams that a new buffer of this seed has."""
        self._core.reseed(sampling_streams(seed, self._layout.replicas))

    def _checked_size(self, batch_size: int, times: int = 1) -> int:
        rows = positive("batch_size", batch_size, most=LARGEST_AXIS // times) * times
        check_batch_memory(self._layout.batch_row_nbytes, rows * (self._layout.replicas or 1))
        return rows


SamplerT = TypeVar("SamplerT")


class PythonEngine(DrawEngine, Generic[SamplerT], ABC):
    """The base of engines that draw in Python, with a random generator for each replica.

    Attributes:
        stream: Key of the generators' random streams.
    """

    stream: ClassVar[ReplayStreamKey] = ReplayStreamKey.SAMPLING

    def __init__(self, core: _core.Replay, layout: Layout, seed: Seed, sampler: SamplerT) -> None:
        super().__init__(core, layout)
        self._sampler = sampler
        self._generators = sampling_generators(seed, layout.replicas, self.stream)

    @property
    def in_python(self) -> "PythonEngine[Any] | None":
        """The engine itself."""
        return self

    def generators(self) -> list[Any]:
        """Return the states of the random generators, as JSON values."""
        return [generator.bit_generator.state for generator in self._generators]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the engine's other state, to be saved."""
        return {}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:  # noqa: ARG002
        """Restore the state that `arrays` and `generators` returned."""
        for generator, state in zip(self._generators, generators, strict=True):
            generator.bit_generator.state = state

    def reseed(self, seed: Seed) -> None:
        """Continue with the random streams that a new buffer of this seed has."""
        generators = sampling_generators(seed, self._layout.replicas, self.stream)
        with self.lock.held():
            super().reseed(seed)
            self._generators = generators

    def sample(self, batch_size: int, progress: npt.ArrayLike | None, out: Batch | None) -> Batch:
        """Draw a batch."""
        self.lock.check_intact()
        self._core.check_streams()
        if self.unfed is not None:
            self.unfed = self.unfed.counted(self._core)
        if out is not None:
            raise ConfigError("`out` is not taken with a sampler written in Python; leave it out")
        self._layout.schedules.at(progress)  # checks `progress`
        if progress is None and self._layout.schedules.constant is None:
            progress = 0.0  # the start of a run
        return self.draw(self._checked_size(batch_size), progress)

    @abstractmethod
    def draw(self, batch_size: int, progress: npt.ArrayLike | None) -> Batch:
        """Draw a batch of this size."""

    def totals(self) -> list[Any]:
        """Return nothing: the core does not know the sampling distribution."""
        return []


class RecordingEngine(PythonEngine[SamplerT]):
    """The base of engines that record each stored step, and where episodes end."""

    def store(self, store: Callable[[], Any], values: Mapping[str, Any], length: int) -> Any:
        """Let the core store steps, and record them."""
        shape = (len(self._generators), length, self._layout.num_envs or 1)
        # Copies, since views of the buffer's rows change as it stores.
        flags = {name: as_array(f"field `{name}`", values[name]).copy() for name in ENDS if name in values}
        with self.lock.held("add"):
            ids = store()  # which checks the values
            never = np.zeros(shape)
            terminated, truncated = (flags.get(name, never).astype(np.bool_).reshape(shape) for name in ENDS)
            self.record(np.reshape(ids, shape), terminated, truncated)
        return ids

    def end_episode(self, where: npt.ArrayLike | None) -> None:
        """Begin new episodes."""
        super().end_episode(where)
        shape = (len(self._generators), self._layout.num_envs or 1)
        with self.lock.held():
            self.record_ends(np.ones(shape, np.bool_) if where is None else np.asarray(where, np.bool_).reshape(shape))

    @abstractmethod
    def record(self, ids: Ids, terminated: Bools, truncated: Bools) -> None:
        """Record steps (R, T, E), of which those with id −1 were not stored."""

    @abstractmethod
    def record_ends(self, ended: Bools) -> None:
        """Record that the episodes of these environments (R, E) were truncated."""
