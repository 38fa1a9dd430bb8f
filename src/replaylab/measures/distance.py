"""Two unbiased distances between a batch and the complete buffer, 0 on average under uniform draws.

As they are unbiased, both can be below 0. Shapes: batch (..., B, D), buffer (..., N, D), to (...).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import POSITIVE, reals, takes
from replaylab.measures.dependence import off_diagonal_mean

Floats = NDArray[np.float64]


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
    """Return the unbiased energy distance 2 E|x - y| - E|x - x'| - E|y - y'|, over distinct pairs.

    It needs memory for B N + N^2 distances; pass a uniform sample of a large buffer (Szekely & Rizzo 2013,
    https://doi.org/10.1016/j.jspi.2013.03.018). The distance is in the unit of the features, so whiten them first.
    """
    x, y = np.asarray(batch, dtype=np.float64), np.asarray(buffer, dtype=np.float64)
    across = _distances(x, y).mean(axis=(-2, -1))
    return np.asarray(2 * across - off_diagonal_mean(_distances(x, x)) - off_diagonal_mean(_distances(y, y)))


@takes(batch=reals("B", "D"), buffer=reals("N", "D"), bandwidth=POSITIVE)
def mmd2(batch: ArrayLike, buffer: ArrayLike, bandwidth: float) -> Floats:
    """Return the unbiased squared maximum mean discrepancy with a Gaussian kernel.

    E k(x, x') + E k(y, y') - 2 E k(x, y) over distinct pairs, k = exp(-|x - y|^2 / (2 bandwidth^2)) (Gretton et al.
    2012, lemma 6, https://jmlr.org/papers/v13/gretton12a.html).

    Args:
        batch: shape (..., B, D).
        buffer: shape (..., N, D); a uniform sample of a large one.
        bandwidth: in the unit of the features; sqrt(D) suits whitened ones.
    """
    x, y = np.asarray(batch, dtype=np.float64), np.asarray(buffer, dtype=np.float64)

    def kernel(a: Floats, b: Floats) -> Floats:
        return np.asarray(np.exp(-(_distances(a, b) ** 2) / (2 * bandwidth**2)))

    within = off_diagonal_mean(kernel(x, x)) + off_diagonal_mean(kernel(y, y))
    return np.asarray(within - 2 * kernel(x, y).mean(axis=(-2, -1)))
