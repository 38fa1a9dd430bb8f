"""Inspecting a buffer: the stored steps, their number, their memory, and the law by which they are drawn."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError
from replaylab.replay.data.arrays import checked_progress, ids_array, positive
from replaylab.replay.persistence import Persistent
from replaylab.replay.samplers.custom.state import CustomState


class LawTotals(NamedTuple):
    """What a law is in proportion to, over all that is stored; with replicas each is an array (R,).

    Attributes:
        total: Σ m of the law P(i) = m_i / Σ m: m = 1 (`Uniform`), or p^α.
        least: The least m > 0; of a `Sequence`, of all its steps together. Infinite where none can be drawn.
        rows: N, or how many sequences there are.
    """

    total: Any
    least: Any
    rows: Any


class Introspective(Persistent):
    """The part of `ReplayBuffer` that inspects it."""

    _custom: CustomState | None

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 ``[R] ...``; dropped steps have probability 0.
            batch_size: B, for the samplers whose law depends on it.
            progress: Training progress, for those whose law depends on it (`Recency` with a schedule).

        Raises:
            ConfigError: `batch_size` is needed, or the sampler has no exact law.
            IdError, ShapeError, DtypeError: As for `update_priorities`.
        """
        if not self.sampler.has_law:
            raise ConfigError(f"{type(self.sampler).__name__} has no exact law of one row: {self.sampler.no_law}")
        if batch_size is None:
            if self.sampler.law_needs_batch_size:
                raise ConfigError(
                    f"the law of {type(self.sampler).__name__} depends on the batch size; pass batch_size=..."
                )
            batch_size = 1
        batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        if progress is not None:
            checked_progress(progress, self.replicas)  # also where it decides nothing
        scheduled = self._layout.scheduled(progress if self.sampler.law_needs_progress else 0.0)
        law = self._core.probabilities(ids, batch_size, scheduled)
        if self._custom is None:
            return law
        rows = ids_array(ids).reshape(self.replicas or 1, -1)  # which the core has checked; it does not know the law
        with self._custom.lock.held():
            if self._layout.sequence is None:
                own = self._custom.law(rows, batch_size)
            else:
                blocks = self._blocks(rows)
                own = self._block_law(self._custom, blocks, batch_size) * (blocks[..., 0] == rows)
        return np.asarray(own).reshape(law.shape)

    def law_totals(self) -> LawTotals | None:
        """Return what the law is in proportion to, together, in O(1): by it the laws of several buffers join into one.

        None where the law is no proportion (`RankBased`, `Recency`), or a row depends on the rows drawn before it.

        Example:
            >>> from replaylab import Field, ReplayBuffer
            >>> from replaylab.replay import Prioritized
            >>> buffer = ReplayBuffer(10, {"x": Field()}, sampler=Prioritized(alpha=1.0))
            >>> _ = buffer.update_priorities(buffer.extend(x=[0.0, 1.0, 2.0]), priority=[3.0, 0.5, 0.0])
            >>> buffer.law_totals()
            LawTotals(total=3.5, least=0.5, rows=3)
        """
        found = [] if self._draws is not None else self._core.totals()
        if not found:
            return None
        if self.replicas is None:
            return LawTotals(*found[0])
        return LawTotals(*(np.array(column) for column in zip(*found, strict=True)))

    @property
    def size(self) -> Any:
        """Steps stored now: int, or int64 ``[R]``."""
        sizes = self._core.counts()[0]
        return sizes[0] if self.replicas is None else np.array(sizes, np.int64)

    @property
    def next_id(self) -> Any:
        """The id that the next step stored will get: int, or int64 ``[R]``."""
        next_ids = self._core.counts()[1]
        return next_ids[0] if self.replicas is None else np.array(next_ids, np.int64)

    def __len__(self) -> int:
        """Return how many steps are stored now, in the replica that has fewest."""
        return min(self._core.counts()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held now for rows, priorities and episodes, of all replicas."""
        return self._core.nbytes + (0 if self._custom is None else self._custom.nbytes)

    @property
    def most_nbytes(self) -> int:
        """Bytes that `nbytes` may grow to: if every episode has one step, and no derived ``next_obs`` is the next obs.

        Compressed values are counted as they are, without the packing's few per cent.
        """
        return self._core.most_nbytes + (0 if self._custom is None else self._custom.nbytes)

    def _blocks(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the ids of each id's sequence block, (R, n) → (R, n, stride), oldest first, then −1."""
        found = self._core.blocks(ids if self.replicas is not None else ids[0], False)
        return found.reshape(*ids.shape, found.shape[-1])

    def _block_law(self, custom: CustomState, blocks: npt.NDArray[np.int64], batch_size: int) -> Any:
        if not self.sampler.has_law:
            return np.full(blocks.shape[:-1], np.nan)
        return custom.law(blocks.reshape(len(blocks), -1), batch_size).reshape(blocks.shape).sum(-1)
