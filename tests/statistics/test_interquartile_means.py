"""Statistics against closed forms, scipy.stats, hand-worked examples and simulation.

Simulations have fixed seeds, so they pass or fail for good; the bounds leave a false-alarm rate below 1e-6 to
any other seed (binomial counts at more than 5 standard errors), so a change of NumPy's streams does not break
them.
"""

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st
from replaylab.errors import ConfigError
from replaylab.statistics import bootstrap, interquartile_means, resampling


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
    interval = st.bootstrap_interval(values, resamples=50_000, seed=1, calibrated=False)
    expected = stats.bootstrap(
        (values,),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=50_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert interval.low == pytest.approx(expected.low, abs=0.02)
    assert interval.high == pytest.approx(expected.high, abs=0.02)
    assert interval.estimate == pytest.approx(stats.trim_mean(values, 0.25))


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


def test_paired_intervals_are_narrower_on_paired_data():
    """200 studies of 10 seeds, seeds sharing 80 % of the variance: paired ones are less than 2/3 as wide."""
    rng = np.random.default_rng(1)
    widths = []
    for study in range(200):
        shared = rng.normal(0, 2, size=10)
        a, b = shared + rng.normal(size=10), shared + rng.normal(size=10)
        pair = st.paired_difference(a, b, resamples=400, seed=study)
        free = st.unpaired_difference(a, b, resamples=400, seed=study)
        assert pair.estimate == pytest.approx(free.estimate)
        widths.append([pair.high - pair.low, free.high - free.low])
    paired, unpaired = np.median(widths, axis=0)
    assert paired < 2 / 3 * unpaired
    assert np.mean([p < u for p, u in widths]) > 0.9


def test_unpaired_groups_may_differ_in_size():
    difference = st.unpaired_difference(np.full(7, 3.0), np.full(4, 1.0))
    assert difference == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_is_a_share(level):
    with pytest.raises(ConfigError, match="`level` must be between 0 and 1, but got "):
        st.bootstrap_interval([1.0, 2.0], level=level)


def test_ends_are_percentiles_of_the_stated_shares():
    """By hand, from the same draws: 10 runs, t_9(.975) = 2.262157."""
    values = np.random.default_rng(2).lognormal(size=(10, 1))
    samples = resampling.resample(interquartile_means.pooled_iqm, values, resamples=3_000, rng=np.random.default_rng(5))
    plain = st.bootstrap_interval(values, resamples=3_000, seed=5, calibrated=False)
    assert plain[1:] == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])), rel=1e-12)
    interval = st.bootstrap_interval(values, resamples=3_000, seed=5)
    by_hand = bootstrap.smooth_ends(np.sort(samples), stats.norm.sf(2.262157))
    assert interval[1:] == pytest.approx(by_hand, rel=1e-5)
    assert resampling.tail(0.95, 10, difference=True) == pytest.approx(stats.norm.sf(2.262157 * np.sqrt(10 / 9)))
    assert resampling.tail(0.95, 10, 3) == pytest.approx(stats.norm.sf(stats.t.ppf(0.975, 27) * np.sqrt(10 / 9)))
    assert resampling.tail(0.95, 10**6) == pytest.approx(0.025, rel=1e-4)
    assert resampling.tail(0.95, 1) == pytest.approx(0.025)


def test_a_large_study_is_resampled_in_blocks(monkeypatch):
    values = np.random.default_rng(4).normal(size=(6, 2))
    at_once = st.bootstrap_interval(values, resamples=999)
    monkeypatch.setattr(resampling, "_BLOCK", 12 * 100)
    assert st.bootstrap_interval(values, resamples=999) == at_once


def test_curve_band_is_the_interval_at_each_point():
    values = np.random.default_rng(8).normal(size=(10, 5)).cumsum(axis=1)
    band = st.curve_band(values, resamples=4_000)
    for t in range(5):
        interval = st.bootstrap_interval(values[:, t], resamples=20_000)
        assert (band.estimate[t], band.low[t], band.high[t]) == pytest.approx(tuple(interval), abs=0.15)


@pytest.mark.parametrize("runs", [1, 2, 3, 7, 40])
def test_curve_band_is_what_sorting_every_resample_gives(runs):
    values = np.random.default_rng(runs).normal(size=(runs, 3)).round(1)  # with ties
    draws = np.random.default_rng(5).integers(0, runs, size=(500, runs))
    samples = np.stack([st.interquartile_mean(column[draws], axis=1) for column in values.T], axis=1)
    share = resampling.tail(0.95, runs)
    low, high = np.quantile(samples, [share, 1 - share], axis=0)
    band = st.curve_band(values, resamples=500, seed=5)
    assert band.low == pytest.approx(low, abs=1e-12)
    assert band.high == pytest.approx(high, abs=1e-12)


def test_same_seed_same_numbers():
    values = np.random.default_rng(9).normal(size=12)
    assert st.bootstrap_interval(values, seed=4) == st.bootstrap_interval(values, seed=4)
    assert st.bootstrap_interval(values, seed=4) != st.bootstrap_interval(values, seed=5)
