"""LaBER: of a large uniform batch, rescored by the learner as it is now, the rows that matter are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import LARGEST_AXIS, check, function, whole
from replaylab.errors import PriorityError, ShapeError
from replaylab.replay.data.arrays import on_cpu
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import map_leaves
from replaylab.replay.data.seeding import PythonDraws
from replaylab.replay.samplers.sampler import Sampler

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LaBER(Sampler):
    """Large batch experience replay: fresh scores instead of stored priorities.

    A pool of m·B rows is drawn uniformly, `score` rates them, and B of them are drawn with replacement. Law given
    the pool: P(row) = score/Σ score, which is also ``batch.probability``. Importance weights: w = mean(score)/score,
    so that the weighted mean of the batch expects the plain mean of the buffer, whatever the scores. A row of score
    0 is never kept; where all are 0, all are alike. Source: Lahire, Geist & Rachelson 2022, whose scores bound the
    norm of each row's gradient (|δ| times what the last layer adds).

    The law over pools has no closed form. `score` runs in the thread that samples, holds no lock of the buffer and
    may call it.

    Attributes:
        score: Takes the pool as a `Batch` of m·B rows, transformed as any batch; returns finite scores ≥ 0,
            ``[R] m·B``.
        m: How many times B rows the pool has. Default: 4.

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
    m: int = 4

    no_law: ClassVar[str] = "a row's probability depends on its whole pool; batch.probability is the one given the pool"
    in_core: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, score=function("a Batch"), m=whole(most=LARGEST_AXIS))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know: how to draw the pool."""
        return _core.SamplerConfig("uniform")


class Rescorer(PythonDraws):
    """The part of a buffer that serves `LaBER`."""

    def __init__(self, core: _core.Replay, sampler: LaBER, generators: list[np.random.Generator]) -> None:
        super().__init__(core, generators)
        self.sampler = sampler

    def keep(self, pool: Batch, batch_size: int) -> Batch:
        """Return the B rows of a pool that are kept, with their chances and weights given the pool."""
        scores = self._scores(pool)
        scores /= scores.max(axis=-1, keepdims=True)  # so that their sum is finite, and a tiny one is not 0
        with self.lock.held():
            uniform = np.stack([generator.random(batch_size) for generator in self._generators])
        rows = np.stack([_draw(row, targets) for row, targets in zip(scores, uniform, strict=True)])
        kept = np.take_along_axis(scores, rows, axis=1)
        own: dict[str, Any] = {
            "weight": (scores.mean(axis=1, keepdims=True) / kept).astype(np.float32),
            "probability": kept / scores.sum(axis=1, keepdims=True),
        }
        single = pool.id.ndim == 1
        if single:
            own = {name: column[0] for name, column in own.items()}
        index = rows[0] if single else (np.arange(len(rows))[:, None], rows)
        take = itemgetter(index)
        return Batch({name: own[name] if name in own else map_leaves(take, column) for name, column in pool.items()})

    def _scores(self, pool: Batch) -> Floats:
        """Return the caller's scores as (R, m·B), all 1 where all are 0."""
        scores = np.asarray(on_cpu(self.sampler.score(pool))).astype(np.float64)
        if scores.shape != pool.id.shape:
            raise ShapeError(
                f"`score` of LaBER must return one score for each row of the pool, shape {pool.id.shape}, but "
                f"returned shape {scores.shape}"
            )
        if not (np.isfinite(scores) & (scores >= 0.0)).all():
            wrong = scores[~(np.isfinite(scores) & (scores >= 0.0))].flat[0]
            raise PriorityError(f"`score` of LaBER must be finite and not negative, but returned {wrong}")
        scores = scores.reshape(len(self._generators), -1)
        scores[~scores.any(axis=1)] = 1.0
        return scores


def _draw(scores: Floats, uniform: Floats) -> npt.NDArray[np.int64]:
    """Return the places where running sums of the scores pass these parts of the total; none has score 0."""
    running = scores.cumsum()
    targets = np.minimum(uniform * running[-1], np.nextafter(running[-1], 0.0))
    return np.asarray(np.searchsorted(running, targets, side="right"), np.int64)
