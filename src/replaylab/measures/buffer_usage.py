"""How evenly a buffer is used, and how much a batch tells. Leading axes (replicas) are kept; ``N`` stored steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import checked, instance, reals, takes, whole

Floats = NDArray[np.float64]


@takes(probability=reals("N"))
def relative_entropy_of_law(probability: ArrayLike) -> Floats:
    """Return the entropy of a sampler's law over log N, 1 where it is uniform: (..., N) to (...); N > 1."""
    p = np.asarray(probability, dtype=np.float64)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.asarray(-(p * logs).sum(axis=-1) / np.log(p.shape[-1]))


@takes(weight=reals("B"))
def effective_sample_size(weight: ArrayLike) -> Floats:
    """Return Kish's effective number of rows of a weighted batch, (sum w)^2 / sum w^2: (..., B) to (...)."""
    w = np.asarray(weight, dtype=np.float64)
    return np.asarray(w.sum(axis=-1) ** 2 / (w**2).sum(axis=-1))


@takes(probability=reals("N"), age=reals("N"))
def mean_age(probability: ArrayLike, age: ArrayLike) -> Floats:
    """Return the mean age of a drawn row, sum P age, in steps stored since: (..., N) each, to (...)."""
    return np.asarray((np.asarray(probability, dtype=np.float64) * np.asarray(age)).sum(axis=-1))


@takes(replay_count=reals("N"))
def never_replayed_share(replay_count: ArrayLike) -> Floats:
    """Return the share of steps that were never drawn: (..., N) to (...)."""
    return np.asarray((np.asarray(replay_count) == 0).mean(axis=-1))


@takes(replay_count=reals("N"))
def gini(replay_count: ArrayLike) -> Floats:
    """Return the Gini coefficient of replay counts: 0 if all are equal, 1 - 1/N if one step has all draws.

    G = sum over i of (2 i - N - 1) x_(i) / (N sum x), x_(i) sorted; 0 where nothing was drawn. (..., N) to (...).
    """
    x = np.sort(np.asarray(replay_count, dtype=np.float64), axis=-1)
    n = x.shape[-1]
    rank = 2 * np.arange(1, n + 1) - n - 1
    total = x.sum(axis=-1)
    return np.asarray(np.divide((rank * x).sum(axis=-1), n * total, out=np.zeros_like(total), where=total > 0))


@takes(vectors=instance(Iterable, "arrays"))
def total_variance(vectors: Iterable[ArrayLike]) -> Floats:
    """Return the sum over P components of their unbiased variance over K vectors: K of shape (..., P), to (...).

    One pass (Welford 1962), so that K large gradients need not lie in memory together; NaN for fewer than two.
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
    """Return how many independent uniform rows tell as much about the mean gradient as a batch does.

    batch_size * tr Var(mean gradient, uniform draws) / tr Var(mean gradient, the sampler's draws), at frozen weights,
    both variances unbiased over K batches. Below batch_size where rows are alike, above where weights or strata help.

    Args:
        drawn: shape (..., K, P), mean gradients of K batches of the sampler, importance weights applied.
        uniform: shape (..., K', P), of batches of the same size drawn uniformly with replacement.
        batch_size: rows in a batch.
    """
    ours, theirs = (total_variance(np.moveaxis(np.asarray(x), -2, 0)) for x in (drawn, uniform))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(batch_size * theirs / ours)


@dataclass(frozen=True)
class TdErrors:
    """Fresh absolute TD errors of the drawn rows; each of shape (...)."""

    mean: Floats
    median: Floats
    max: Floats
    std: Floats
    percentile: Floats
    """Mean percentile in the buffer, 0 to 100: 50 where draws have nothing to do with TD errors."""

    gap: Floats
    """Mean of fresh minus stored: how stale priorities are."""


@takes(fresh=reals("B"), stored=reals("B"), buffer=reals("N"))
def td_errors(fresh: ArrayLike, stored: ArrayLike, buffer: ArrayLike) -> TdErrors:
    """Return statistics of the drawn rows' absolute TD errors.

    Args:
        fresh: shape (..., B), TD errors of the drawn rows by the learner as it is now; signs do not matter.
        stored: shape (..., B), those the sampler drew by.
        buffer: shape (..., N), fresh ones of all stored rows, or of a uniform sample of them.
    """
    ours, old, every = (np.abs(np.asarray(x, dtype=np.float64)) for x in (fresh, stored, buffer))
    return TdErrors(
        mean=np.asarray(ours.mean(axis=-1)),
        median=np.asarray(np.median(ours, axis=-1)),
        max=np.asarray(ours.max(axis=-1)),
        std=np.asarray(ours.std(axis=-1)),
        percentile=_mean_percentile(ours, np.sort(every, axis=-1)),
        gap=np.asarray((ours - old).mean(axis=-1)),
    )


def _mean_percentile(values: Floats, ordered: Floats) -> Floats:
    """Return the mean share of `ordered` (..., N) below each of `values` (..., B), ties by half, in percent: (...)."""
    leading = np.broadcast_shapes(values.shape[:-1], ordered.shape[:-1])
    ours = np.broadcast_to(values, (*leading, values.shape[-1])).reshape(-1, values.shape[-1])
    every = np.broadcast_to(ordered, (*leading, ordered.shape[-1])).reshape(-1, ordered.shape[-1])
    ranks = [
        (np.searchsorted(y, x, "left") + np.searchsorted(y, x, "right")).mean()
        for x, y in zip(ours, every, strict=True)
    ]
    return np.asarray(np.reshape(ranks, leading) * (50.0 / ordered.shape[-1]))
