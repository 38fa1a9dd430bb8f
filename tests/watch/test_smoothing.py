"""Moving averages, against their definitions."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.watch import ewma, running_mean

X = np.random.default_rng(0).normal(-50, 30, (3, 257))


def slow_ewma(x, span):
    alpha = 2 / (span + 1)
    out = []
    for t in range(len(x)):
        weights = [(1 - alpha) ** i for i in range(t + 1)]
        out.append(sum(w * x[t - i] for i, w in enumerate(weights)) / sum(weights))
    return out


@pytest.mark.parametrize("span", [1, 2, 10, 100])
def test_ewma_is_its_closed_form_for_every_seed(span):
    np.testing.assert_allclose(ewma(X, span), [slow_ewma(x, span) for x in X], rtol=1e-12)


def test_ewma_is_what_pandas_gives():
    """Numbers of ``pandas.Series(x).ewm(span=100, adjust=True).mean()``, pandas 2.3.3."""
    smoothed = ewma([1.0, 4.0, 9.0, 16.0, 25.0])
    np.testing.assert_allclose(smoothed, PANDAS, rtol=1e-12)


PANDAS = [1.0, 2.515, 4.720042665244493, 7.625189981001901, 11.240526302258496]


def test_ewma_of_a_constant_is_the_constant():
    np.testing.assert_allclose(ewma(np.full(5_000, 7.0)), 7.0, rtol=1e-12)


@pytest.mark.parametrize("window", [1, 10, 100, 1_000])
def test_running_mean_is_the_mean_of_the_last(window):
    expected = [[x[max(0, t + 1 - window) : t + 1].mean() for t in range(len(x))] for x in X]
    np.testing.assert_allclose(running_mean(X, window), expected, rtol=1e-11)


def test_running_mean_keeps_its_accuracy_over_a_long_run():
    x = np.random.default_rng(1).normal(1e4, 1, 200_000)
    np.testing.assert_allclose(running_mean(x, 100)[-1], x[-100:].mean(), rtol=1e-10)


@pytest.mark.parametrize("smooth", [ewma, running_mean])
def test_a_seed_that_ended_is_nan_and_leaves_the_others_alone(smooth):
    x = X.copy()
    x[1, 100:] = np.nan
    smoothed = smooth(x, 10)
    np.testing.assert_array_equal(smoothed[[0, 2]], smooth(X, 10)[[0, 2]])
    np.testing.assert_array_equal(smoothed[1, :100], smooth(X, 10)[1, :100])
    assert np.isnan(smoothed[1, 100:]).all()


@pytest.mark.parametrize(("smooth", "name"), [(ewma, "span"), (running_mean, "window")])
def test_too_short(smooth, name):
    with pytest.raises(ConfigError, match=f"`{name}` must be at least 1, but got 0"):
        smooth(X, 0)
