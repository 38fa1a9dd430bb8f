"""A run without a number is no evidence: it is refused where tests and intervals are made of runs."""

import warnings

import numpy as np
import pytest

from replaylab import statistics as st
from replaylab.errors import ConfigError, NonFiniteError

GOOD = np.random.default_rng(0).normal(size=10)
BAD = np.where(np.arange(10) == 3, np.nan, GOOD + 1.0)

CALLS = {
    "paired_permutation_test": st.paired_permutation_test,
    "paired_test": st.paired_test,
    "paired_difference": st.paired_difference,
    "unpaired_difference": st.unpaired_difference,
    "standardised_difference": st.standardised_difference,
    "probability_of_improvement": st.probability_of_improvement,
}


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CALLS)
def test_of_two_groups(name, wrong):
    bad = np.where(np.isnan(BAD), wrong, BAD)
    for pair in ((GOOD, bad), (bad, GOOD)):
        with pytest.raises(NonFiniteError, match=rf"Values must be finite, but got {wrong} for run 3: leave a run"):
            CALLS[name](*pair)


def test_of_one_group():
    with pytest.raises(NonFiniteError, match="for run 3"):
        st.bootstrap_interval(BAD)
    with pytest.raises(NonFiniteError, match="for run 3"):
        st.sign_flip_test(BAD)
    with pytest.raises(ConfigError, match="`p_values` must be finite numbers"):
        st.holm([0.1, np.nan])


@pytest.mark.parametrize(("wrong", "said"), [([-0.1], "-0.1"), ([0.5, 1.5], "1.5")])
def test_what_is_no_chance(wrong, said):
    with pytest.raises(ConfigError, match=rf"P-values must be from 0 to 1, but got {said}\."):
        st.holm(wrong)


def test_steps_that_are_out_of_order():
    for call in (lambda x: st.area_under_curve(x, [0, 2, 4]), lambda x: st.on_grid(x, [0, 2, 4], [1])):
        with pytest.raises(ConfigError, match="`steps` must not decrease, but 2 is followed by 1; sort them before"):
            call([0, 2, 1])
    with pytest.raises(ConfigError, match="`steps` must increase, but are all 3"):
        st.area_under_curve([3, 3], [1, 2])
    assert st.area_under_curve([0, 1, 1, 2], [0.0, 2.0, 2.0, 4.0]) == 2.0


def test_means_of_runs_without_a_number_are_none():
    """NaN is sorted to the end, where an interquartile mean would cut it off as if it were the largest."""
    assert np.isnan(st.interquartile_mean([1.0, 2.0, 3.0, np.nan]))
    assert st.interquartile_mean([1.0, 2.0, 3.0, np.inf]) == 2.5
    runs = np.array([[1.0, 2.0]] * 8)
    runs[:2, 0] = np.nan
    band = st.curve_band(runs)
    assert np.isnan([band.estimate[0], band.low[0], band.high[0]]).all()
    assert band.estimate[1] == 2.0


@pytest.mark.parametrize("call", [st.max_t, st.mean_intervals])
def test_families_with_an_infinite_value_are_refused(call):
    with pytest.raises(NonFiniteError, match="one is infinite"):
        call([[1.0, np.inf], [2.0, 3.0], [3.0, 4.0]])


def test_a_band_beside_infinite_runs():
    """Without one warning; what is finite is the quantile of the resamples, the others next to it."""
    values = np.array(
        [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0], [6.0, 6.0], [7.0, 7.0], [np.inf, 8.0]]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        band = st.curve_band(values, seed=3)
    plain = st.curve_band(values[:, 1:], seed=3)
    np.testing.assert_array_equal(
        (band.estimate[1], band.low[1], band.high[1]), np.ravel((plain.estimate, plain.low, plain.high))
    )
    assert band.estimate[0] == 4.5
    assert 1.5 < band.low[0] < 3.5
    assert band.high[0] == np.inf
    draws = np.random.default_rng(3).integers(0, 8, size=(2_000, 8))
    brute = np.sort(values[draws, 0], axis=1)[:, 2:6].mean(1)
    assert np.isinf(brute).mean() > 0.025
    assert band.low[0] in brute
