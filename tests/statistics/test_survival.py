"""Censored times against closed forms, textbook data and simulation."""

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st

# Freireich et al. 1963, weeks of remission in leukaemia, 6-MP against placebo: the standard worked example.
TREATED = st.Times(
    np.array([6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], float),
    np.arange(21) < 9,
)
PLACEBO = st.Times(
    np.array([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23], float), np.ones(21, bool)
)


def test_curve_of_the_textbook():
    """S after each event time, as printed in Kleinbaum & Klein, Survival Analysis, chapter 2."""
    steps, band = st.survival_curve(TREATED)
    printed = {6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482}
    for t, share in printed.items():
        assert band.estimate[steps == t][0] == pytest.approx(share, abs=5e-5)
    assert (band.low <= band.estimate).all()
    assert (band.estimate <= band.high).all()


def test_median_of_the_textbook():
    assert st.median_steps(TREATED).estimate == 23
    assert st.median_steps(TREATED)[1:] == (13, np.inf)  # R's survfit, conf.type = "log-log"
    assert st.median_steps(PLACEBO)[:] == (8, 4, 11)


def test_logrank_of_the_textbook():
    """Chi-squared 16.79 on one degree of freedom."""
    assert st.logrank_test(TREATED, PLACEBO) == pytest.approx(stats.chi2.sf(16.79, 1), rel=5e-3)


def test_without_a_single_success():
    never = st.Times(np.full(5, 100.0), np.zeros(5, bool))
    assert st.median_steps(never) == (np.inf, np.inf, np.inf)
    assert st.logrank_test(never, never) == 1.0
    assert st.restricted_mean(never) == (100.0, 100.0, 100.0)


def test_all_at_once():
    once = st.Times(np.full(6, 40.0), np.ones(6, bool))
    assert st.median_steps(once).estimate == 40
    assert st.restricted_mean(once).estimate == 40


def test_restricted_mean_is_the_t_interval_where_all_are_followed_to_the_end():
    rng = np.random.default_rng(0)
    true = rng.exponential(60, size=15).round() + 1
    times = st.Times(np.minimum(true, 100), true < 100)
    theirs = stats.ttest_1samp(times.steps, 0).confidence_interval()
    assert st.restricted_mean(times, 100.0) == pytest.approx((times.steps.mean(), theirs.low, theirs.high))


def test_restricted_mean_by_hand():
    """Reached at 2, censored at 3, reached at 4: S is 1 to 2, 2/3 to 4; the variance is (4/3)^2 1 / (3 * 2)."""
    found = st.restricted_mean(st.Times(np.array([2.0, 3, 4]), np.array([True, False, True])))
    assert found.estimate == pytest.approx(2 + 2 * 2 / 3)
    half = stats.t.ppf(0.975, 2) * np.sqrt((4 / 3) ** 2 / 6 * 3 / 2)
    assert found.high - found.estimate == pytest.approx(half)


def test_restricted_mean_of_one_run_bounds_nothing():
    assert st.restricted_mean(st.Times(np.array([5.0]), np.array([True]))) == (5, -np.inf, np.inf)


@pytest.mark.parametrize("horizon", [0.0, 36.0])
def test_horizon_within_what_was_seen(horizon):
    with pytest.raises(ValueError, match=r"^`horizon` must be above 0 and at most 35 steps, but got"):
        st.restricted_mean(TREATED, horizon)


def test_first_reached_and_held():
    steps, curve = np.array([10, 20, 30, 40]), np.array([[0, 5, 0, 5], [0, 5, 5, 5], [0, 1, 2, 3]])
    at_once = st.steps_to_threshold(steps, curve, 5)
    np.testing.assert_array_equal(at_once.steps, [20, 20, 40])
    np.testing.assert_array_equal(at_once.reached, [True, True, False])
    held = st.steps_to_threshold(steps, curve, 5, hold=2)
    np.testing.assert_array_equal(held.steps, [40, 20, 40])
    np.testing.assert_array_equal(held.reached, [False, True, False])
    with pytest.raises(ValueError, match=r"^hold must be between 1 and the 4 points of the curve, but got 5\.$"):
        st.steps_to_threshold(steps, curve, 5, hold=5)


def test_times_need_one_shape():
    with pytest.raises(ValueError, match=r"^Times need steps and reached of one shape \(N,\) with N >= 1, but got"):
        st.Times(np.zeros(3), np.zeros(2, bool))


@pytest.mark.parametrize("runs", [10, 30])
def test_coverage_of_median_and_restricted_mean(runs):
    """1,000 studies of exponential times, budget 100, 19 % never reach; bounds are 5 standard errors and more."""
    rng = np.random.default_rng(runs)
    mean, budget = 60.0, 100.0
    medians = means = 0
    for true in rng.exponential(mean, size=(1_000, runs)):
        times = st.Times(np.minimum(true, budget), true < budget)
        median, restricted = st.median_steps(times), st.restricted_mean(times)
        medians += median.low <= mean * np.log(2) <= median.high
        horizon = times.steps.max()
        means += restricted.low <= mean * (1 - np.exp(-horizon / mean)) <= restricted.high
    assert 0.90 < medians / 1_000 < 0.99
    assert 0.91 < means / 1_000 < 0.99


def test_logrank_keeps_its_level():
    """800 studies; 5 standard errors of .0077 above .05."""
    rng = np.random.default_rng(3)
    alarms = 0
    for true in rng.exponential(60, size=(800, 2, 15)):
        a, b = (st.Times(np.minimum(x, 100), x < 100) for x in true)
        alarms += st.logrank_test(a, b) <= 0.05
    assert 0.015 < alarms / 800 < 0.05 + 5 * 0.0077
