"""What a buffer does for a sampler written in Python."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay.data.arrays import as_array
from replaylab.replay.data.seeding import PythonDraws
from replaylab.replay.samplers.custom.records import Record
from replaylab.replay.samplers.custom.sampler import CustomSampler, Floats, Ids, TopScores, View

SUMS_TO_ONE = 1e-4
"""How far the sum of a law may be from 1: chances in float32 add up to that, of millions of steps."""

DRAWN_AS_IT_IS = 1e-12
"""How far it may be from 1 without being divided by it."""


def flags_of(values: Mapping[str, Any]) -> list[npt.NDArray[Any]]:
    """Return copies of what says which steps end an episode: views of a buffer's rows change when it stores them."""
    names = [name for name in ("terminated", "truncated") if name in values]
    return [as_array(f"field `{name}`", values[name]).copy() for name in names]


class CustomState(PythonDraws):
    """The part of a buffer that serves a `CustomSampler`: also a record of what is stored."""

    def __init__(
        self,
        core: _core.Replay,
        sampler: CustomSampler,
        generators: list[np.random.Generator],
        capacity: int,
        num_envs: int,
        stride: int | None = None,
    ) -> None:
        super().__init__(core, generators)
        self.sampler = sampler
        self._stride = stride
        self._records = [Record(capacity, num_envs) for _ in generators]

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return sum(array.nbytes for record in self._records for array in vars(record).values())

    def stored(self, ids: Any, flags: list[npt.NDArray[Any]], axes: tuple[int, int, int]) -> None:
        """Take note of stored steps, which end an episode where a flag is not 0; `axes` are R, T, E."""
        ended = np.zeros(axes, np.bool_)
        for flag in flags:
            ended |= flag.astype(np.bool_).reshape(axes)
        for record, row, last in zip(self._records, np.reshape(ids, axes), ended, strict=True):
            record.stored(row, last)

    def clear(self) -> None:
        """Take note that no step is stored any more."""
        for record in self._records:
            record.clear()

    def end_episode(self, where: Any, axes: tuple[int, int]) -> None:
        """Begin new episodes; `axes` are R, E."""
        asked = np.ones(axes, np.bool_) if where is None else np.asarray(where, np.bool_).reshape(axes)
        for record, row in zip(self._records, asked, strict=True):
            record.end_episode(row)

    def draw(self, batch_size: int, min_size: int) -> tuple[list[View], Ids, Floats]:
        """Return what was seen, ids and probabilities of a batch in every replica (R, B); `count` it afterwards."""
        views = [View(record, replica, self._stride) for replica, record in enumerate(self._records)]
        least = min(map(len, views))
        if least == 0 and min_size == 1:
            raise EmptyBufferError("the buffer is empty; add at least one step before sampling")
        if least < min_size:
            raise EmptyBufferError(
                f"the buffer was made with min_size={min_size}, but only {least} steps are stored; add more steps "
                "before sampling"
            )
        drawn = [
            self._drawn(view, record, batch_size, rng)
            for view, record, rng in zip(views, self._records, self._generators, strict=True)
        ]
        ids, laws = zip(*drawn, strict=True)
        return views, np.stack(ids), np.stack(laws)

    def weights(self, views: list[View], probabilities: Floats, progress: npt.ArrayLike | None) -> Floats:
        """Return the weights of a batch whose rows have these probabilities (R, B)."""
        each = np.broadcast_to(np.asarray(progress), len(self._records)).tolist()
        return np.stack([self._weights(*one) for one in zip(views, probabilities, each, strict=True)])

    def count(self, ids: Ids) -> None:
        """Take note that these ids (R, B) were drawn, which may change the law."""
        for record, row in zip(self._records, ids, strict=True):
            np.add.at(record.counts, record.find(row)[0], 1)

    def law(self, ids: Ids, batch_size: int) -> Floats:
        """Return the probabilities of ids (R, K); 0 for those no longer stored."""
        out = np.zeros(ids.shape)
        for r, record in enumerate(self._records):
            view = View(record, r, self._stride)
            _, stored = record.find(ids[r])
            if stored.any():
                out[r, stored] = self._law(view, batch_size)[np.searchsorted(view.ids, ids[r, stored])]
        return out

    def update(self, ids: Ids, values: Floats) -> None:
        """Take note of feedback for ids (R, K)."""
        for record, row, value in zip(self._records, ids, np.abs(values), strict=True):
            slots, stored = record.find(row)
            record.feedback[slots[stored]] = value[stored]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of all records, to be saved."""
        return {
            f"custom{r}.{name}": array.copy()
            for r, one in enumerate(self._records)
            for name, array in vars(one).items()
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        for r, one in enumerate(self._records):
            one.restore({name: arrays[f"custom{r}.{name}"] for name in vars(one)})
        super().restore(arrays, generators)

    def _drawn(self, view: View, record: Record, batch_size: int, rng: np.random.Generator) -> tuple[Ids, Floats]:
        """Return the ids of a batch of one replica and their probabilities, (B,)."""
        sampler = self.sampler
        if isinstance(sampler, TopScores):  # its law would score all steps again
            ids = self._checked(sampler.draw(view, batch_size, rng), record, batch_size)
            return ids, np.full(batch_size, 1.0 / batch_size)
        law = self._law(view, batch_size) if sampler.has_law else np.full(len(view), np.nan)
        if sampler.has_law and type(sampler).draw is CustomSampler.draw:  # would ask for the law again
            ids = rng.choice(view.ids, size=batch_size, p=law)
        else:
            ids = self._checked(np.asarray(sampler.draw(view, batch_size, rng)), record, batch_size)
        return ids, law[np.searchsorted(view.ids, ids)]

    def _weights(self, view: View, probabilities: Floats, progress: float | None) -> Floats:
        weights = as_array(
            f"`weights` of {type(self.sampler).__name__}", self.sampler.weights(view, probabilities, progress)
        )
        sound = weights.shape == probabilities.shape and weights.dtype.kind in "biuf"
        if not sound or not ((weights >= 0) & (weights <= np.finfo(np.float32).max)).all():
            raise ConfigError(
                f"`weights` of {type(self.sampler).__name__} must return {len(probabilities)} weights, one a row, "
                f"finite in float32 and not negative, but returned {weights!r}"
            )
        return weights.astype(np.float64)

    def _checked(self, drawn: npt.NDArray[Any], record: Record, batch_size: int) -> Ids:
        """Return the ids that a sampler drew, if they are ids of as many stored steps as it should give."""
        fits = drawn.shape == (self.sampler.rows(batch_size),) and drawn.dtype.kind in "iu"
        if not fits or not record.find(drawn)[1].all():
            raise ConfigError(
                f"`draw` of {type(self.sampler).__name__} must return the ids of stored steps, int64 (B,), but "
                f"returned {drawn}; take them from view.ids"
            )
        return drawn.astype(np.int64)

    def _law(self, view: View, batch_size: int) -> Floats:
        law = np.asarray(self.sampler.law(view, batch_size))
        law = law.astype(np.float64) if law.dtype.kind in "biuf" else np.full(law.shape, np.nan)
        wanted = f"`law` of {type(self.sampler).__name__} must return {len(view)} chances that sum to 1, but returned"
        if law.shape != (len(view),):
            raise ConfigError(f"{wanted} an array of shape {law.shape}")
        if not (law >= 0).all():
            at = int(np.argmin(law >= 0))
            raise ConfigError(f"{wanted} {law[at]} for the step with the id {view.ids[at]}")
        total = law.sum()
        if not abs(total - 1.0) <= SUMS_TO_ONE:
            raise ConfigError(f"{wanted} some that sum to {total}; divide them by their sum")
        return law if abs(total - 1.0) <= DRAWN_AS_IT_IS else np.asarray(law / total)
