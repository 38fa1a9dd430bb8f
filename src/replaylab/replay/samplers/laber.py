"""LaBER: batches drawn by fresh scores of the learner from a larger uniform batch."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import LARGEST_AXIS, ArrayOf, check, function, option, returned, whole
from replaylab.errors import PriorityError
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import ReplayStreamKey, Seed
from replaylab.replay.samplers.engine import DrawEngine, Layout, PythonEngine
from replaylab.replay.samplers.sampler import Sampler
from replaylab.trees import map_leaves

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LaBER(Sampler):
    """Large batch experience replay: fresh scores instead of stored priorities.

    A pool of m·B rows is drawn uniformly, `score` rates them, and B of them are drawn with replacement. Sampling
    distribution given the pool: P(row) = score/Σ score, which is also ``batch.probability``. Importance weights: w =
    mean(score)/score, so that the weighted mean of the batch expects the plain mean of the buffer, whatever the
    scores. A row of score 0 is never kept; if all scores are 0, all rows are equally likely. Source: Lahire, Geist &
    Rachelson 2022, whose scores bound the norm of each row's gradient (|δ| times what the last layer adds).

    The distribution over pools has no closed form. `score` runs in the thread that samples, holds no lock of the
    buffer and may call it.

    Attributes:
        score: Takes the pool as a `Batch` of m·B rows, transformed as any batch; returns finite scores ≥ 0,
            ``[R] m·B``.
        m: Size of the pool, in multiples of B. Default: 4.

    Example:
        >>> import numpy as np
        >>> from replaylab import Field, ReplayBuffer
        >>> sampler = LaBER(lambda pool: abs(pool.reward))
        >>> buffer = ReplayBuffer(100, {"obs": Field(), "reward": Field()}, sampler=sampler, seed=0)
        >>> ids = buffer.extend(obs=np.arange(50.0), reward=np.arange(50) % 2.0)
        >>> buffer.sample(8).reward.min()
        np.float32(1.0)
    """

    score: Callable[[Batch], npt.ArrayLike]
    m: int = option(whole(most=LARGEST_AXIS), 4)

    no_closed_form: ClassVar[str] = (
        "a row's probability depends on its whole pool; batch.probability is the one given the pool"
    )
    in_core: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, score=function("a Batch"))

    def engine(self, core: _core.Replay, layout: Layout, seed: Seed) -> "DrawEngine":
        """Return the engine that draws for a buffer."""
        return LaBEREngine(core, layout, seed, self)


class LaBEREngine(PythonEngine[LaBER]):
    """Draws a pool by the core, and then rows of it by the learner's scores."""

    stream: ClassVar[ReplayStreamKey] = ReplayStreamKey.RESCORING

    def draw(self, batch_size: int, progress: npt.ArrayLike | None) -> Batch:
        """Draw a batch in every replica."""
        layout = self._layout
        rows = self._checked_size(batch_size, self._sampler.m)
        columns = self._core.sample(rows, layout.schedules.at(progress), None, counted=False)
        layout.relabel(columns)
        batch = self.keep(layout.batch(columns), batch_size)
        self._core.count(batch.id)
        return batch

    def keep(self, pool: Batch, batch_size: int) -> Batch:
        """Draw B rows of a pool; return them with their probabilities and weights given the pool."""
        scores = self._scores(pool)
        scores /= scores.max(axis=-1, keepdims=True)  # prevents overflow of the sum, and underflow
        with self.lock.held():
            uniform = np.stack([generator.random(batch_size) for generator in self._generators])
        rows = np.stack([_draw(row, targets) for row, targets in zip(scores, uniform, strict=True)])
        row_scores = np.take_along_axis(scores, rows, axis=1)
        columns: dict[str, Any] = {
            "weight": (scores.mean(axis=1, keepdims=True) / row_scores).astype(np.float32),
            "probability": row_scores / scores.sum(axis=1, keepdims=True),
        }
        single = pool.id.ndim == 1
        if single:
            columns = {name: column[0] for name, column in columns.items()}
        index = rows[0] if single else (np.arange(len(rows))[:, None], rows)
        take = itemgetter(index)
        return Batch(
            {name: columns[name] if name in columns else map_leaves(take, column) for name, column in pool.items()}
        )

    def _scores(self, pool: Batch) -> Floats:
        """Return the caller's scores as (R, m·B); 1 for all rows of a replica whose scores are all 0."""
        shape = pool.id.shape
        words = f"one score for each row of the pool, shape {shape}, finite and not negative"
        rule = ArrayOf(shape, words, holds=lambda array: np.isfinite(array) & (array >= 0), error=PriorityError)
        scores = returned("`score` of LaBER", self._sampler.score(pool), rule).astype(np.float64)
        scores = scores.reshape(len(self._generators), -1)
        scores[~scores.any(axis=1)] = 1.0
        return scores


def _draw(scores: Floats, uniform: Floats) -> npt.NDArray[np.int64]:
    """Return the indices where cumulative scores exceed these fractions of the total; none of them has score 0."""
    running = scores.cumsum()
    targets = np.minimum(uniform * running[-1], np.nextafter(running[-1], 0.0))
    return np.asarray(np.searchsorted(running, targets, side="right"), np.int64)
