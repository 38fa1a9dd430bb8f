"""Dependence between the rows of a batch, and its distance from the buffer.

Leading axes (replicas, draws) are kept; ``B`` rows, ``D`` features, ``N`` rows of the buffer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import FRACTION, reals, seed_number, takes, whole, wholes
from replaylab.errors import ShapeError

Floats = NDArray[np.float64]


@takes(episode=wholes("B"))
def same_episode_share(episode: ArrayLike) -> Floats:
    """Return the share of the batch's B (B - 1) / 2 pairs that come from one episode: (..., B) to (...)."""
    e = np.asarray(episode)
    rows = e.shape[-1]
    equal = (e[..., :, None] == e[..., None, :]).sum(axis=(-2, -1)) - rows
    return np.asarray(equal / (rows * (rows - 1)))


@takes(step=wholes("B"))
def smallest_gap(step: ArrayLike) -> NDArray[np.int64]:
    """Return the smallest distance in steps between two rows, 0 if a row is repeated: (..., B) to (...).

    Args:
        step: when each row was stored, for example its id.
    """
    if np.shape(step)[-1] < 2:
        raise ShapeError(f"A gap needs two rows, but got shape {np.shape(step)}.")
    gaps = np.diff(np.sort(np.asarray(step, dtype=np.int64), axis=-1), axis=-1)
    return np.asarray(gaps.min(axis=-1))


@takes(id=wholes("B"))
def duplicate_share(id: ArrayLike) -> Floats:  # noqa: A002 - the name of the batch's column
    """Return the share of rows that repeat another of the same batch, 1 - distinct / B: (..., B) to (...)."""
    rows = np.sort(np.asarray(id), axis=-1)
    return np.asarray((np.diff(rows, axis=-1) == 0).sum(axis=-1) / rows.shape[-1])


@takes(values=reals("T"))
def integrated_autocorrelation(values: ArrayLike) -> Floats:
    """Return the integrated autocorrelation time of series, in steps of the series: (..., T) to (...).

    tau = 1 + 2 sum over k of rho_k, rho by the 1/T autocovariance, summed while Gamma_m = rho_2m + rho_2m+1 stays
    above 0 (Geyer 1992, https://doi.org/10.1214/ss/1177011137): T / tau independent values estimate the mean as
    precisely. A constant series has tau = T.

    Args:
        values: in the order they were used, for example rewards or TD errors of successive rows.
    """
    x = np.asarray(values, dtype=np.float64)
    length = x.shape[-1]
    centred = x - x.mean(axis=-1, keepdims=True)
    power = np.abs(np.fft.rfft(centred, n=2 * length, axis=-1)) ** 2
    covariance = np.fft.irfft(power, axis=-1)[..., :length]
    constant = covariance[..., :1] <= 1e-14 * (x**2).sum(axis=-1, keepdims=True)
    rho = np.divide(covariance, covariance[..., :1], out=np.ones_like(covariance), where=~constant)
    pairs = rho[..., : length // 2 * 2].reshape(*rho.shape[:-1], -1, 2).sum(axis=-1)
    summed = np.cumprod(pairs > 0, axis=-1)
    tau = 2.0 * (pairs * summed).sum(axis=-1) - 1.0
    return np.asarray(np.where(constant[..., 0], float(length), tau))


@takes(rows=reals("B", "D"), buffer=reals("N", "D", finite=True))
def whitened(rows: ArrayLike, buffer: ArrayLike) -> Floats:
    """Return rows whitened by the buffer: mean 0 and unit covariance over the buffer.

    z = (x - mean) E Lambda^(-1/2), by the eigenvectors of the buffer's covariance; directions in which the buffer does
    not vary become 0.

    Args:
        rows: shape (..., B, D).
        buffer: shape (..., N, D), all stored rows or a uniform sample of them.
    """
    x, y = np.asarray(rows, dtype=np.float64), np.asarray(buffer, dtype=np.float64)
    mean = y.mean(axis=-2, keepdims=True)
    centred = y - mean
    covariance = np.swapaxes(centred, -1, -2) @ centred / y.shape[-2]
    variance, directions = np.linalg.eigh(covariance)
    real = variance > 1e-12 * np.maximum(variance[..., -1:], np.finfo(np.float64).tiny)
    scale = np.divide(1.0, np.sqrt(np.abs(variance)), out=np.zeros_like(variance), where=real)
    return np.asarray((x - mean) @ directions * scale[..., None, :])


@takes(batch=reals("B", "D"), buffer=reals("N", "D", finite=True))
def row_correlation(batch: ArrayLike, buffer: ArrayLike) -> Floats:
    """Return the mean |correlation| between a batch's rows, whitened by the buffer: (..., B, D) to (...).

    Mean over pairs of |z_i . z_j| / (|z_i| |z_j|). Whitened rows have mean 0 over the buffer, so they are not centred
    once more: centring each row over its D features would make it +-1 wherever D = 2. It depends on D (1 for D = 1,
    2 / pi for round rows in D = 2), so read it as `excess_row_correlation`.

    Args:
        batch: shape (..., B, D).
        buffer: shape (..., N, D), all stored rows or a uniform sample of them.
    """
    return mean_absolute_cosine(whitened(batch, buffer))


@takes(rows=reals("B", "D"))
def mean_absolute_cosine(rows: ArrayLike) -> Floats:
    """Return the mean of |z_i . z_j| / (|z_i| |z_j|) over pairs of rows: (..., B, D) to (...); a row of 0 gives 0."""
    unit = _unit(np.asarray(rows, dtype=np.float64))
    return off_diagonal_mean(np.abs(unit @ np.swapaxes(unit, -1, -2)))


@takes(rows=reals("B", "D"), threshold=FRACTION)
def legacy_correlated_pairs(rows: ArrayLike, threshold: float = 0.8) -> Floats:
    """Return how many pairs of rows have |Pearson correlation over their D features| > threshold: (..., B, D) to (...).

    A measure of earlier work, for comparison; it hardly measures dependence. With D = 2 every correlation is 1 or -1,
    so every batch of 64 rows has 64 * 63 / 2 = 2016 such pairs; with D = 1 no correlation is defined, and the result is
    0. Use `row_correlation` instead.

    Args:
        rows: observations in their original units.
        threshold: in [0, 1). Default: 0.8, as in that work, which counted only pairs of states.
    """
    x = np.asarray(rows, dtype=np.float64)
    unit = _unit(x - x.mean(axis=-1, keepdims=True))
    large = np.abs(unit @ np.swapaxes(unit, -1, -2)) > threshold
    diagonal = np.trace(large, axis1=-2, axis2=-1)
    return np.asarray((large.sum(axis=(-2, -1)) - diagonal) / 2)


def off_diagonal_mean(square: Floats) -> Floats:
    """Return the mean of square matrices without their diagonals: (..., B, B) to (...)."""
    n = square.shape[-1]
    return np.asarray((square.sum(axis=(-2, -1)) - np.trace(square, axis1=-2, axis2=-1)) / (n * (n - 1)))


def _unit(rows: Floats) -> Floats:
    size = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, size, out=np.zeros_like(rows), where=size > 0))


@takes(
    batch=reals("B", "D", leading=False),
    buffer=reals("N", "D", leading=False, finite=True),
    draws=whole(),
    seed=seed_number,
)
def excess_row_correlation(batch: ArrayLike, buffer: ArrayLike, *, draws: int = 32, seed: int = 0) -> Floats:
    """Return `row_correlation` minus its mean over batches of the same size drawn uniformly from the buffer.

    Args:
        batch: shape (B, D).
        buffer: shape (N, D).
        draws: how many uniform batches.
        seed: of the uniform batches.
    """
    x, y = np.asarray(batch, dtype=np.float64), np.asarray(buffer, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(y), size=(draws, len(x)))
    return np.asarray(row_correlation(x, y) - row_correlation(y[picks], y).mean())


def _distances(x: Floats, y: Floats) -> Floats:
    """Euclidean distances of all pairs: (..., B, D) and (..., N, D) to (..., B, N).

    By |x|^2 + |y|^2 - 2 x.y of centred rows, which needs memory only for the result; equal rows may be 1e-8 apart.
    """
    middle = y.mean(axis=-2, keepdims=True)
    x, y = x - middle, y - middle
    squares = (x**2).sum(axis=-1)[..., :, None] + (y**2).sum(axis=-1)[..., None, :]
    return np.asarray(np.sqrt(np.maximum(squares - 2 * x @ np.swapaxes(y, -1, -2), 0.0)))


@takes(batch=reals("B", "D"), buffer=reals("N", "D"))
def energy_distance(batch: ArrayLike, buffer: ArrayLike) -> Floats:
    """Return the unbiased energy distance 2 E|x - y| - E|x - x'| - E|y - y'|, over distinct pairs; (...).

    It is 0 on average under uniform draws, so it can be below 0. It needs memory for B N + N^2 distances; pass a
    uniform sample of a large buffer. The distance is in the unit of the features, so whiten them first.
    Source: Szekely & Rizzo 2013, https://doi.org/10.1016/j.jspi.2013.03.018.
    """
    x, y = np.asarray(batch, dtype=np.float64), np.asarray(buffer, dtype=np.float64)
    across = _distances(x, y).mean(axis=(-2, -1))
    return np.asarray(2 * across - off_diagonal_mean(_distances(x, x)) - off_diagonal_mean(_distances(y, y)))
