"""Permutation tests and corrections against enumeration, SciPy, and simulation under the null hypothesis.

Simulations have fixed seeds; their bounds leave a false-alarm rate below 1e-6 to any other seed.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st
from replaylab.errors import ConfigError, ShapeError


def test_exact_permutation_p_by_enumeration():
    """Four pairs, all in favour: 2 of the 16 swap patterns are as extreme."""
    baseline = np.array([1.0, 2.0, 3.0, 4.0])
    assert st.paired_permutation_test(baseline + 10, baseline) == 2 / 16
    assert st.paired_permutation_test(baseline, baseline) == 1.0


@pytest.mark.parametrize("pairs", [5, 8, 12, 20])
def test_means_decide_between_equal_interquartile_means(pairs):
    """All of one succeed, all of the other fail: a quarter of them swapped, the IQMs stay, but not the means."""
    p = st.paired_permutation_test(np.ones(pairs), np.zeros(pairs))
    assert p == (2 / 2**pairs if pairs < 15 else 1 / 20_001)


def test_ties_by_enumeration():
    """Eight pairs of solved or not: patterns by |IQM|, and where those are equal by |mean|, counted one by one."""
    a, b = np.array([1.0, 1, 1, 1, 1, 1, 1, 0]), np.array([0.0, 0, 0, 0, 0, 1, 0, 0])

    def statistic(x, y):
        middle = [stats.trim_mean(v, 0.25) for v in (x, y)]
        return round(abs(middle[0] - middle[1]), 9), round(abs(x.mean() - y.mean()), 9)

    patterns = [np.array(pattern) for pattern in itertools.product([False, True], repeat=8)]
    null = [statistic(np.where(swap, b, a), np.where(swap, a, b)) for swap in patterns]
    expected = np.mean([value >= statistic(a, b) for value in null])
    assert st.paired_permutation_test(a, b) == expected
    assert expected < np.mean([value[0] >= statistic(a, b)[0] for value in null])


def test_permutation_of_two_pairs_agrees_with_scipy():
    """With fewer than 4 runs the IQM is the mean, and the test is scipy's exact paired one."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=3), rng.normal(size=3)
    expected = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True
    )
    assert st.paired_permutation_test(a, b) == pytest.approx(expected.pvalue)


def test_random_patterns_agree_with_all_patterns():
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.5, 1, size=12), rng.normal(size=12)
    exact = st.paired_permutation_test(a, b)
    sampled = st.paired_permutation_test(a, b, permutations=2**12 - 1)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=6 * np.sqrt(0.25 / 2**12))


@pytest.mark.parametrize("runs", [6, 18])
def test_false_alarms_stay_at_the_level(runs):
    """Under the null P(p <= .05) <= .05: 1,000 studies, 5 standard errors of .0069 above."""
    rng = np.random.default_rng(runs)
    shared = rng.normal(size=(1_000, runs))
    alarms = sum(
        st.paired_permutation_test(s + rng.standard_t(3, runs), s + rng.standard_t(3, runs), permutations=400, seed=i)
        <= 0.05
        for i, s in enumerate(shared)
    )
    assert alarms / 1_000 < 0.05 + 5 * 0.0069


def test_holm_by_hand():
    """Four p-values: .01*4 = .04; .02*3 = .06; .03*2 = .06; .04*1 = .04 lifted to .06. In the given order."""
    np.testing.assert_allclose(st.holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(st.holm([0.7, 0.6]), [1.0, 1.0])
    assert st.holm([]).size == 0


def slow_max_t(d):
    """Westfall and Young's step-down, one sign pattern after the other."""
    n, k = d.shape

    def t(x):
        return np.abs(x.mean(axis=0)) / (x.std(axis=0, ddof=1) / np.sqrt(n))

    order = np.argsort(-t(d))
    patterns = [t(np.array(s)[:, None] * d) for s in itertools.product([1, -1], repeat=n)]
    p, worst = np.empty(k), 0.0
    for i, j in enumerate(order):
        worst = max(worst, np.mean([max(x[order[i:]]) >= t(d)[j] - 1e-9 for x in patterns]))
        p[j] = worst
    return p


def test_max_t_is_the_slow_one():
    rng = np.random.default_rng(7)
    d = rng.normal(size=(8, 1)) + rng.normal([0, 0.5, 2, 0.1], 1, size=(8, 4))
    np.testing.assert_allclose(st.max_t(d), slow_max_t(d))


def test_max_t_of_one_comparison_is_the_means_sign_flip_test():
    d = np.random.default_rng(8).normal(0.6, 1, size=9)
    expected = stats.permutation_test(
        (d, np.zeros(9)), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True
    )
    np.testing.assert_allclose(st.max_t(d[:, None]), [expected.pvalue])


def test_max_t_random_patterns_agree_with_all():
    d = np.random.default_rng(9).normal(0.5, 1, size=(11, 3))
    exact = st.max_t(d)
    np.testing.assert_allclose(st.max_t(d, permutations=2**11 - 1), exact, atol=6 * np.sqrt(0.25 / 2**11))


def test_max_t_beats_holm_on_dependent_comparisons():
    d = np.random.default_rng(10).normal(0.8, 1, size=(12, 1)) + np.random.default_rng(11).normal(0, 0.1, size=(12, 6))
    alone = [st.max_t(column[:, None])[0] for column in d.T]
    assert (st.max_t(d) < st.holm(alone)).all()
    np.testing.assert_array_equal(st.max_t(np.zeros((5, 2))), [1, 1])


def test_max_t_keeps_the_familys_level():
    """800 null studies of 5 dependent comparisons; 5 standard errors of .0077 above .05."""
    rng = np.random.default_rng(12)
    alarms = 0
    for i in range(800):
        d = rng.standard_t(3, size=(16, 1)) + rng.standard_t(3, size=(16, 5))
        alarms += st.max_t(d, permutations=300, seed=i).min() <= 0.05
    assert 0.01 < alarms / 800 < 0.05 + 5 * 0.0077


@pytest.mark.parametrize("shape", [(5,), (1, 3)])
def test_max_t_refuses_other_shapes(shape):
    with pytest.raises(
        ValueError, match=r"^Values must be of shape \(N, K\) with two numbers in each column, but got shape"
    ):
        st.max_t(np.zeros(shape))


def test_the_distance_of_shares_by_enumeration():
    """Three seeds in two states: 2 of the 8 patterns are as far apart as all three in favour; scale does not matter."""
    baseline = np.array([[1, 1], [2, 2], [5, 5]])
    treated = np.array([[3, 1], [30, 10], [3, 1]])
    assert st.share_distance_test(treated, baseline) == (0.25, 2 / 8)
    assert st.share_distance_test(baseline, baseline) == (0.0, 1.0)
    with pytest.raises(ShapeError, match="positive sums"):
        st.share_distance_test(treated, 0 * baseline)


def test_the_distance_of_shares_keeps_its_level():
    """Two strategies alike: p <= .05 in at most 5 % of the studies; 400 of them, 6 standard deviations."""
    rng = np.random.default_rng(8)
    counts = rng.poisson(20 * rng.random((400, 2, 8, 10)) + 1)
    p = np.array([st.share_distance_test(*pair)[1] for pair in counts])
    assert np.mean(p <= 0.05) < 0.05 + 6 * np.sqrt(0.05 * 0.95 / 400)
    visits = rng.poisson(50, (2, 20, 48)) + 1
    apart, p_value = st.share_distance_test(visits[0], visits[1] + 50 * (np.arange(48) < 4))
    assert p_value == 1 / (st.PERMUTATIONS + 1)
    assert 0.05 < apart < 0.2


def test_max_t_takes_comparisons_that_lack_seeds():
    rng = np.random.default_rng(5)
    d = rng.normal(0.8, 1.0, size=(9, 3))
    d[:3, 2] = np.nan
    p_values = st.max_t(d)
    t = np.array([abs(stats.ttest_1samp(c[~np.isnan(c)], 0).statistic) for c in d.T])
    signs = np.array(list(itertools.product([-1, 1], repeat=9)))
    flipped = [(c * signs)[:, ~np.isnan(c)] for c in d.T]
    null = np.abs(np.column_stack([stats.ttest_1samp(each, 0, axis=1).statistic for each in flipped]))
    order, passed = np.argsort(-t), 0.0
    for i, k in enumerate(order):
        passed = max(passed, float(np.mean(null[:, order[i:]].max(axis=1) >= t[k] - 1e-9)))
        assert p_values[k] == pytest.approx(passed, abs=1e-12)


def test_max_t_refuses_a_comparison_of_one_seed():
    with pytest.raises(ShapeError, match=r"two numbers in each column, but got shape .* with \[3, 1\] numbers"):
        st.max_t([[1.0, np.nan], [2.0, 1.0], [3.0, np.nan]])


def test_max_t_counts_what_the_limits_leave():
    """Limits above |t| change nothing; one below makes the p of that size; the others step down past it."""
    d = np.random.default_rng(7).normal([1.5, 0.4, 0.9], 1, size=(9, 3))
    t = np.abs(stats.ttest_1samp(d, 0).statistic)
    np.testing.assert_array_equal(st.max_t(d, limits=t + 1), st.max_t(d))
    signs = np.array(list(itertools.product([-1, 1], repeat=9)))
    null = np.abs(stats.ttest_1samp(d[:, 0] * signs, 0, axis=1).statistic)
    assert st.max_t(d[:, :1], limits=[1.7])[0] == pytest.approx(np.mean(null >= 1.7 - 1e-9), abs=1e-12)
    assert (st.max_t(d, limits=np.minimum(t, 1.7)) >= st.max_t(d)).all()
    assert st.max_t(d, limits=[0.0, np.inf, np.inf])[0] == 1.0
    with pytest.raises(ShapeError, match=r"Limits must be of shape \(3,\), but got shape \(2,\)"):
        st.max_t(d, limits=[1, 2])


def test_the_distance_of_shares_takes_blocks_of_patterns(monkeypatch):
    counts = np.random.default_rng(0).poisson(5.0, (2, 20, 30)) + 1
    at_once = st.share_distance_test(*counts)
    monkeypatch.setattr("replaylab.statistics.permutation._MOST_NUMBERS", 1_000)
    assert st.share_distance_test(*counts) == at_once
    with pytest.raises(ConfigError, match="Counts must not be negative, but one is -1"):
        st.share_distance_test([[2, -1], [1, 1]], [[1, 1], [1, 1]])
