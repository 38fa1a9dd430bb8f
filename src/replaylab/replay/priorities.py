"""A replay without fields: sampling distributions, priorities and ids for steps that are stored elsewhere."""

import os
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError
from replaylab.machine import check_batch_memory
from replaylab.replay import introspection, persistence
from replaylab.replay.buffer_config import PrioritiesConfig
from replaylab.replay.common_members import CommonMembers
from replaylab.replay.data.arrays import positive
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage import Assigned, Retention


class Priorities(CommonMembers):
    """Draws steps that are stored elsewhere, with exact sampling probabilities, and takes feedback for them.

    It is a `ReplayBuffer` without rows: the same core, samplers, ids and distributions, but no memory for the steps'
    values. With `Fifo` the steps are stored as in a ring buffer, id i in slot i mod C; with `Assigned` the caller
    assigns the slots. All methods may be called from several threads at once.

    Args:
        capacity: C, how many slots there are.
        sampler: What to draw. One written in Python (`CustomSampler`, `LaBER`) needs a `ReplayBuffer`.
        num_envs: E, environments that add together, in a row of slots; None: no E axis.
        retention: `Fifo` (default): the oldest step goes; or `Assigned`: the one in the slot that `assign` names.
        count_replays: Whether to count how often each step is drawn, for `stats`; four bytes a step.
        min_size: Steps that must be stored before a batch is drawn.
        seed: Seed of its own random stream; None: fresh entropy.

    Raises:
        ConfigError: An argument is out of its range, or the sampler needs rows, or the order of steps with `Assigned`.
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

    def __init__(
        self,
        capacity: int,
        *,
        sampler: Sampler = PrioritiesConfig.sampler,
        num_envs: int | None = None,
        retention: Retention = PrioritiesConfig.retention,
        count_replays: bool = False,
        min_size: int = 1,
        seed: Seed = None,
    ) -> None:
        config = PrioritiesConfig(
            capacity,
            sampler=sampler,
            num_envs=num_envs,
            retention=retention,
            count_replays=count_replays,
            min_size=min_size,
        )
        self._make(config, seed)

    def add(
        self,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        where: npt.ArrayLike | None = None,
    ) -> Any:
        """Number one step of every environment, and return the ids; step i is in slot i mod C.

        Args:
            terminated: bool ``[E]``, whether the step ended its episode; None: no step did. Only samplers that depend
                on episodes use it.
            truncated: Likewise.
            where: bool ``[E]``; where False there is no step. None: everywhere True.

        Returns:
            int64 ``[E]``, an int without an E axis; −1 where there is no step.

        Raises:
            ConfigError: Slots are assigned; use `assign`.
            ShapeError, DtypeError: An array does not have this shape, or is not bool.
        """
        return self._parts.core.add(self._ends_of((), terminated, truncated), where)

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
        ids: npt.NDArray[np.int64] = self._parts.core.extend(
            self._ends_of((steps,), terminated, truncated), where, steps
        )
        return ids

    def assign(self, slots: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Number steps that are now stored in these slots, one after another, and return the ids.

        Args:
            slots: int64 of any shape, 0 to C − 1. Their previous steps are dropped; of equal slots the last step stays.

        Returns:
            int64 of the same shape.

        Raises:
            ConfigError: The retention is not `Assigned`; use `add`.
            IdError: There is no such slot; nothing is changed.
            DtypeError: The slots are not integers.
        """
        if not isinstance(self.retention, Assigned):
            raise ConfigError(
                "`assign` needs retention=Assigned(), but here step i is in slot i mod C; use add() or extend(), or "
                "make Priorities with retention=Assigned()"
            )
        return self._parts.core.assign(slots)

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch: ``slot`` (B,) int64, ``id`` (B,) int64, ``weight`` (B,) float32, ``probability`` (B,) float64.

        Args:
            batch_size: B ≥ 1. `Online` gives one row and `Combined("plus")` B + 1.
            progress: Training progress in [0, 1], for a sampler that has a schedule. None: its start value, with one
                warning.

        Raises:
            EmptyBufferError: Nothing, or not enough, is stored, or every priority is zero.
            ConfigError: `batch_size` or `progress` is out of its range.
        """
        return self._parts.engine.sample(batch_size, progress, None)

    def stored_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the stored steps, (N,), oldest first."""
        return introspection.stored_ids(self._parts)[0]

    def replay_counts(self) -> npt.NDArray[np.int64]:
        """Return how often each stored step was drawn, (N,) in the order of `stored_ids`.

        Raises:
            ConfigError: It was made without ``count_replays=True``.
        """
        return introspection.replay_counts(self._parts)[0]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        sampler: Sampler | None = None,
        continue_episodes: bool | None = None,
        seed: Seed = None,
    ) -> Self:
        """Return the `Priorities` that `save` wrote.

        Args:
            path: The folder.
            sampler: As for `ReplayBuffer.load`.
            continue_episodes: As for `ReplayBuffer.load`. It matters only for samplers that depend on episodes.
            seed: As for `ReplayBuffer.load`.

        Raises:
            ConfigError: `path` is not a path.
            SnapshotError: The snapshot is damaged, not complete, or not of `Priorities`.
            StorageError: The folder cannot be read.
        """
        priorities = persistence.load(cls, PrioritiesConfig, path, {"sampler": sampler}, continue_episodes)
        if seed is not None:
            priorities.reseed(seed)
        return priorities

    def __repr__(self) -> str:
        envs = f", {self.num_envs} envs" if self.num_envs else ""
        return f"Priorities({self.size:,} of {self.capacity:,} slots{envs}, {self.sampler!r})"

    def _ends_of(self, leading: tuple[int, ...], terminated: Any, truncated: Any) -> dict[str, Any]:
        """Return the flags in the form of the core; missing flags are False."""
        if isinstance(self.retention, Assigned):
            raise ConfigError("slots are assigned here, so a step needs its slot; use assign(slots)")
        shape = leading if self.num_envs is None else (*leading, self.num_envs)
        if terminated is None or truncated is None:
            none = np.zeros(shape, np.bool_)
            terminated, truncated = (none if flags is None else flags for flags in (terminated, truncated))
        return {"terminated": terminated, "truncated": truncated}
