"""Several buffers as one: fixed shares of every batch from each, such as half online, half offline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError, EmptyBufferError, FieldError, IdError, ShapeError
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.data.arrays import ids_array, positive, values_array
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import flatten
from replaylab.replay.protocols import Replay, SamplerReplay
from replaylab.replay.samplers.mixture import split_rows
from replaylab.replay.samplers.online import Queue


class MixedReplay:
    """Draws fixed shares of every batch from several buffers of equal fields.

    Buffer j gives Bⱼ of the B rows, its share rounded so that all rows are given, drawn and transformed in its own
    way. Law of one row: P(j, i) = (Bⱼ/B)·Pⱼ(i), which is each row's ``probability``; its ``weight`` is the one its
    buffer gave it, so that weighted rows of buffer j stand for buffer j. A batch has one column more, ``source``
    ``[R] B`` int64: j. It holds no state of its own: add to the buffers, and save each. Source: Ball et al. 2023
    (RLPD: equal shares of online and offline steps).

    Args:
        buffers: At least two, of any kind of `Replay`, with the same fields and replicas.
        shares: Of each buffer, positive; they need not sum to 1. None: equal shares.

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
        given = np.ones(len(self._buffers)) if shares is None else np.asarray(shares)
        sound = given.shape == (len(self._buffers),) and given.dtype.kind in "iuf"
        if not sound or not ((given > 0.0) & (given < np.inf)).all():
            raise ConfigError(
                f"`shares` must be one positive number for each of the {len(self._buffers)} buffers, but got {shares!r}"
            )
        if not sum(given.tolist()) < math.inf:
            raise ConfigError(f"`shares` must be numbers whose sum is finite, but got {shares!r}")
        self._shares = tuple((given / math.fsum(given)).tolist())
        self._alike = False  # whether their columns were looked at
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
        """The buffers, whose places in this tuple are what `source` says."""
        return self._buffers

    @property
    def shares(self) -> tuple[float, ...]:
        """Of each buffer, summing to 1."""
        return self._shares

    def __repr__(self) -> str:
        return f"MixedReplay({', '.join(f'{s:.3g} of {b}' for s, b in zip(self._shares, self._buffers, strict=True))})"

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw each buffer's share of a batch, buffer by buffer; where one of them has too little, none is drawn from.

        Args:
            batch_size: B ≥ 1.
            progress: Training progress in [0, 1], for samplers that have a schedule.

        Raises:
            EmptyBufferError: A buffer has nothing to draw from.
            FieldError: The buffers' transforms make different columns.
            ConfigError: As for `ReplayBuffer.sample`.
        """
        asked = self._split(batch_size)
        for j in asked:
            if len(self._buffers[j]) == 0:
                raise EmptyBufferError(f"buffer {j} of the MixedReplay is empty; add at least one step before sampling")
        self._check_columns()
        # What cannot be drawn raises first, so that no other buffer gives rows, as a queue does once, for nothing.
        order = sorted(asked, key=lambda j: (_can_sample(self._buffers[j], asked[j]), _gives_once(self._buffers[j])))
        drawn = {j: self._buffers[j].sample(asked[j], progress=progress) for j in order}
        batches = {j: drawn[j] for j in asked}
        axis = 0 if self._buffers[0].replicas is None else 1
        rows = {j: batch.id.shape[axis] for j, batch in batches.items()}
        total = sum(rows.values())
        for j, batch in batches.items():
            columns = dict(batch)
            columns["probability"] = batch.probability * (rows[j] / total)
            columns["source"] = np.full(batch.id.shape, j, np.int64)
            batches[j] = Batch(columns)
        return Batch(_joined("", list(batches.values()), axis))

    def _check_columns(self) -> None:
        """Raise `FieldError`, before anything is drawn for the first time, where transforms make different columns."""
        if self._alike:
            return
        replicas = self._buffers[0].replicas
        none = np.empty((0,) if replicas is None else (replicas, 0), np.int64)
        shown = [buffer.as_batch(none) for buffer in self._buffers if isinstance(buffer, ReplayBuffer)]
        if shown:
            _joined("", shown, 0 if replicas is None else 1)
        self._alike = True

    def update_priorities(
        self,
        batch: Mapping[str, Any],
        td_error: npt.ArrayLike | None = None,
        *,
        priority: npt.ArrayLike | None = None,
    ) -> int:
        """Give each row's buffer the learner's feedback for it; see `ReplayBuffer.update_priorities`.

        Args:
            batch: A batch of this `sample`, or any mapping with ``source`` and ``id``, int64 ``[R] ...``.
            td_error: δ of the same shape, of any sign.
            priority: Instead of `td_error`: the priorities.

        Returns:
            How many of the steps were still stored.

        Raises:
            IdError: A source is no buffer, or an id was never given out by its buffer.
            ShapeError, DtypeError, PriorityError, ConfigError: As for `ReplayBuffer.update_priorities`.
            After any of them no buffer has changed.
        """
        if not isinstance(batch, Mapping) or not {"source", "id"} <= batch.keys():
            raise FieldError(
                f"`batch` must hold the columns `source` and `id`, but got {batch!r}; pass one of sample()"
            )
        source, ids = self._places(batch["source"], batch["id"])
        td_error = None if td_error is None else values_array("td_error", td_error)  # once, not for each buffer
        priority = None if priority is None else values_array("priority", priority)
        # Every buffer gets the whole batch, −1 for the others' rows: so the first one checks all the values. It is one
        # that refuses an id, if any does, so that nothing has changed by then.
        own = [(buffer, np.where(source == j, ids, -1)) for j, buffer in enumerate(self._buffers)]
        own.sort(key=lambda part: _gave_out(*part))
        return sum(buffer.update_priorities(part, td_error, priority=priority) for buffer, part in own)

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
            IdError, ShapeError, DtypeError, ConfigError: As for `update_priorities`, or a sampler has no exact law.
        """
        sources, steps = self._places(source, ids)
        asked = self._split(batch_size)
        given = {j: _rows(self._buffers[j], rows) for j, rows in asked.items()}
        law = np.zeros(steps.shape)
        for j, rows in asked.items():
            own = np.where(sources == j, steps, -1)
            part = self._buffers[j].probabilities(own, batch_size=rows, progress=progress)
            law += part * (given[j] / sum(given.values()))
        return law

    def _split(self, batch_size: int) -> dict[int, int]:
        """Return the rows asked of each buffer that gives any."""
        asked = split_rows(self._shares, positive("batch_size", batch_size, most=LARGEST_AXIS))
        return {j: rows for j, rows in enumerate(asked) if rows}

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


def _rows(buffer: Replay, batch_size: int) -> int:
    """Return how many rows a batch has when `batch_size` were asked for."""
    return buffer.sampler.rows(batch_size) if isinstance(buffer, SamplerReplay) else batch_size


def _can_sample(buffer: Replay, rows: int) -> bool:
    """Whether a buffer has enough for so many rows; of one that does not say, it may have."""
    return buffer.can_sample(rows) if isinstance(buffer, ReplayBuffer) else True


def _gives_once(buffer: Replay) -> bool:
    """Whether rows that were drawn in vain are gone."""
    return isinstance(getattr(buffer, "sampler", None), Queue)


def _gave_out(buffer: Replay, ids: npt.NDArray[np.int64]) -> bool:
    """Whether a buffer will find no id that it never gave out; of ids in a wrong shape it finds none."""
    next_ids = np.atleast_1d(buffer.next_id)
    if buffer.replicas is not None and ids.shape[:1] != next_ids.shape:
        return True
    rows = ids.reshape(len(next_ids), -1)
    return bool(((rows >= -1) & (rows < next_ids[:, None])).all())


def _joined(path: str, parts: list[Any], axis: int) -> Any:
    """Return the parts' columns one after the other, nested as they are."""
    first = parts[0]
    if isinstance(first, Mapping):
        if any(part.keys() != first.keys() for part in parts):
            columns = "; ".join(", ".join(part) for part in parts)
            raise FieldError(
                f"the buffers' batches must have the same columns, but got {columns}; use equal transforms"
            )
        return {name: _joined(f"{path}.{name}".lstrip("."), [part[name] for part in parts], axis) for name in first}
    if isinstance(first, tuple):
        return tuple(
            _joined(f"{path}.{i}", list(children), axis) for i, children in enumerate(zip(*parts, strict=True))
        )
    shapes = {part.shape[:axis] + part.shape[axis + 1 :] for part in parts}
    if len(shapes) > 1:
        raise FieldError(
            f"the column `{path}` has another shape in each buffer's batch: {shapes}; use equal transforms"
        )
    return np.concatenate(parts, axis=axis)
