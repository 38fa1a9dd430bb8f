"""Statistics against closed forms, scipy.stats, hand-worked examples and simulation.

Simulations have fixed seeds, so they pass or fail for good; the bounds leave a false-alarm rate below 1e-6 to
any other seed (binomial counts at more than 5 standard errors), so a change of NumPy's streams does not break
them.
"""

import numpy as np
import pytest
from scipy import stats

from replaylab.study import statistics as st


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 10, 11, 30])
def test_iqm_is_the_25_percent_trimmed_mean(runs):
    values = np.random.default_rng(runs).lognormal(size=(runs, 6))
    np.testing.assert_allclose(st.interquartile_mean(values), stats.trim_mean(values, 0.25), rtol=1e-14)
    np.testing.assert_allclose(st.interquartile_mean(values.T, axis=1), stats.trim_mean(values, 0.25), rtol=1e-14)


def test_iqm_by_hand_and_unmoved_by_an_outlier():
    assert st.interquartile_mean([1, 2, 3, 4]) == 2.5
    assert st.interquartile_mean([1, 2, 3, 4e9]) == 2.5
    assert st.interquartile_mean([5]) == 5


def test_iqm_of_nothing():
    with pytest.raises(ValueError, match=r"^An interquartile mean needs at least one value, but got none\.$"):
        st.interquartile_mean([])


def test_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(0).normal(size=30)
    ours = st.bootstrap_interval(values, resamples=50_000, seed=1)
    theirs = stats.bootstrap(
        (values,),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=50_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.high, abs=0.02)
    assert ours.estimate == pytest.approx(stats.trim_mean(values, 0.25))


def test_constant_runs_have_an_interval_of_no_width():
    assert st.bootstrap_interval(np.full(10, 7.0)) == (7.0, 7.0, 7.0)


def test_strata_are_resampled_each_on_its_own():
    """Two constant environments: resampling across them would mix 0s and 8s otherwise than half and half."""
    values = np.column_stack([np.zeros(9), np.full(9, 8.0)])
    assert st.bootstrap_interval(values) == (4.0, 4.0, 4.0)


@pytest.mark.parametrize("shape", [(0,), (2, 3, 4)])
def test_bootstrap_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match=r"Values must be of shape \(N,\) or \(N, M\) with N >= 1, but got shape"):
        st.bootstrap_interval(np.zeros(shape))


def test_a_shift_is_seen_exactly_by_the_paired_interval_only():
    baseline = np.random.default_rng(3).normal(0, 100, size=20)
    assert st.paired_difference(baseline + 5, baseline) == pytest.approx((5.0, 5.0, 5.0))
    unpaired_width = np.diff(st.bootstrap_interval(baseline)[1:])[0]
    assert unpaired_width > 50


def test_pairs_need_equal_shapes():
    with pytest.raises(ValueError, match=r"^Paired values must have equal shapes, but got \(3, 1\) and \(4, 1\)\.$"):
        st.paired_difference(np.zeros(3), np.zeros(4))


@pytest.mark.parametrize(("runs", "claimed"), [(5, 0.89), (10, 0.93), (30, 0.95)])
def test_coverage_is_what_the_module_says(runs, claimed):
    """2,000 synthetic studies; a binomial share near .93 has standard error .0057, so .035 is 6 of them."""
    rng = np.random.default_rng(runs)
    studies, covered, covered_difference = 2_000, 0, 0
    for study in range(studies):
        shared = rng.normal(0, 2, size=runs)
        a, b = shared + rng.normal(size=runs), shared + rng.normal(size=runs)
        level = st.bootstrap_interval(a, resamples=500, seed=study)
        difference = st.paired_difference(a, b, resamples=500, seed=study)
        covered += level.low <= 0 <= level.high
        covered_difference += difference.low <= 0 <= difference.high
    assert abs(covered / studies - claimed) < 0.035
    assert abs(covered_difference / studies - claimed) < 0.035


def test_exact_permutation_p_by_enumeration():
    """Four pairs, all in favour: 2 of the 16 swap patterns are as extreme."""
    baseline = np.array([1.0, 2.0, 3.0, 4.0])
    assert st.paired_permutation_test(baseline + 10, baseline) == 2 / 16
    assert st.paired_permutation_test(baseline, baseline) == 1.0


def test_permutation_of_two_pairs_agrees_with_scipy():
    """With fewer than 4 runs the IQM is the mean, and the test is scipy's exact paired one."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=3), rng.normal(size=3)
    theirs = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True
    )
    assert st.paired_permutation_test(a, b) == pytest.approx(theirs.pvalue)


def test_random_patterns_agree_with_all_patterns(monkeypatch):
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.5, 1, size=12), rng.normal(size=12)
    exact = st.paired_permutation_test(a, b)
    monkeypatch.setattr(st, "EXACT_SEEDS", 4)
    sampled = st.paired_permutation_test(a, b)
    assert sampled == pytest.approx(exact, abs=6 * np.sqrt(0.25 / st.PERMUTATIONS))


@pytest.mark.parametrize("runs", [6, 18])
def test_false_alarms_stay_at_the_level(runs, monkeypatch):
    """Under the null P(p <= .05) <= .05: 1,000 studies, 5 standard errors of .0069 above."""
    monkeypatch.setattr(st, "PERMUTATIONS", 400)
    rng = np.random.default_rng(runs)
    shared = rng.normal(size=(1_000, runs))
    alarms = sum(
        st.paired_permutation_test(s + rng.standard_t(3, runs), s + rng.standard_t(3, runs), seed=i) <= 0.05
        for i, s in enumerate(shared)
    )
    assert alarms / 1_000 < 0.05 + 5 * 0.0069


def test_holm_by_hand():
    """Four p-values: .01*4 = .04; .02*3 = .06; .03*2 = .06; .04*1 = .04 lifted to .06. In the given order."""
    np.testing.assert_allclose(st.holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(st.holm([0.7, 0.6]), [1.0, 1.0])
    assert st.holm([]).size == 0


def test_area_of_known_shapes():
    steps = np.array([0, 10, 40])
    assert st.area_under_curve(steps, [3.0, 3.0, 3.0]) == 3.0
    assert st.area_under_curve(steps, steps) == 20.0
    np.testing.assert_allclose(st.area_under_curve(steps, [[0, 4, 4], [1, 1, 1]]), [(2 * 10 + 4 * 30) / 40, 1.0])
    assert st.area_under_curve([7], [5.0]) == 5.0


def test_curve_band_is_the_interval_at_each_point(monkeypatch):
    values = np.random.default_rng(8).normal(size=(10, 5)).cumsum(axis=1)
    band = st.curve_band(values, resamples=4_000)
    for t in range(5):
        one = st.bootstrap_interval(values[:, t], resamples=20_000)
        assert (band.estimate[t], band.low[t], band.high[t]) == pytest.approx(one, abs=0.1)
    monkeypatch.setattr(st, "_BLOCK", 1)
    np.testing.assert_array_equal(st.curve_band(values, resamples=4_000).low, band.low)


def test_on_grid_carries_the_newest_value_forward():
    np.testing.assert_array_equal(st.on_grid([3, 5, 5, 9], [1, 2, 3, 4], [0, 3, 4, 5, 8, 9, 99]), [1, 1, 1, 3, 3, 4, 4])


def test_same_seed_same_numbers():
    values = np.random.default_rng(9).normal(size=12)
    assert st.bootstrap_interval(values, seed=4) == st.bootstrap_interval(values, seed=4)
    assert st.bootstrap_interval(values, seed=4) != st.bootstrap_interval(values, seed=5)
