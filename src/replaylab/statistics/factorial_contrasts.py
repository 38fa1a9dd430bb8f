"""Contrasts and main effects of a factorial study, tested within seeds.

A factorial study runs every seed in every cell, so the seed is a block: an effect of the seed that is equal in all
cells cancels in any contrast within the seed. In such a balanced design the estimate and standard error of a contrast
of means are those of a mixed-effects model with a random intercept for the seed; permutation does not need that model's
normal errors. Shapes: ``N`` seeds, then one axis for each factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaylab.arguments import LARGEST, checked, reals, seed_number, takes, whole
from replaylab.errors import ShapeError
from replaylab.statistics.interquartile_means import bootstrap_interval
from replaylab.statistics.permutation import PERMUTATIONS, is_exact, share_as_extreme, swap_patterns
from replaylab.statistics.resampling import BOOTSTRAP, COUNT, NUMBERS, VALUES, Floats, Interval, interval_p


class Contrast(NamedTuple):
    """A contrast's size with its interval, and its p-value."""

    size: Interval
    p: float


def contrast_weights(*factors: ArrayLike) -> Floats:
    """Return the weights of a contrast of a factorial design: the outer product of one vector per factor.

    ``[-1, 1]`` compares a factor's levels, ``[0.5, 0.5]`` averages over them; two comparisons make the
    interaction.

    Examples:
        >>> contrast_weights([-1, 1], [0.5, 0.5])  # the first factor's main effect
        array([[-0.5, -0.5],
               [ 0.5,  0.5]])
        >>> contrast_weights([-1, 1], [-1, 1])  # how much the first factor's effect depends on the second
        array([[ 1., -1.],
               [-1.,  1.]])
    """
    product = np.ones(())
    for weights in factors:
        product = np.multiply.outer(product, checked("factors", weights, reals("L")))
    return product


@takes(**BOOTSTRAP, values=NUMBERS, weights=reals(), permutations=COUNT)
def contrast(
    values: ArrayLike,
    weights: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Contrast:
    """Return the IQM over seeds of a within-seed contrast, with its interval and p-value.

    c_i = sum over cells of w_cell y_i,cell; the interval resamples seeds. The p-value is the larger of two: that of the
    interval (`interval_p`), and that of a sign-flip test of the seeds' contrasts by |mean of c_i| (a trimmed mean would
    ignore flips among the trimmed values, and lose power). So it is below 1 - level only if the interval excludes 0,
    and the test is valid if c_i is symmetric around 0 under the null hypothesis; for two cells that follows from
    exchangeable runs. With two cells this is the IQM of the differences, whereas `paired_difference` is the difference
    of the IQMs.

    Args:
        values: shape (N, ...), an axis for each factor.
        weights: shape (...), one for each cell; they should add up to 0.
        level: of the interval.
        resamples: number of bootstrap resamples; None: as many as it takes for steady ends.
        permutations: number of sign patterns, where not all are enumerated.
        seed: seed of resampling and patterns.

    Raises:
        ShapeError: the weights are not of the shape of a seed's cells.
    """
    y, w = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if y.ndim < 2 or y.shape[1:] != w.shape:
        raise ShapeError(f"Weights must be of the shape of a seed's cells, {y.shape[1:]}, but got {w.shape}.")
    contrasts = np.tensordot(y, w, axes=w.ndim)
    signs = np.where(swap_patterns(len(contrasts), permutations, seed), -1.0, 1.0)
    null = np.abs(signs @ contrasts) / len(contrasts)
    exact = is_exact(len(contrasts), permutations)
    p = share_as_extreme(null, abs(float(contrasts.mean())), float(np.abs(contrasts).max()), exact=exact)
    size = bootstrap_interval(contrasts, level=level, resamples=resamples, seed=seed)
    return Contrast(size, max(p, interval_p(size, len(contrasts), level=level)))


@takes(values=VALUES, axis=whole(-LARGEST), permutations=COUNT, seed=seed_number)
def main_effect_test(values: ArrayLike, axis: int, *, permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """Return the p-value of no main effect of a factor with any number of levels, by permuting levels within seeds.

    Statistic: the variance between the levels' means (over seeds and over the other factors). The null hypothesis is
    that the levels of a seed are exchangeable. With three levels or more, equal means of unequal spread are rejected
    slightly too often.

    Args:
        values: shape (N, ...), an axis for each factor.
        axis: the factor's axis, from 1.
        permutations: number of random permutations; the observed one is counted in addition.
        seed: seed of the permutations.

    Raises:
        ShapeError: the axis is not between 1 and the number of factors.
    """
    y = np.asarray(values, dtype=np.float64)
    if not 1 <= axis < y.ndim:
        raise ShapeError(f"A factor's axis must be between 1 and {y.ndim - 1}, but got {axis}.")
    by_level = np.moveaxis(y, axis, 1).reshape(len(y), y.shape[axis], -1).mean(axis=2)
    rng = np.random.default_rng(seed)
    block = max(1, 2_000_000 // by_level.size)
    null = np.concatenate(
        [
            _between(rng.permuted(np.broadcast_to(by_level, (min(block, permutations - i), *by_level.shape)), axis=2))
            for i in range(0, permutations, block)
        ]
    )
    observed = float(_between(by_level[None])[0])
    return share_as_extreme(null, observed, float(by_level.var()), exact=False)


def _between(values: Floats) -> Floats:
    """Variance between levels' means: (..., N, L) to (...)."""
    return np.asarray(values.mean(axis=-2).var(axis=-1))


@takes(values=VALUES)
def seed_correlation(values: ArrayLike) -> float:
    """Return the intraclass correlation of seeds, ICC(3, 1), which shows how much pairing by seed gains.

    From the two-way analysis of variance of N seeds and C cells, (S - E) / (S + (C - 1) E), S the mean square
    between seeds and E the residual one: the variance of a random intercept over all variance (Shrout & Fleiss
    1979, https://doi.org/10.1037/0033-2909.86.2.420). A paired difference of means has 1 - ICC times the variance
    of an unpaired one.

    Args:
        values: shape (N, ...), an axis for each factor, N and the number of cells at least 2.

    Raises:
        ShapeError: fewer seeds or cells.
    """
    y: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    y = y.reshape(len(y), -1)
    seeds, cells = y.shape
    if min(seeds, cells) < 2:
        raise ShapeError(f"A correlation of seeds needs two seeds and two cells, but got {seeds} and {cells}.")
    per_seed = y.mean(axis=1, keepdims=True)
    residual = y - per_seed - y.mean(axis=0) + y.mean()
    between = cells * float(((per_seed - y.mean()) ** 2).sum()) / (seeds - 1)
    error = float((residual**2).sum()) / ((seeds - 1) * (cells - 1))
    total = between + (cells - 1) * error
    return (between - error) / total if total > 0 else 0.0
