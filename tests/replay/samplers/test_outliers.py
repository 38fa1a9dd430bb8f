"""TD errors far above the others: what share of draws they have, and how many effective rows are left.

All values are exact sampling probabilities. Schaul et al. 2016 call rank-based draws more robust to outliers; here is
the part of it that is a property of the sampler. Whether a learner gains by it depends on the task.
"""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.replay import Prioritized, RankBased

STEPS = 1_000
OUTLIERS = (10.0, 1e3, 1e6, 1e9)


def probabilities(sampler, outlier, where=417):
    """Return the sampling probabilities of steps with |TD error| from 0 to 1, and of those with the outlier, (N,)."""
    buffer = ReplayBuffer(STEPS, {"reward": Field()}, sampler=sampler, seed=0)
    ids = [buffer.add(reward=0.0) for _ in range(STEPS)]
    td_error = np.random.default_rng(0).uniform(0, 1, STEPS)
    td_error[where] = outlier
    buffer.update_priorities(ids, td_error)
    return buffer.probabilities(ids, progress=0.0)


def effective_steps(p):
    """Return 1 / Σ p², the number of equally likely steps that would repeat as often."""
    return 1.0 / np.square(p).sum()


@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_outlier_takes_over_proportional_draws(alpha):
    drawn = [probabilities(Prioritized(alpha=alpha, beta=0.0), outlier) for outlier in OUTLIERS]
    shares = [p[417] for p in drawn]
    assert shares == sorted(shares)
    assert shares[0] < 0.02
    assert shares[2] > 0.85
    assert shares[3] > 0.99
    assert effective_steps(drawn[0]) > 500
    assert effective_steps(drawn[3]) < 1.01


def test_outlier_shares_are_those_of_the_reference():
    """The page on samplers has 86 % and 4 %."""
    proportional, ranked = (
        probabilities(sampler, 1e6)[417] for sampler in (Prioritized(alpha=0.6, beta=0.0), RankBased(beta=0.0))
    )
    assert (round(proportional, 2), round(ranked, 2)) == (0.86, 0.04)


@pytest.mark.parametrize("alpha", [0.6, 0.7, 1.0])
def test_outlier_has_a_bounded_share_of_ranked_draws(alpha):
    """The share is that of rank 1, whatever the size of the error; no other probability changes either."""
    drawn = [probabilities(RankBased(alpha=alpha, beta=0.0), outlier) for outlier in OUTLIERS]
    for p in drawn:
        np.testing.assert_array_equal(p, drawn[0])
    assert drawn[0][417] == pytest.approx(1.0 / np.sum(np.arange(1, STEPS + 1) ** -alpha), rel=1e-12)
    assert drawn[0][417] < 0.14
    assert effective_steps(drawn[0]) > 30


def test_many_moderate_outliers_get_more_ranked_draws():
    """Of 1,000 steps 10 are outliers: rank-based draws bound their share, which is large, and not by their size."""
    where = np.arange(10)
    ranked = [probabilities(RankBased(beta=0.0), outlier, where)[where].sum() for outlier in OUTLIERS]
    proportional = [
        probabilities(Prioritized(alpha=0.6, beta=0.0), outlier, where)[where].sum() for outlier in OUTLIERS
    ]
    assert [round(share, 2) for share in ranked] == [0.17] * 4
    assert [round(share, 2) for share in proportional] == [0.06, 0.5, 0.98, 1.0]
