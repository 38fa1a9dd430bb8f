"""Measures against hand-worked cases, the slow way, SciPy, and their meaning under uniform draws.

Simulations have fixed seeds and bounds of at least 5 standard errors.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from replaylab import measures as m

RNG = np.random.default_rng


def test_pairs_of_one_episode():
    np.testing.assert_allclose(m.same_episode_share([[1, 1, 2, 2], [1, 2, 3, 4], [5, 5, 5, 5]]), [2 / 6, 0, 1])


def test_gaps_and_duplicates():
    ids = [[10, 3, 7, 3], [40, 10, 20, 33]]
    np.testing.assert_array_equal(m.smallest_gap(ids), [0, 7])
    np.testing.assert_array_equal(m.duplicate_share(ids), [0.25, 0])
    assert m.duplicate_share([1, 1, 1, 1]) == 0.75


def test_steps_to_the_end():
    np.testing.assert_array_equal(m.steps_to_end([[0, 3, 4], [9, 5, 10]], [3, 9]), [[3, 0, 5], [0, 4, -1]])


def test_autocorrelation_of_an_autoregression():
    """x_t = .8 x_(t-1) + e has tau = 1.8 / .2 = 9; white noise has 1."""
    noise = RNG(0).normal(size=(2, 200_000))
    series = noise.copy()
    for t in range(1, series.shape[1]):
        series[0, t] += 0.8 * series[0, t - 1]
    tau = m.integrated_autocorrelation(series)
    assert tau == pytest.approx([9, 1], rel=0.15)


def test_autocorrelation_by_hand():
    """1, -1, ...: rho_1 < 0, the first pair is 1 - 3/4; a constant tells nothing new."""
    assert m.integrated_autocorrelation([1.0, -1.0, 1.0, -1.0]) == pytest.approx(2 * (1 - 3 / 4 + 1 / 2 - 1 / 4) - 1)
    assert m.integrated_autocorrelation([3.0, 3.0, 3.0]) == 3


def test_whitened_buffer_is_white():
    buffer = RNG(1).normal(size=(2, 500, 3)) @ RNG(2).normal(size=(3, 3)) + 7
    z = m.whitened(buffer, buffer)
    np.testing.assert_allclose(z.mean(axis=1), 0, atol=1e-10)
    for replica in z:
        np.testing.assert_allclose(np.cov(replica.T, bias=True), np.eye(3), atol=1e-10)


def test_a_feature_that_never_varies_is_left_out():
    buffer = np.column_stack([RNG(3).normal(size=(50, 2)), np.full(50, 4.0)])
    assert np.isfinite(m.whitened(buffer, buffer)).all()
    assert m.row_correlation(buffer[:8], buffer) == pytest.approx(m.row_correlation(buffer[:8, :2], buffer[:, :2]))


def test_row_correlation_by_hand():
    """Four rows on the axes are white up to scale: of six pairs two are opposite, four at right angles."""
    square = np.array([[2.0, 0], [-2, 0], [0, 2], [0, -2]])
    assert m.row_correlation(square, square) == pytest.approx(2 / 6)
    assert m.row_correlation(square @ [[1, 2], [0, 5]] + 3, square @ [[1, 2], [0, 5]] + 3) == pytest.approx(2 / 6)


def test_row_correlation_of_round_rows_is_two_over_pi():
    rows = RNG(4).normal(size=(2_000, 2))
    assert m.row_correlation(rows, rows) == pytest.approx(2 / np.pi, abs=0.01)


def test_excess_correlation_tells_a_block_from_uniform_draws():
    walk = RNG(5).normal(size=(2_000, 4)).cumsum(axis=0)
    uniform = [m.excess_row_correlation(walk[RNG(i).integers(0, 2_000, 32)], walk, seed=i) for i in range(100)]
    assert abs(np.mean(uniform)) < 5 * np.std(uniform) / np.sqrt(100)
    assert m.excess_row_correlation(walk[500:532], walk) > 0.3


def slow_energy(x, y):
    d = lambda a, b: np.linalg.norm(a - b)  # noqa: E731
    across = np.mean([d(a, b) for a in x for b in y])
    return (
        2 * across
        - np.mean([d(a, b) for a, b in itertools.combinations(x, 2)])
        - np.mean([d(a, b) for a, b in itertools.combinations(y, 2)])
    )


def test_energy_distance_is_the_slow_one():
    x, y = RNG(6).normal(size=(2, 5, 3)), RNG(7).normal(1, 2, size=(2, 7, 3))
    np.testing.assert_allclose(m.energy_distance(x, y), [slow_energy(*p) for p in zip(x, y, strict=True)])


def test_energy_distance_is_zero_on_average_if_equal():
    distances = m.energy_distance(RNG(8).normal(size=(4_000, 6, 2)), RNG(9).normal(size=(4_000, 10, 2)))
    assert abs(distances.mean()) < 5 * distances.std() / np.sqrt(4_000)
    assert m.energy_distance(RNG(8).normal(size=(6, 2)) + 5, RNG(9).normal(size=(10, 2))) > 0.5


def test_evenness_by_hand():
    np.testing.assert_allclose(m.effective_sample_size([[1, 1, 1, 1], [1, 0, 0, 0], [3, 1, 0, 0]]), [4, 1, 1.6])
    np.testing.assert_allclose(m.mean_age([[0.5, 0.5, 0], [0, 0, 1]], [2, 1, 0]), [1.5, 0])
    np.testing.assert_allclose(m.never_replayed_share([[0, 1, 2, 0], [1, 1, 1, 1]]), [0.5, 0])
    np.testing.assert_allclose(m.gini([[2, 2, 2, 2], [0, 0, 0, 9], [0, 0, 0, 0]]), [0, 0.75, 0])


def test_gini_is_half_the_relative_mean_difference():
    x = RNG(10).poisson(3, size=40)
    assert m.gini(x) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()))


def test_effective_batch_size_of_copies():
    """A batch of 8 rows, each there 4 times, tells as much as 8; uniform draws of 32 tell 32."""
    rng = RNG(11)
    copies = rng.normal(size=(4_000, 8, 5)).mean(axis=1)
    uniform = rng.normal(size=(4_000, 32, 5)).mean(axis=1)
    assert m.effective_batch_size(copies, uniform, 32) == pytest.approx(8, rel=0.1)
    assert m.effective_batch_size(uniform[:2_000], uniform[2_000:], 32) == pytest.approx(32, rel=0.1)


def test_td_errors_by_hand():
    summary = m.td_errors([[-4.0, 2.0]], [[1.0, 1.0]], [[1.0, 2.0, 3.0, -4.0]])
    assert (summary.mean, summary.median, summary.max, summary.std, summary.gap) == (3, 3, 4, 1, 2)
    assert summary.percentile == pytest.approx([(87.5 + 37.5) / 2])


def test_percentiles_are_scipys_and_fifty_over_the_whole_buffer():
    buffer = np.abs(RNG(12).normal(size=30)).round(1)
    expected = np.mean([stats.percentileofscore(buffer, x, kind="mean") for x in buffer[:7]])
    assert m.td_errors(buffer[:7], buffer[:7], buffer).percentile == pytest.approx(expected)
    assert m.td_errors(buffer, buffer, buffer).percentile == pytest.approx(50)


def test_variance_in_one_pass():
    x = RNG(13).normal(1e3, 1, size=(6, 2, 5)).astype(np.float32)
    np.testing.assert_allclose(m.total_variance(iter(x)), np.var(x.astype(float), axis=0, ddof=1).sum(axis=-1))
    assert np.isnan(m.total_variance(x[:1])).all()


def test_the_legacy_count_is_numpys():
    rows = RNG(14).normal(size=(3, 64, 2)) * [1.0, 0.01]
    np.testing.assert_array_equal(m.legacy_correlated_pairs(rows), [2016] * 3)
    rows = RNG(15).normal(size=(20, 4))
    pairs = np.corrcoef(rows)[np.triu_indices(20, 1)]
    assert m.legacy_correlated_pairs(rows, 0.7) == (np.abs(pairs) > 0.7).sum() > 0
    assert m.legacy_correlated_pairs(rows) == (np.abs(pairs) > 0.8).sum() > 0
    assert m.legacy_correlated_pairs(rows[:, :1]) == 0
