"""Probability of improvement and performance profiles against SciPy, hand-worked examples and the slow way."""

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st
from replaylab.errors import ShapeError


@pytest.mark.parametrize("sizes", [(7, 7), (5, 9)])
def test_probability_is_mann_whitneys(sizes):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 6, size=n).astype(float) for n in sizes)
    expected = stats.mannwhitneyu(a, b).statistic / (len(a) * len(b))
    assert st.probability_of_improvement(a, b, paired=False, resamples=10).estimate == pytest.approx(expected)


def test_probability_averages_environments():
    a, b = np.array([[2.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 0.0]])
    assert st.probability_of_improvement(a, b, resamples=10).estimate == (1 + 0.25) / 2


def test_interval_of_the_probability_by_a_slow_bootstrap():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.5, 1, size=12), rng.normal(size=12)
    slow = []
    for _ in range(3_000):
        i = rng.integers(0, 12, size=12)
        slow.append((a[i][:, None] > b[i]).mean() + (a[i][:, None] == b[i]).mean() / 2)
    interval = st.probability_of_improvement(a, b, resamples=3_000, calibrated=False)
    assert interval[1:] == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.04)


def test_pairing_narrows_the_probabilitys_interval():
    rng = np.random.default_rng(2)
    shared = rng.normal(0, 3, size=20)
    a, b = shared + 1 + rng.normal(0, 0.1, size=20), shared
    paired = st.probability_of_improvement(a, b)
    unpaired = st.probability_of_improvement(a, b, paired=False)
    assert paired.high - paired.low < 0.7 * (unpaired.high - unpaired.low)


def test_groups_must_fit_together():
    message = (
        r"^Compared values must have equally many strata, and runs if paired, but got shapes \(3, 1\) and \(4, 1\)"
    )
    with pytest.raises(ValueError, match=message):
        st.probability_of_improvement(np.zeros(3), np.zeros(4))


def test_profile_by_hand():
    profile = st.performance_profile([[1.0, 10.0], [3.0, 30.0]], [0, 1, 5, 30])
    np.testing.assert_array_equal(profile.estimate, [1.0, 0.75, 0.5, 0.0])
    assert (profile.low <= profile.estimate).all()
    assert (profile.estimate <= profile.high).all()
    assert profile.low[0] == profile.high[0] == 1.0


def test_profile_of_one_environment_is_a_binomial_bootstrap():
    """Resampled shares of one threshold are Binomial(N, p) / N: ends by its quantiles."""
    values = np.arange(40.0)
    profile = st.performance_profile(values, [9.5, 19.5], resamples=40_000, calibrated=False)
    for t, p in enumerate([0.75, 0.5]):
        expected = stats.binom.ppf([0.025, 0.975], 40, p) / 40
        assert (profile.low[t], profile.high[t]) == pytest.approx(tuple(expected), abs=1 / 40 + 1e-9)


def test_profiles_resample_within_environments():
    """Two environments whose runs are all alike inside: no resample differs."""
    profile = st.performance_profile(np.column_stack([np.zeros(8), np.ones(8)]), [0.5])
    assert (profile.low[0], profile.estimate[0], profile.high[0]) == (0.5, 0.5, 0.5)


def test_a_standardized_difference_is_t_over_the_root_of_n():
    rng = np.random.default_rng(21)
    a, b = rng.normal(1, 2, size=17), rng.normal(size=17)
    expected = stats.ttest_rel(a, b).statistic / np.sqrt(17)
    effect = st.standardised_difference(a, b)
    assert effect.estimate == pytest.approx(expected, rel=1e-12)
    assert effect.low < expected < effect.high
    assert st.standardised_difference(100 * a + 7, 100 * b + 7).low == pytest.approx(effect.low, rel=1e-9)
    assert st.standardised_difference(b, a).estimate == pytest.approx(-expected, rel=1e-12)


def test_a_standardised_difference_where_pairs_do_not_vary():
    same = np.full(6, 3.0)
    assert st.standardised_difference(same, same) == (0.0, 0.0, 0.0)
    assert st.standardised_difference(same + 1, same) == (np.inf, np.inf, np.inf)
    assert np.isnan(st.standardised_difference([1.0], [2.0])).all(), "one pair has no standard deviation"
    with pytest.raises(ShapeError, match="takes one environment"):
        st.standardised_difference(np.ones((3, 2)), np.ones((3, 2)))


def test_intervals_of_standardized_differences_cover_the_truth():
    rng, held = np.random.default_rng(22), 0
    for _ in range(400):
        effect = st.standardised_difference(rng.normal(0.8, 1.0, size=30), np.zeros(30), resamples=500)
        held += effect.low <= 0.8 <= effect.high
    assert 0.90 <= held / 400 <= 0.99
