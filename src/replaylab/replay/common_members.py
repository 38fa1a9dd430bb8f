"""Members that `ReplayBuffer` and `Priorities` share: options, sizes, probabilities and snapshots."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from replaylab.errors import ConfigError
from replaylab.replay import introspection, persistence
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_parts import BufferParts
from replaylab.replay.data import undelivered
from replaylab.replay.data.arrays import feedback_of, values_array
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage import Retention


class SamplingTotals(NamedTuple):
    """Sums over the stored steps of the mass m that the sampling probability P(i) = m_i / Σ m is proportional to.

    With replicas each is an array ``[R]``. Source of sharing by totals: Horgan et al. 2018.

    Attributes:
        total: Σ m, where m = 1 (`Uniform`) or p^α (`Prioritized`).
        least: The smallest m > 0; with a `Sequence`, of the sum over its steps. Infinite if nothing can be drawn.
        rows: N, the number of stored steps, or of sequences.
    """

    total: Any
    least: Any
    rows: Any


class CommonMembers:
    """Members that need only the parts of a buffer, with rows or without."""

    def _make(self, config: BufferConfig, seed: Seed) -> None:
        """Create the parts of a new, empty buffer."""
        self._parts = BufferParts.of(config, seed)

    @property
    def capacity(self) -> int:
        """C, the steps kept in each replica."""
        return self._parts.config.capacity

    @property
    def num_envs(self) -> int | None:
        """E, or None without an environment axis."""
        return self._parts.config.num_envs

    @property
    def sampler(self) -> Sampler:
        """The sampler."""
        return self._parts.config.sampler

    @property
    def retention(self) -> Retention:
        """The retention: which steps are kept."""
        return self._parts.config.retention

    @property
    def min_size(self) -> int:
        """The steps that must be stored before a batch is drawn."""
        return self._parts.config.min_size

    @property
    def size(self) -> Any:
        """Steps stored now, without removed ones: int, or int64 ``[R]``."""
        return self._parts.size

    @property
    def next_id(self) -> Any:
        """The id that the next step stored will get: int, or int64 ``[R]``."""
        parts = self._parts
        return parts.of_replicas(parts.core.counts()[1])

    def __len__(self) -> int:
        """Return how many steps are stored now, in the replica that has fewest."""
        return min(self._parts.core.counts()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held now for rows, priorities and episodes, of all replicas."""
        return self._parts.nbytes

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 ``[R] ...``; dropped steps have probability 0.
            batch_size: B, for the samplers whose sampling distribution depends on it.
            progress: Training progress, for those whose distribution depends on it (`Recency` with a schedule).

        Raises:
            ConfigError: `batch_size` is needed, or the sampler has no exact sampling probability.
            IdError, ShapeError, DtypeError: As for `update_priorities`.
        """
        return introspection.probabilities(self._parts, ids, batch_size, progress)

    def sampling_totals(self) -> SamplingTotals | None:
        """Return what the sampling probabilities are proportional to, summed over the stored steps, in O(1).

        With it you can draw from several buffers as from one: choose a buffer with probability total / Σ totals, then
        a row of it. `RemoteReplay` does so with its shards. None if the probabilities are not proportional to a number
        of each step (`RankBased`, `Recency`), if a row depends on the rows drawn before it, or if the sampler draws in
        Python.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> from replaylab.replay import Prioritized
            >>> buffer = ReplayBuffer(10, {"x": Field()}, sampler=Prioritized(alpha=1.0))
            >>> _ = buffer.update_priorities(buffer.extend(x=[0.0, 1.0, 2.0]), priority=[3.0, 0.5, 0.0])
            >>> buffer.sampling_totals()
            SamplingTotals(total=3.5, least=0.5, rows=3)
        """
        totals = self._parts.engine.totals()
        if not totals:
            return None
        if self._parts.config.replicas is None:
            return SamplingTotals(*totals[0])
        return SamplingTotals(*(np.array(column) for column in zip(*totals, strict=True)))

    @property
    def state(self) -> dict[str, Any] | None:
        """The training loop's `state` in the snapshot that was loaded or restored; see `save`.

        None if the snapshot has none, and for a buffer that was created, unpickled or copied. It is an attribute, and
        not a second result of `load`, so that `load` always returns a buffer, and `restore` reads it too.
        """
        loop_state: dict[str, Any] | None = self._parts.loop_state
        return loop_state

    def save(self, path: str | os.PathLike[str], *, state: Mapping[str, Any] | None = None) -> None:
        """Write everything to a folder: rows, priorities, ids and random streams; see `snapshot` for the format.

        A kill at any moment leaves either the old or the new snapshot, complete. Saving to the same folder again
        writes only the rows that changed. Rows of a `storage` are not written: `load` opens it, including the steps
        added to it since.

        Batches that were drawn ahead and not delivered yet are part of it; see `ReplayBuffer.batches`.

        The snapshot is consistent. Other threads may draw and feed back meanwhile; their `add` waits. A signal handler
        may save the buffer, except if it interrupts another `save` of it; have the handler set a flag then.

        Args:
            path: The folder.
            state: What else the training loop needs to continue, such as networks, optimizers, random states and
                counters. It is written with the buffer, so that both are of the same moment, and is the attribute
                `state` of the loaded buffer. Its values, nested at most 64 levels deep, are None, bools, numbers, text,
                bytes, NumPy arrays, tensors of PyTorch (so a ``state_dict()``), and dicts, lists and tuples of these;
                keys are text or whole numbers. Subclasses return as dict, list, tuple, str or int; tensors on the CPU,
                without gradients. Nothing is pickled. None: the snapshot has no state, even if the previous one had.

        Raises:
            ConfigError: `path` is not a path, or a value of `state` cannot be stored; the message names its place.
            StorageError: The folder cannot be created or written to.
            SnapshotError: The folder holds something other than a complete snapshot of this version, or the buffer has
                options that cannot be saved, or a signal handler has interrupted another `save` of the buffer. The
                previous snapshot stays. `add` raises it too, in a signal handler that interrupts a `save`.

        Example:
            >>> import tempfile
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer, folder = ReplayBuffer(100, {"x": Field()}), tempfile.mkdtemp()
            >>> buffer.save(folder, state={"step": 1_000, "rng": np.random.default_rng(0).bit_generator.state})
            >>> ReplayBuffer.load(folder).state["step"]
            1000
        """
        persistence.save(self._parts, path, state)

    def restore(self, path: str | os.PathLike[str], *, continue_episodes: bool | None = None) -> None:
        """Restore, in place, what `save` wrote; see `ReplayBuffer.restore`."""
        persistence.restore(self, path, continue_episodes)

    def reseed(self, seed: Seed) -> None:
        """Continue with another random stream: the one that a new buffer of this seed has.

        Stored steps and priorities stay. A process that gets a copy of the buffer, by a fork or as an argument of a
        spawned process, must call it before its first draw, with another seed in each process: parent and child would
        otherwise draw the same batches. Batches of a loaded snapshot that were not delivered yet are dropped.

        Args:
            seed: As for the constructor; None: fresh entropy.

        Raises:
            ConfigError: A seed is not a whole number from 0 on, or their number is not R.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> one, other = (ReplayBuffer(100, {"x": Field()}, seed=seed) for seed in (0, 1))
            >>> ids = [buffer.extend(x=range(100)) for buffer in (one, other)]
            >>> other.reseed(0)
            >>> (one.sample(8).id == other.sample(8).id).all()
            np.True_
        """
        parts = self._parts
        parts.engine.reseed(seed)
        undelivered.drop_saved(parts.ahead)

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately: their next step does not follow a stored step.

        Needed only if an episode is abandoned (neither terminated nor truncated). No transform then crosses that
        border, and in "next_step" mode the next step is stored.

        Args:
            where: bool ``[R] [E]``; None: in all environments.
        """
        self._parts.engine.end_episode(where)

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
        parts = self._parts
        parts.saved.clear()  # ids do not show what changed: the next save writes all rows
        parts.engine.clear()
        parts.saved.clear()  # again, in case a save ran in between

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Pass the learner's feedback for these steps to the sampler.

        Ids whose step has been dropped since change nothing, nor does −1; for equal ids, the last one counts.
        Samplers that take no feedback ignore `td_error`: they count the ids and change nothing. If a sampler needs
        feedback and 1,000 batches were drawn without any, the buffer warns once.

        Args:
            ids: int64 ``[R] ...``, from `add`, `extend` or a batch.
            td_error: δ of the same shape, of any sign: p = |δ| + ε. An array of JAX or a tensor of PyTorch that is on
                another device is waited for and copied once.
            priority: Instead of `td_error`: p itself, ≥ 0, of each id, or one number for all; a step of priority 0 is
                never drawn. In a `Mixture` this holds for the parts that use priorities.

        Returns:
            How many of the ids were still stored.

        Raises:
            ConfigError: `priority` is given, but the sampler uses no priorities.
            PriorityError: A value is NaN, infinite, or a negative priority; nothing is changed.
            IdError: An id was never assigned.
            ShapeError, DtypeError: The arrays do not fit each other.
        """
        parts = self._parts
        sampler = parts.config.sampler
        name, values = feedback_of(ids, td_error, priority, sampler, sampler.takes_priorities)
        parts.engine.unfed = None
        try:
            return parts.engine.update(ids, values, td_error is not None)
        except TypeError:
            values_array(name, values)  # raises an error with a fix, e.g. for PyTorch's bfloat16
            raise

    def remove(self, ids: npt.ArrayLike) -> int:
        """Remove steps: no sampler draws them again, and no other step's batch row uses them.

        To the others it is as if they had been overwritten: a removed step's episode is divided there. The step before
        it is treated like a truncated one: n-step returns end there, and still bootstrap from its ``next_obs``.
        Frame stacks and sequences begin again after it, and hindsight goals come from the same side. Samplers by age or
        rank count the remaining steps only. `len`, `size`, `stored_ids`, `probabilities` and `stats` are of the
        remaining steps, too. `columns` still shows a removed step, whose slot is filled again when its turn comes.

        Ids are treated as `update_priorities` does: those whose step has been dropped or removed since change nothing,
        nor does −1. With `Sequence`, only the steps of these ids are removed, not the others of their sequences.

        Args:
            ids: int64 ``[R] ...``, from `add`, `extend` or a batch.

        Returns:
            How many of the ids were still stored.

        Raises:
            IdError: An id was never assigned; nothing is removed.
            DtypeError, ShapeError: As for `update_priorities`.
            ConfigError: The rows are in a `storage`, which other processes use too; or the sampler is one of
                `replaylab.research` that needs every step.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> buffer = ReplayBuffer(10, {"x": Field()}, seed=0)
            >>> ids = buffer.extend(x=[0.0, 1.0, 2.0])
            >>> buffer.remove(ids[1:2]), len(buffer), buffer.probabilities(ids).tolist()
            (1, 2, [0.5, 0.0, 0.5])
        """
        sampler = self._parts.config.sampler
        if not sampler.allows_removal:
            raise ConfigError(
                f"steps cannot be removed from a buffer with {type(sampler).__name__}, which draws by the places of "
                "all steps; use a sampler of replaylab.replay, such as Uniform() or Prioritized()"
            )
        return self._parts.engine.remove(ids)

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> introspection.ReplayStats:
        """Return figures of what is stored, drawn and prioritized now; takes time and memory O(N).

        Args:
            batch_size: B, for the figures of a sampling distribution that depends on it; None leaves these out.
            progress: Training progress, likewise.
        """
        return introspection.stats_of(self._parts, batch_size, progress)

    def __reduce__(self) -> Any:
        return persistence.reduced(self)

    def __copy__(self) -> Self:
        return persistence.refuse_copy(self)

    def __deepcopy__(self, memo: Any) -> Self:
        return persistence.copied(self, memo)
