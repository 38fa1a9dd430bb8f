"""The same data through rliable, https://github.com/google-research/rliable: equal within the bootstrap's own noise.

rliable brings pandas, statsmodels and seaborn, so it is in no extra: `pip install rliable "pandas<3"` to run these. Its
interval is the plain percentile one, ours with `calibrated=False`. The standard error of an end from B resamples is
about 2.7 sd / sqrt(B), the width 3.9 sd: with 20,000 of ours and 5,000 of theirs, 1.1 % of the width together, and
the 7 % allowed are more than six of them.
"""

import numpy as np
import pytest

from replaylab import statistics as st

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # rliable's own dependencies' deprecations
]
RESAMPLES = 20_000
THEIRS = 5_000


@pytest.fixture(scope="module")
def rliable():
    pytest.importorskip("rliable", reason="pip install rliable")
    from rliable import library, metrics

    return library, metrics


def scores(seed, runs=12, environments=3):
    rng = np.random.default_rng(seed)
    return rng.gamma(3, 1 + np.arange(environments), size=(runs, environments))


def close(actual, expected):
    width = actual.high - actual.low
    assert abs(actual.low - expected[0]) < 0.07 * width
    assert abs(actual.high - expected[1]) < 0.07 * width


def state():
    return np.random.RandomState(1)


@pytest.mark.parametrize("shape", [(10, 1), (12, 3), (30, 2)])
def test_interquartile_mean(rliable, shape):
    library, metrics = rliable
    x = scores(0, *shape)
    points, ends = library.get_interval_estimates(
        {"x": x}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=THEIRS, random_state=state()
    )
    interval = st.bootstrap_interval(x, resamples=RESAMPLES, calibrated=False)
    assert interval.estimate == pytest.approx(points["x"][0], rel=1e-12)
    close(interval, ends["x"][:, 0])
    wider = st.bootstrap_interval(x, resamples=RESAMPLES)
    assert wider.low < interval.low < interval.high < wider.high


def test_probability_of_improvement(rliable):
    library, metrics = rliable
    x, y = scores(1), 0.8 * scores(2, runs=9)
    points, ends = library.get_interval_estimates(
        {"xy": (x, y)},
        lambda a, b: np.array([metrics.probability_of_improvement(a, b)]),
        reps=THEIRS,
        random_state=state(),
    )
    interval = st.probability_of_improvement(x, y, paired=False, resamples=RESAMPLES, calibrated=False)
    assert interval.estimate == pytest.approx(points["xy"][0], rel=1e-12)
    close(interval, ends["xy"][:, 0])


def test_performance_profile(rliable):
    library, _ = rliable
    x, thresholds = scores(3, runs=25), np.linspace(0, 15, 11)
    points, ends = library.create_performance_profile({"x": x}, thresholds, reps=5_000)
    band = st.performance_profile(x, thresholds, resamples=RESAMPLES, calibrated=False)
    np.testing.assert_allclose(band.estimate, points["x"], rtol=1e-12)
    np.testing.assert_allclose(band.low, ends["x"][0], atol=2 / x.size)  # two steps of a share of 75 runs
    np.testing.assert_allclose(band.high, ends["x"][1], atol=2 / x.size)


def test_difference_of_interquartile_means(rliable):
    """rliable has no paired difference; its independent one, of the difference of IQMs, is our unpaired one."""
    library, metrics = rliable
    x, y = scores(4), scores(5)
    points, ends = library.get_interval_estimates(
        {"xy": (x, y)},
        lambda a, b: np.array([metrics.aggregate_iqm(a) - metrics.aggregate_iqm(b)]),
        reps=THEIRS,
        random_state=state(),
    )
    interval = st.unpaired_difference(x, y, resamples=RESAMPLES, calibrated=False)
    assert interval.estimate == pytest.approx(points["xy"][0], rel=1e-12)
    close(interval, ends["xy"][:, 0])
