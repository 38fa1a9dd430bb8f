"""The p-value of an interval, and of a test and an interval together, against closed forms and in simulated studies."""

import itertools

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st
from replaylab.errors import ShapeError
from tests.statistics.error_rates import families, pairs


@pytest.mark.parametrize("runs", [5, 10, 30])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_p_of_students_interval_is_students(runs, level):
    """Where an interval is Student's for a mean, its p is that of SciPy's t test."""
    x = np.random.default_rng(runs).normal(0.4, 1, size=runs)
    expected = stats.ttest_1samp(x, 0.0)
    interval = st.Interval(float(x.mean()), *expected.confidence_interval(level))
    assert st.interval_t(interval, runs, level=level) == pytest.approx(abs(expected.statistic), rel=1e-12)
    assert st.interval_p(interval, runs, level=level) == pytest.approx(expected.pvalue, rel=1e-10)


@pytest.mark.parametrize("interval", [(2, 1e-6, 9), (-2, -9, -1e-6), (2, -1e-6, 3), (-2, -3, 1e-6), (2, 2, 2)])
def test_the_p_is_small_exactly_where_the_interval_leaves_out_0(interval):
    out = not interval[1] <= 0 <= interval[2]
    assert (st.interval_p(st.Interval(*interval), 12) < 0.05) == out


def test_no_difference_and_one_run_tell_nothing():
    assert st.interval_p(st.Interval(0.0, -1.0, 1.0), 10) == 1.0
    assert st.interval_p(st.Interval(0.0, 0.0, 0.0), 10) == 1.0
    assert st.interval_p(st.Interval(3.0, 3.0, 3.0), 10) == 0.0
    assert st.paired_test([3.0], [1.0]).p == 1.0


def test_it_is_the_larger_of_the_two():
    rng = np.random.default_rng(3)
    larger = set()
    for k in range(20):
        a, b = rng.normal(0.7, [1, 4][k % 2], size=12), rng.normal(size=12)
        swaps, interval = st.paired_permutation_test(a, b), st.paired_difference(a, b)
        result = st.paired_test(a, b)
        assert result == (interval, max(swaps, st.interval_p(interval, 12)))
        larger.add(result.p == swaps)
    assert larger == {True, False}


def test_pairs_of_one_environment():
    with pytest.raises(ShapeError, match=r"takes one environment"):
        st.paired_test(np.zeros((3, 2)), np.zeros((3, 2)))


@pytest.mark.parametrize("distribution", ["normal", "30 % lost"])
def test_equal_means_of_unequal_spread_rarely_differ(distribution):
    """150 studies of 30 seeds, spreads 1 : 5. A rate of .06 gives 27 alarms with a chance below 1e-6.

    Swaps alone give 51 of the normal distribution, and 83 of the other; 22 or fewer of these as rarely.
    """
    swaps, _, both = pairs(distribution, 5, 30, 150)
    assert swaps > 22 / 150
    assert both <= 26 / 150


def test_equal_strategies_differ_no_more_often_than_stated():
    """600 studies of 8 seeds that are exchangeable: at most 30 expected, 62 with a chance below 1e-6."""
    assert pairs("lognormal", 1, 8, 600)[2] <= 61 / 600


def test_families_of_contrasts_keep_their_level():
    """150 studies of 30 seeds, 5 skewed contrasts of IQM 0: a rate of .06 gives 27 with a chance below 1e-6.

    Flips alone give 48; 20 or fewer as rarely.
    """
    _, alone, flips, agreed = families("lognormal", 30, 150)
    assert flips > 20 / 150
    assert max(alone, agreed) <= 26 / 150


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1, 2, 5])
@pytest.mark.parametrize("distribution", ["normal", "half lost", "30 % lost", "lognormal"])
@pytest.mark.parametrize("seeds", [10, 30])
def test_the_table_of_the_docs(distribution, spread, seeds):
    """2,000 studies: at a rate of .06, its standard error .0053, 5 of them."""
    assert pairs(distribution, spread, seeds, 2_000)[2] < 0.06 + 5 * 0.0053


def test_an_interval_that_ends_at_zero_shows_nothing():
    """Rounding must not decide: where 0 is the end, p is 1 - level at least."""
    for runs in range(2, 40):
        for low, high in ((0.0, 3.0), (-3.0, 0.0)):
            assert st.interval_p(st.Interval((low + high) / 2.9, low, high), runs) >= 0.05
    treated = [500.0] * 13 + [104.0] + [500.0] * 2 + [104.0] + [500.0] * 12
    lost = {1: 157, 5: 137, 8: 355, 10: 432, 11: 352, 12: 150, 16: 316, 23: 344, 25: 243, 28: 114}
    baseline = [float(lost.get(run, 500)) for run in range(29)]
    result = st.paired_test(treated, baseline)
    assert result.difference.low == 0.0
    assert result.p >= 0.05


def test_sign_flips_of_few_seeds_are_enumerated():
    each = np.random.default_rng(0).normal(0.3, 0.7, size=7)
    null = [abs(np.mean(np.array(signs) * each)) for signs in itertools.product([1, -1], repeat=7)]
    tested = st.sign_flip_test(each)
    assert tested.difference == st.bootstrap_interval(each)
    flipped = np.mean(np.array(null) >= abs(each.mean()) - 1e-12)
    assert tested.p == max(flipped, st.interval_p(tested.difference, 7))


def test_sign_flip_test_agrees_with_its_interval():
    """A mean far from 0 with an IQM of 0: 30 seeds of a skewed distribution, where flips alone test the mean."""
    each = np.exp(np.random.default_rng(3).normal(size=30))
    each -= st.interquartile_mean(each)
    each[:4] += 3.0
    each -= st.interquartile_mean(each)
    tested = st.sign_flip_test(each)
    assert st.max_t(each[:, None])[0] < 0.05
    assert tested.difference.low < 0 < tested.difference.high
    assert tested.p > 0.05


def test_sign_flips_of_several_numbers_per_seed_raise():
    with pytest.raises(ShapeError):
        st.sign_flip_test(np.zeros((5, 2)))
