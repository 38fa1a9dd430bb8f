"""Evenness of a buffer's use, and informativeness of a batch. Leading axes (replicas) are kept; ``N`` stored steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import WholeAxes, checked, instance, reals, takes, whole, wholes

Floats = NDArray[np.float64]


@takes(weight=reals("B"))
def effective_sample_size(weight: ArrayLike) -> Floats:
    """Return Kish's effective number of rows of a weighted batch, (sum w)^2 / sum w^2: (..., B) to (...)."""
    w = np.asarray(weight, dtype=np.float64)
    return np.asarray(w.sum(axis=-1) ** 2 / (w**2).sum(axis=-1))


@takes(probability=reals("N"), age=reals("N"))
def mean_age(probability: ArrayLike, age: ArrayLike) -> Floats:
    """Return the mean age of a drawn row, sum P age, in steps stored since: (..., N) each, to (...)."""
    return np.asarray((np.asarray(probability, dtype=np.float64) * np.asarray(age)).sum(axis=-1))


@takes(step=wholes("B"), end=WholeAxes(("M",), leading=False))
def steps_to_end(step: ArrayLike, end: ArrayLike) -> NDArray[np.int64]:
    """Return how many steps each is before the end of its episode, -1 if that has not ended: (..., B) to (..., B).

    Args:
        step: when each row was stored, for example its id.
        end: when the last step of each finished episode was, ascending, of one environment; at least one.
    """
    steps, ends = np.asarray(step, dtype=np.int64), np.asarray(end, dtype=np.int64)
    place = np.searchsorted(ends, steps)
    return np.asarray(np.append(ends, -1)[place] - np.where(place < len(ends), steps, 0))


@takes(replay_count=reals("N"))
def never_replayed_share(replay_count: ArrayLike) -> Floats:
    """Return the share of steps that were never drawn: (..., N) to (...)."""
    return np.asarray((np.asarray(replay_count) == 0).mean(axis=-1))


@takes(replay_count=reals("N"))
def gini(replay_count: ArrayLike) -> Floats:
    """Return the Gini coefficient of replay counts: 0 if all are equal, 1 - 1/N if one step has all draws.

    G = sum over i of (2 i - N - 1) x_(i) / (N sum x), x_(i) sorted; 0 if nothing was drawn. (..., N) to (...).
    """
    x = np.sort(np.asarray(replay_count, dtype=np.float64), axis=-1)
    n = x.shape[-1]
    rank = 2 * np.arange(1, n + 1) - n - 1
    total = x.sum(axis=-1)
    return np.asarray(np.divide((rank * x).sum(axis=-1), n * total, out=np.zeros_like(total), where=total > 0))


@takes(vectors=instance(Iterable, "arrays"))
def total_variance(vectors: Iterable[ArrayLike]) -> Floats:
    """Return the sum over P components of their unbiased variance over K vectors: K of shape (..., P), to (...).

    One pass (Welford 1962), so that K large gradients need not be in memory together; NaN for fewer than two.
    """
    count, mean, square = 0, np.zeros(()), np.zeros(())
    for vector in vectors:
        new = checked("vectors", vector, reals("P"))
        count += 1
        before = new - mean
        mean = mean + before / count
        square = square + (before * (new - mean)).sum(axis=-1)
    return np.asarray(square / (count - 1) if count > 1 else np.full(mean.shape[:-1], np.nan))


@takes(drawn=reals("K", "P"), uniform=reals("L", "P"), batch_size=whole())
def effective_batch_size(drawn: ArrayLike, uniform: ArrayLike, batch_size: int) -> Floats:
    """Return how many independent uniform rows estimate the mean gradient as precisely as a batch does.

    batch_size * tr Var(mean gradient, uniform draws) / tr Var(mean gradient, the sampler's draws), at frozen weights,
    both variances unbiased over K batches. Below batch_size if rows are correlated, above if weights or strata reduce
    the variance.

    Args:
        drawn: shape (..., K, P), mean gradients of K batches of the sampler, importance weights applied.
        uniform: shape (..., K', P), of batches of the same size drawn uniformly with replacement.
        batch_size: rows in a batch.
    """
    sampler_variance, uniform_variance = (total_variance(np.moveaxis(np.asarray(x), -2, 0)) for x in (drawn, uniform))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(batch_size * uniform_variance / sampler_variance)


@dataclass(frozen=True)
class TdErrors:
    """Fresh absolute TD errors of the drawn rows; each of shape (...)."""

    mean: Floats
    median: Floats
    max: Floats
    std: Floats
    percentile: Floats
    """Mean percentile in the buffer, 0 to 100: 50 if draws do not depend on TD errors."""

    gap: Floats
    """Mean of fresh minus stored: how stale priorities are."""


def error_statistics(error: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return mean, median, maximum and standard deviation of absolute TD errors: (..., B) to (...) each."""
    return {
        "mean": error.mean(axis=-1),
        "median": np.median(error, axis=-1),
        "max": error.max(axis=-1),
        "std": error.std(axis=-1),
    }


@takes(fresh=reals("B"), stored=reals("B"), buffer=reals("N"))
def td_errors(fresh: ArrayLike, stored: ArrayLike, buffer: ArrayLike) -> TdErrors:
    """Return statistics of the drawn rows' absolute TD errors.

    Args:
        fresh: shape (..., B), TD errors of the drawn rows by the current learner; signs do not matter.
        stored: shape (..., B), the TD errors in the sampler's priorities.
        buffer: shape (..., N), fresh TD errors of all stored rows, or of a uniform sample of them.
    """
    fresh_abs, stored_abs, buffer_abs = (np.abs(np.asarray(x, dtype=np.float64)) for x in (fresh, stored, buffer))
    return TdErrors(
        **{name: np.asarray(value) for name, value in error_statistics(fresh_abs).items()},
        percentile=_mean_percentile(fresh_abs, np.sort(buffer_abs, axis=-1)),
        gap=np.asarray((fresh_abs - stored_abs).mean(axis=-1)),
    )


def _mean_percentile(values: Floats, ordered: Floats) -> Floats:
    """Return the mean share of `ordered` (..., N) below each of `values` (..., B), ties by half, in percent: (...)."""
    leading = np.broadcast_shapes(values.shape[:-1], ordered.shape[:-1])
    value_rows = np.broadcast_to(values, (*leading, values.shape[-1])).reshape(-1, values.shape[-1])
    ordered_rows = np.broadcast_to(ordered, (*leading, ordered.shape[-1])).reshape(-1, ordered.shape[-1])
    ranks = [
        (np.searchsorted(y, x, "left") + np.searchsorted(y, x, "right")).mean()
        for x, y in zip(value_rows, ordered_rows, strict=True)
    ]
    return np.asarray(np.reshape(ranks, leading) * (50.0 / ordered.shape[-1]))
