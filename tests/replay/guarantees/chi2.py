"""The χ² comparison of counts with a sampling distribution, shared by the tests of randomness.

False alarms: each comparison rejects at p < `ALARM` = 1e-9 on cells of at least 25 expected draws, where
the χ² tail is good to a small factor. A test makes at most six (two for each replica), so it stays under the
promised 1e-6. The seeds are fixed, so a test that passes once passes always. Stratified draws (prioritized)
and batches with a certain row (combined) scatter less than the multinomial the threshold is made for: for
them the rate is lower still.
"""

import numpy as np
from scipy import stats

ALARM = 1e-9
LEAST_EXPECTED = 25


def pool(expected, least):
    """Cut cells, in the order given, into groups of at least `least` expected draws; return each's group."""
    total = expected.sum()
    groups = max(1, int(total / (2 * least)))
    edge = np.minimum((np.cumsum(expected) / total * groups).astype(np.int64), groups - 1)
    sums = np.bincount(edge, weights=expected, minlength=groups)
    # A heavy cell jumps over groups (left empty) and may leave a light one before it: merge those leftwards.
    target, last = np.arange(groups), 0
    for g in range(groups):
        if sums[g] == 0 or (g and sums[g] < least):
            target[g] = last
            sums[last] += sums[g] if g != last else 0
        else:
            last = g
    if sums[0] < least and groups > 1 and (target != 0).any():
        target[target == 0] = target[target != 0].min()
    return target[edge]


def p_value(counts, probabilities, order=None):
    """Probability of counts at least this far from the distribution, pooled over cells neighbouring in `order`.

    Args:
        counts: draws of each id (N,) int64.
        probabilities: the sampling distribution (N,) float64.
        order: permutation of the cells before pooling; default as they come.
    """
    assert abs(probabilities.sum() - 1) < 1e-9
    assert counts[probabilities == 0].sum() == 0, "an id of probability zero was drawn"
    if order is not None:
        counts, probabilities = counts[order], probabilities[order]
    expected = probabilities * counts.sum()
    group = pool(expected, LEAST_EXPECTED)
    found, wanted = np.bincount(group, weights=counts), np.bincount(group, weights=expected)
    used = wanted > 0
    degrees = used.sum() - 1
    if degrees == 0:
        return 1.0
    statistic = ((found[used] - wanted[used]) ** 2 / wanted[used]).sum()
    return float(stats.chi2.sf(statistic, degrees))


def assert_distribution(counts, probabilities):
    """Compare counts with a sampling distribution twice: pooled by slot order, and by size of probability."""
    assert p_value(counts, probabilities) > ALARM
    if probabilities.min() == probabilities.max():  # in the same order
        return
    assert p_value(counts, probabilities, np.argsort(probabilities, kind="stable")) > ALARM
