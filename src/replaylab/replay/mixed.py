"""Batches with a fixed share of rows from each of several buffers, such as half online, half offline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, POSITIVE, checked, tuple_of
from replaylab.errors import ConfigError, EmptyBufferError, FieldError, IdError, ShapeError
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.data.arrays import feedback_of, ids_array, positive, values_array
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed, separate_seeds
from replaylab.replay.protocols import Replay, SamplerReplay
from replaylab.replay.samplers.mixture import split_rows
from replaylab.replay.samplers.online import Queue
from replaylab.trees import flatten, unflatten


class MixedReplay:
    """Draws fixed shares of every batch from several buffers of equal fields.

    Buffer j gives Bⱼ of the B rows, its share rounded so that all rows are given, drawn and transformed in its own
    way. Sampling probability of one row: P(j, i) = (Bⱼ/B)·Pⱼ(i), which is each row's ``probability``; its ``weight``
    is that of its buffer, so it corrects the draws of buffer j. A batch has one column more, ``source`` ``[R] B``
    int64: j. It holds no state itself: add to the buffers, and save each. Source: Ball et al. 2023 (RLPD: equal shares
    of online and offline steps).

    Args:
        buffers: At least two, of any kind of `Replay`, with the same fields and replicas.
        shares: Positive share of each buffer; they need not sum to 1. None: equal shares.

    Raises:
        FieldError, ConfigError: The buffers do not fit each other, or an argument is out of its range.

    Example:
        >>> import numpy as np
        >>> from replaylab import Field, ReplayBuffer
        >>> online, offline = (ReplayBuffer(100, {"obs": Field()}, seed=seed) for seed in (0, 1))
        >>> ids = online.extend(obs=np.zeros(10)), offline.extend(obs=np.ones(50))
        >>> batch = MixedReplay((online, offline), shares=(0.25, 0.75)).sample(4)
        >>> batch.obs.tolist(), batch.source.tolist()
        ([0.0, 1.0, 1.0, 1.0], [0, 1, 1, 1])
        >>> batch.probability.tolist()
        [0.025, 0.015, 0.015, 0.015]
    """

    def __init__(self, buffers: Sequence[Replay], shares: Sequence[float] | None = None) -> None:
        self._buffers = tuple(buffers) if isinstance(buffers, Sequence) else ()
        if len(self._buffers) < 2 or not all(isinstance(buffer, Replay) for buffer in self._buffers):
            raise ConfigError(f"`buffers` must hold two or more ReplayBuffers, or other Replays, but got {buffers!r}")
        count = len(self._buffers)
        rule = tuple_of(POSITIVE, f"one positive number for each of the {count} buffers", count, count)
        weights = checked("shares", (1.0,) * count if shares is None else shares, rule)
        if not sum(weights) < math.inf:
            raise ConfigError(f"`shares` must be numbers whose sum is finite, but got {shares!r}")
        self._shares = tuple(share / math.fsum(weights) for share in weights)
        self._columns_checked = False
        first = self._buffers[0]
        for j, buffer in enumerate(self._buffers):
            if dict(flatten(buffer.fields)) != dict(flatten(first.fields)):
                raise FieldError(
                    f"the buffers of a MixedReplay must have the same fields, but buffer 0 has {first.fields} and "
                    f"buffer {j} has {buffer.fields}"
                )
            if buffer.replicas != first.replicas:
                raise ConfigError(
                    f"the buffers of a MixedReplay must have the same `replicas`, but buffer 0 has {first.replicas} "
                    f"and buffer {j} has {buffer.replicas}"
                )
        if "source" in first.fields:
            raise FieldError("MixedReplay makes the column `source` itself; give the field another name")

    @property
    def buffers(self) -> tuple[Replay, ...]:
        """The buffers; a batch's `source` holds indices into this tuple."""
        return self._buffers

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each buffer; they sum to 1."""
        return self._shares

    def __repr__(self) -> str:
        return f"MixedReplay({', '.join(f'{s:.3g} of {b}' for s, b in zip(self._shares, self._buffers, strict=True))})"

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw each buffer's share of a batch; if a buffer has too few steps, raise without drawing from any.

        Args:
            batch_size: B ≥ 1.
            progress: Training progress in [0, 1], for samplers that have a schedule.

        Raises:
            EmptyBufferError: A buffer has nothing to draw from.
            FieldError: The buffers' transforms make different columns.
            ConfigError: As for `ReplayBuffer.sample`.
        """
        rows_by_buffer = self._split(batch_size)
        for j in rows_by_buffer:
            if len(self._buffers[j]) == 0:
                raise EmptyBufferError(f"buffer {j} of the MixedReplay is empty; add at least one step before sampling")
        self._check_columns()
        for j, buffer in ((j, self._buffers[j]) for j in rows_by_buffer):
            if isinstance(buffer, ReplayBuffer):  # before another buffer, such as a queue, loses its rows
                buffer._parts.core.check_draw(rows_by_buffer[j])
        # Queues are drawn from last: their rows would be lost if another buffer raised afterwards.
        order = sorted(rows_by_buffer, key=lambda j: isinstance(getattr(self._buffers[j], "sampler", None), Queue))
        drawn = {j: self._buffers[j].sample(rows_by_buffer[j], progress=progress) for j in order}
        batches = {j: drawn[j] for j in rows_by_buffer}
        axis = 0 if self._buffers[0].replicas is None else 1
        rows = {j: batch.id.shape[axis] for j, batch in batches.items()}
        total = sum(rows.values())
        for j, batch in batches.items():
            columns = dict(batch)
            columns["probability"] = batch.probability * (rows[j] / total)
            columns["source"] = np.full(batch.id.shape, j, np.int64)
            batches[j] = Batch(columns)
        return Batch(_joined(list(batches.values()), axis))

    def reseed(self, seed: Seed) -> None:
        """Let every buffer continue with another random stream, a separate one from the same seed.

        Args:
            seed: As for `ReplayBuffer.reseed`, except that it is one seed for all replicas.

        Raises:
            ConfigError: The seed is invalid, or a buffer has no `reseed`.
        """
        buffers: tuple[Any, ...] = self._buffers
        for buffer in buffers:
            if not hasattr(buffer, "reseed"):
                raise ConfigError(
                    f"`reseed` needs buffers that have this method, but {type(buffer).__name__} has not; use a "
                    "ReplayBuffer, or add it"
                )
        for buffer, buffer_seed in zip(buffers, separate_seeds(seed, len(buffers)), strict=True):
            buffer.reseed(buffer_seed)

    def _check_columns(self) -> None:
        """Raise `FieldError` before the first draw if the buffers' transforms make different columns."""
        if self._columns_checked:
            return
        replicas = self._buffers[0].replicas
        none = np.empty((0,) if replicas is None else (replicas, 0), np.int64)
        shown = [buffer.as_batch(none) for buffer in self._buffers if isinstance(buffer, ReplayBuffer)]
        if shown:
            _joined(shown, 0 if replicas is None else 1)
        self._columns_checked = True

    def update_priorities(
        self,
        batch: Mapping[str, Any],
        td_error: npt.ArrayLike | None = None,
        *,
        priority: npt.ArrayLike | None = None,
    ) -> int:
        """Pass the learner's feedback for each row to its buffer; see `ReplayBuffer.update_priorities`.

        Args:
            batch: A batch of this `sample`, or any mapping with ``source`` and ``id``, int64 ``[R] ...``.
            td_error: δ of the same shape, of any sign.
            priority: Instead of `td_error`: the priorities, or one for all rows. Buffers whose samplers use no
                priorities ignore them.

        Returns:
            How many of the steps were still stored.

        Raises:
            IdError: A source is not the index of a buffer, or an id was never assigned by its buffer.
            ShapeError, DtypeError, PriorityError, ConfigError: As for `ReplayBuffer.update_priorities`.
            After any of them no buffer has changed.
        """
        if not isinstance(batch, Mapping) or not {"source", "id"} <= batch.keys():
            raise FieldError(
                f"`batch` must hold the columns `source` and `id`, but got {batch!r}; pass one of sample()"
            )
        source, ids = self._places(batch["source"], batch["id"])
        name, values = feedback_of(ids, td_error, priority, self, any(map(_takes_priorities, self._buffers)))
        values = values_array(name, values)  # once, not for each buffer
        # Every buffer gets the complete batch, with id −1 for rows of other buffers, so the first call checks all
        # values. Buffers that will refuse an id come first, so that nothing has changed when they raise.
        ids_by_buffer = [(buffer, np.where(source == j, ids, -1)) for j, buffer in enumerate(self._buffers)]
        ids_by_buffer.sort(key=lambda part: _has_assigned(*part))
        return sum(
            buffer.update_priorities(part, **{name if _takes_priorities(buffer) else "td_error": values})
            for buffer, part in ids_by_buffer
        )

    def probabilities(
        self, source: npt.ArrayLike, ids: npt.ArrayLike, *, batch_size: int, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            source: int64 ``[R] ...``: which buffer.
            ids: int64 of the same shape; dropped steps have probability 0.
            batch_size: B, which decides how the shares are rounded.
            progress: As for `ReplayBuffer.probabilities`.

        Raises:
            IdError, ShapeError, DtypeError, ConfigError: As for `update_priorities`, or a sampler has no exact
            sampling probability.
        """
        sources, steps = self._places(source, ids)
        requested = self._split(batch_size)
        returned = {
            j: buffer.sampler.rows(rows) if isinstance(buffer := self._buffers[j], SamplerReplay) else rows
            for j, rows in requested.items()
        }
        distribution = np.zeros(steps.shape)
        for j, rows in requested.items():
            buffer_ids = np.where(sources == j, steps, -1)
            part = self._buffers[j].probabilities(buffer_ids, batch_size=rows, progress=progress)
            distribution += part * (returned[j] / sum(returned.values()))
        return distribution

    def _split(self, batch_size: int) -> dict[int, int]:
        """Return the number of rows of each buffer that has any."""
        rows_by_share = split_rows(self._shares, positive("batch_size", batch_size, most=LARGEST_AXIS))
        return {j: rows for j, rows in enumerate(rows_by_share) if rows}

    def _places(self, source: npt.ArrayLike, ids: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return sources and ids, checked against each other."""
        sources, steps = ids_array(source), ids_array(ids)
        if sources.shape != steps.shape:
            raise ShapeError(
                f"`source` and `id` must have one shape, but got {sources.shape} and {steps.shape}; "
                "pass those of a batch"
            )
        if ((sources < 0) | (sources >= len(self._buffers))).any():
            raise IdError(f"`source` must be 0 to {len(self._buffers) - 1}, the buffers' places, but got {sources}")
        return sources, steps


def _takes_priorities(buffer: Replay) -> bool:
    """Whether a buffer uses priorities; assumed of one without a `sampler`."""
    return buffer.sampler.takes_priorities if isinstance(buffer, SamplerReplay) else True


def _has_assigned(buffer: Replay, ids: npt.NDArray[np.int64]) -> bool:
    """Whether a buffer has assigned all of these ids; True for ids of a wrong shape, which it refuses anyway."""
    next_ids = np.atleast_1d(buffer.next_id)
    if buffer.replicas is not None and ids.shape[:1] != next_ids.shape:
        return True
    rows = ids.reshape(len(next_ids), -1)
    return bool(((rows >= -1) & (rows < next_ids[:, None])).all())


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Return the parts' columns concatenated, with the same nesting."""
    columns = [dict(flatten(part)) for part in parts]
    if any(part.keys() != columns[0].keys() for part in columns):
        named = "; ".join(map(", ".join, columns))
        raise FieldError(f"the buffers' batches must have the same columns, but got {named}; use equal transforms")
    for path in columns[0]:
        shapes = {part[path].shape[:axis] + part[path].shape[axis + 1 :] for part in columns}
        if len(shapes) > 1:
            raise FieldError(
                f"the column `{path}` has another shape in each buffer's batch: {shapes}; use equal transforms"
            )
    return unflatten(parts[0], (np.concatenate([part[path] for part in columns], axis) for path in columns[0]))
