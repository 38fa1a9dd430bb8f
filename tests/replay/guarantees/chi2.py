"""The χ² comparison of counts with a sampling distribution, shared by the tests of randomness.

False alarms: each comparison rejects at p < `ALARM` = 1e-9 on cells of at least 25 expected draws, where
the χ² tail is good to a small factor. A test makes at most six (two for each replica), so it stays under the
promised 1e-6. The seeds are fixed, so a test that passes once passes always. Stratified draws (prioritized)
and batches with a certain row (combined) scatter less than the multinomial the threshold is made for: for
them the rate is lower still.
"""

import numpy as np

from replaylab import testing

ALARM = 1e-9


def p_value(counts, probabilities, order=None):
    """Probability of counts at least this far from the distribution, pooled over cells neighbouring in `order`.

    Args:
        counts: draws of each id (N,) int64.
        probabilities: the sampling distribution (N,) float64.
        order: permutation of the cells before pooling; default as they come.
    """
    assert abs(probabilities.sum() - 1) < 1e-9
    if order is not None:
        counts, probabilities = counts[order], probabilities[order]
    return testing.p_value(counts, probabilities * counts.sum())


def assert_distribution(counts, probabilities):
    """Compare counts with a sampling distribution twice: pooled by slot order, and by size of probability."""
    assert p_value(counts, probabilities) > ALARM
    if probabilities.min() == probabilities.max():  # in the same order
        return
    assert p_value(counts, probabilities, np.argsort(probabilities, kind="stable")) > ALARM
