"""Ends of intervals: exact for few runs, steady for many, and means of quantiles."""

import itertools

import numpy as np
import pytest

from replaylab import statistics as st
from replaylab.statistics import bootstrap, interquartile_means
from replaylab.statistics.resampling import resample, tail
from tests.statistics.coverage import DISTRIBUTIONS


def window_mean(samples, share):
    """The mean of 200,001 quantiles of a finite distribution, by shares half to one and a half of ``share``."""
    shares = np.linspace(0.5 * share, 1.5 * share, 200_001)
    return np.mean(np.quantile(samples, shares, method="inverted_cdf"))


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_all_resamples_are_those_of_brute_force(runs):
    x = np.random.default_rng(runs).lognormal(size=(runs, 1))
    y = np.random.default_rng(9 + runs).lognormal(size=(runs, 1))
    every = np.array(list(itertools.product(range(runs), repeat=runs)))
    brute = np.sort(interquartile_means.iqm_difference(x[every], y[every]))
    estimates, chances = bootstrap.enumerated(interquartile_means.iqm_difference, x, y)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    for value in np.unique(brute.round(9)):
        here = np.abs(estimates - value) < 1e-8
        assert chances[here].sum() == pytest.approx(np.mean(np.abs(brute - value) < 1e-8), abs=1e-12)
    share = tail(0.95, runs, difference=True)
    interval = st.paired_difference(x, y)
    assert interval.low == pytest.approx(window_mean(brute, share), rel=1e-4, abs=1e-9)
    assert interval.high == pytest.approx(-window_mean(np.sort(-brute), share), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("runs", [2, 5, 8])
def test_few_runs_leave_nothing_to_the_seed(runs):
    x = np.random.default_rng(runs).normal(size=(2, runs))
    assert st.bootstrap_interval(x[0], seed=1) == st.bootstrap_interval(x[0], seed=2)
    assert st.paired_difference(*x, seed=1) == st.paired_difference(*x, seed=2)


def test_an_end_is_the_mean_of_its_quantiles():
    samples = np.sort(np.random.default_rng(0).lognormal(size=999))
    low, high = bootstrap.smooth_ends(samples, 0.02)
    assert low == pytest.approx(window_mean(samples, 0.02), rel=1e-5)
    assert high == pytest.approx(-window_mean(np.sort(-samples), 0.02), rel=1e-5)
    assert bootstrap.smooth_ends(np.array([3.0, 3.0, 3.0]), 0.02) == pytest.approx((3.0, 3.0), rel=1e-12)


def spreads(function):
    """Standard deviation of the ends over 12 resampling seeds, in widths."""
    ends = np.array([function(seed)[1:] for seed in range(12)])
    return ends.std(axis=0, ddof=1).max() / np.diff(ends).mean()


@pytest.mark.parametrize("distribution", ["normal", "half lost", "30 % lost"])
@pytest.mark.parametrize("runs", [10, 14])
def test_ends_stay_within_what_is_said(distribution, runs):
    """The larger of two ends' standard deviations over 12 seeds is above 2.4 times the truth with chance 1e-7 or so."""
    rng = np.random.default_rng(runs)
    for _ in range(2):
        x, y = DISTRIBUTIONS[distribution](rng.normal(size=(2, runs)))
        for function in (
            lambda seed, x=x: st.bootstrap_interval(x, seed=seed),
            lambda seed, x=x, y=y: st.paired_difference(x, y, seed=seed),
        ):
            assert spreads(function) < 2.4 * bootstrap.STEADY


def test_an_end_between_two_peaks_is_steadier_than_a_quantile():
    """Ten runs, three of them lost: the quantile falls between resamples with and without enough of those."""
    x = np.array([470.0, 480, 490, 475, 485, 495, 478, 120, 110, 100])
    y = np.array([478.0, 488, 498, 483, 493, 500, 486, 484, 492, 130])

    def quantiles(seed):
        samples = resample(interquartile_means.iqm_difference, x[:, None], y[:, None], rng=np.random.default_rng(seed))
        share = tail(0.95, 10, difference=True)
        return (0.0, *np.quantile(samples, [share, 1 - share]))

    assert spreads(quantiles) > 0.05
    assert spreads(lambda seed: st.paired_difference(x, y, seed=seed)) < 2.4 * bootstrap.STEADY


def test_almost_constant_runs():
    """16 of 20 runs at the ceiling, an interval of about 20: a tenth of resamples hold enough of the others."""
    x = np.r_[np.full(16, 500.0), 120, 300, 410, 480]
    ends = np.array([st.bootstrap_interval(x, seed=seed)[1:] for seed in range(12)])
    assert ends.std(axis=0, ddof=1).max() < 2.4 * bootstrap.STEADY * 20.0
    assert (ends[:, 1] == 500.0).all()


def test_no_more_is_drawn_than_is_needed():
    drawn = []

    def draw(distribution):
        def some(count):
            drawn.append(count)
            return distribution(np.random.default_rng(len(drawn)).normal(size=count))

        return some

    bootstrap.steady_ends(draw(np.asarray), 0.02)
    assert sum(drawn) <= 20_000
    drawn.clear()
    bootstrap.steady_ends(draw(lambda z: np.where(z > 2.0, 1.0, 0.0)), 0.02)
    assert sum(drawn) > 50_000
    drawn.clear()
    bootstrap.steady_ends(draw(np.zeros_like), 0.02)
    assert drawn == [10_000]
    bootstrap.steady_ends(draw(lambda z: np.where(z > 2.45, 1.0, 0.0)), 0.02)
    assert sum(drawn) <= 10_000 + bootstrap.MOST_RESAMPLES


@pytest.mark.parametrize("runs", [2, 5, 8])
def test_intervals_widen_up_to_the_last_resolved_level(runs):
    values = np.random.default_rng(runs).normal(size=runs)
    levels = [level for level in (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999) if bootstrap.resolves(level, runs)]
    assert (0.95 in levels) == (runs >= 5)
    intervals = [st.paired_difference(values, np.zeros(runs), level=level) for level in levels]
    for inner, outer in itertools.pairwise(intervals):
        assert values.min() <= outer.low < inner.low < inner.high < outer.high <= values.max()
