"""A replay without fields: laws, priorities and ids over slots that somebody else stores."""

import os
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.data import seeding
from replaylab.replay.data.arrays import checked_progress, positive
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field, Tree
from replaylab.replay.data.memory import check_batch_memory
from replaylab.replay.introspection.introspective import Introspective
from replaylab.replay.introspection.stats import ReplayStats, replay_counts, stats_of, stored_ids
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.uniform import Uniform
from replaylab.replay.storage.retention import Assigned, Fifo, Retention
from replaylab.replay.storage.storage import Storage
from replaylab.replay.transforms.transform import Transform


def _ends() -> dict[str, Field]:
    """What is told of each step, and kept of none."""
    return {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}


@dataclass(frozen=True, eq=False)
class PrioritiesConfig(BufferConfig):
    """The options of `Priorities`, which documents them."""

    kind: ClassVar[str] = "Priorities"
    rows_elsewhere: ClassVar[bool] = True
    retentions: ClassVar[tuple[type[Retention], ...]] = (Fifo, Assigned)

    fields: Mapping[str, Tree] = field(init=False, default_factory=_ends)
    replicas: int | None = field(init=False, default=None)
    transforms: ListOf[Transform] = field(init=False, default=())
    next_obs: Literal["stored", "derived"] = field(init=False, default="stored")
    storage: Storage | None = field(init=False, default=None)
    autoreset: Any = field(init=False, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return all options as JSON values, and whose they are."""
        return super().to_json() | {"kind": self.kind}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampler.in_core:
            raise ConfigError(
                f"{type(self.sampler).__name__} is written in Python and looks at rows, of which Priorities has none; "
                "use a sampler of the core, such as Prioritized or RankBased, or a ReplayBuffer"
            )
        if isinstance(self.retention, Assigned) and self.num_envs is not None:
            raise ConfigError(
                f"`num_envs` must be None with Assigned(), where each step has a slot and no environment, but got "
                f"{self.num_envs}; leave it out"
            )


class Priorities(Introspective):
    """Says which of the steps to draw that somebody else stores, by an exactly known law, and takes feedback for them.

    It is a `ReplayBuffer` without rows: the same core, samplers, ids and laws, and not a byte for a step's values. With
    `Fifo` the steps lie where a ring buffer has them, id i in slot i mod C; with `Assigned` whoever stores them says
    where. All methods may be called from several threads at once.

    Args:
        capacity: C, how many slots there are.
        sampler: What to draw. One written in Python (`CustomSampler`, `LaBER`) needs a `ReplayBuffer`.
        num_envs: E, environments that add together, in a row of slots; None: no E axis.
        retention: `Fifo` (default): the oldest step goes; or `Assigned`: the one in the slot that `assign` names.
        count_replays: Whether to count how often each step is drawn, for `stats`; four bytes a step.
        min_size: Steps that must be stored before a batch is drawn.
        seed: Seed of its own random stream; None: fresh entropy.

    Raises:
        ConfigError: An argument is out of its range, or the sampler needs rows, or an order that `Assigned` has not.
        OverSizeError: The priorities would not fit into this machine's memory.

    Example:
        >>> import numpy as np
        >>> from replaylab.replay import Prioritized, Priorities
        >>> rows, priorities = np.zeros((1000, 4)), Priorities(1000, sampler=Prioritized(beta=0.4), seed=0)
        >>> ids = priorities.extend(3)  # rows 0, 1 and 2 were written
        >>> batch = priorities.sample(8)
        >>> rows[batch.slot].shape, batch.weight.shape
        ((8, 4), (8,))
        >>> priorities.update_priorities(batch.id, np.ones(8))
        8
    """

    _options: ClassVar[type[BufferConfig]] = PrioritiesConfig

    def __init__(
        self,
        capacity: int,
        *,
        sampler: Sampler = Uniform(),  # noqa: B008 - frozen
        num_envs: int | None = None,
        retention: Retention = Fifo(),  # noqa: B008
        count_replays: bool = False,
        min_size: int = 1,
        seed: seeding.Seed = None,
    ) -> None:
        self._config = PrioritiesConfig(
            capacity,
            sampler=sampler,
            num_envs=num_envs,
            retention=retention,
            count_replays=count_replays,
            min_size=min_size,
        )
        self._layout = BufferLayout(self._config)
        self._core = self._layout.make_core(seed)
        self._saved = {}
        self._custom = self._rescorer = self._player = None

    def add(
        self,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        where: npt.ArrayLike | None = None,
    ) -> Any:
        """Number one step of every environment, and return the ids; step i lies in slot i mod C.

        Args:
            terminated: bool ``[E]``, whether the step ended its episode; None: nowhere. For the samplers that go by
                episodes; the others do not ask.
            truncated: Likewise.
            where: bool ``[E]``; where False there is no step. None: everywhere True.

        Returns:
            int64 ``[E]``, an int without an E axis; −1 where there is no step.

        Raises:
            ConfigError: Slots are assigned; use `assign`.
            ShapeError, DtypeError: An array is none of such flags.
        """
        return self._core.add(self._told((), terminated, truncated), where)

    def extend(
        self,
        steps: int,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        where: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.int64]:
        """Number T time steps of every environment, as T calls of `add` would.

        Args:
            steps: T.
            terminated: bool ``T [E]``; as for `add`.
            truncated: Likewise.
            where: Likewise.

        Returns:
            int64 ``T [E]``.
        """
        steps = positive("steps", steps, most=LARGEST_AXIS, least=0)
        check_batch_memory(8, steps * (self.num_envs or 1))
        ids: npt.NDArray[np.int64] = self._core.extend(self._told((steps,), terminated, truncated), where, steps)
        return ids

    def assign(self, slots: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Number steps that now lie in these slots, one after another, and return the ids.

        Args:
            slots: int64 of any shape, 0 to C − 1. What lay there is gone; of equal slots the last one's step stays.

        Returns:
            int64 of the same shape.

        Raises:
            ConfigError: The steps lie in a ring; use `add`, or make it with ``retention=Assigned()``.
            IdError: There is no such slot; nothing is changed.
            DtypeError: They are no whole numbers.
        """
        if not isinstance(self.retention, Assigned):
            raise ConfigError(
                "`assign` says where steps lie, but here step i lies in slot i mod C; use add() or extend(), or make "
                "Priorities with retention=Assigned()"
            )
        return self._core.assign(slots)

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Say that environments were reset: their next step does not follow one that is stored.

        Args:
            where: bool ``[E]``; None: in all environments.
        """
        self._core.end_episode(where)

    def clear(self) -> None:
        """Drop every step. The next id is the next multiple of C, so that step i is still in slot i mod C."""
        self._core.clear()
        self._saved.clear()

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch: ``slot`` (B,) int64, ``id`` (B,) int64, ``weight`` (B,) float32, ``probability`` (B,) float64.

        Args:
            batch_size: B ≥ 1. `Online` gives one row and `Combined("plus")` B + 1.
            progress: Training progress in [0, 1], needed if the sampler has a schedule.

        Raises:
            EmptyBufferError: Nothing, or not enough, is stored, or every priority is zero.
            ConfigError: `batch_size` or `progress` is out of its range, or `progress` is missing.
        """
        batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        check_batch_memory(28, batch_size)
        return Batch(self._core.sample(batch_size, self._layout.scheduled(progress), None))

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Give the sampler the learner's feedback, as `ReplayBuffer.update_priorities` does.

        Ids whose step is gone change nothing, nor does −1; of equal ids the last one counts.

        Args:
            ids: int64 ``...``, from `add`, `extend`, `assign` or a batch.
            td_error: δ of the same shape, of any sign.
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
        return self._core.update(ids, priority if td_error is None else td_error, td_error is not None)

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> ReplayStats:
        """Return figures of what is stored, drawn and prioritized now, as `ReplayBuffer.stats` does."""
        batch_size = None if batch_size is None else positive("batch_size", batch_size, most=LARGEST_AXIS)
        if progress is not None:
            checked_progress(progress, None)
        return stats_of(self, batch_size, progress)

    def stored_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the steps that are there, (N,), oldest first."""
        return stored_ids(self)[0]

    def replay_counts(self) -> npt.NDArray[np.int64]:
        """Return how often each of them was drawn, (N,) in the order of `stored_ids`.

        Raises:
            ConfigError: It was made without ``count_replays=True``.
        """
        return replay_counts(self)[0]

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, sampler: Sampler | None = None) -> Self:  # type: ignore[override]
        """Return what `save` wrote; it continues exactly as the saved one would have.

        Args:
            path: The folder.
            sampler: As for `ReplayBuffer.load`.

        Raises:
            ConfigError: `path` is not a path.
            SnapshotError: The snapshot is damaged, not complete, or none of `Priorities`.
            StorageError: The folder cannot be read.
        """
        return cls._loaded(path, {"sampler": sampler})

    def __repr__(self) -> str:
        envs = f", {self.num_envs} envs" if self.num_envs else ""
        return f"Priorities({self.size:,} of {self.capacity:,} slots{envs}, {self.sampler!r})"

    def _told(self, leading: tuple[int, ...], terminated: Any, truncated: Any) -> dict[str, Any]:
        """Return the flags as the core takes them; where none are given, nothing ended."""
        if isinstance(self.retention, Assigned):
            raise ConfigError("slots are assigned here, so a step needs its slot; use assign(slots)")
        shape = leading if self.num_envs is None else (*leading, self.num_envs)
        if terminated is None or truncated is None:
            none = np.zeros(shape, np.bool_)
            terminated, truncated = (none if one is None else one for one in (terminated, truncated))
        return {"terminated": terminated, "truncated": truncated}
