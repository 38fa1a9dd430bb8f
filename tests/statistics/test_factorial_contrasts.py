"""Contrasts, main effects and the correlation of seeds against closed forms, enumeration and simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st


def factorial(seeds=12, a=0.0, b=0.0, ab=0.0, seed=0):
    """Seeds by 2 by 2 with known effects; a seed's own level is large."""
    rng = np.random.default_rng(seed)
    cells = a * np.array([[-0.5], [0.5]]) + b * np.array([-0.5, 0.5]) + ab * np.array([[0.25, -0.25], [-0.25, 0.25]])
    return rng.normal(0, 10, size=(seeds, 1, 1)) + cells + rng.normal(0, 0.5, size=(seeds, 2, 2))


MAIN_A = st.contrast_weights([-1, 1], [0.5, 0.5])
MAIN_B = st.contrast_weights([0.5, 0.5], [-1, 1])
INTERACTION = st.contrast_weights([-1, 1], [-1, 1])


def test_each_contrast_finds_its_own_effect_only():
    y = factorial(a=3.0, ab=4.0, seed=1)
    a, b, ab = (st.contrast(y, w) for w in (MAIN_A, MAIN_B, INTERACTION))
    assert a.size.low < 3 < a.size.high
    assert ab.size.low < 4 < ab.size.high
    assert a.p == ab.p == 2 / 2**12
    assert b.size.low < 0 < b.size.high
    assert b.p > 0.05


def test_contrast_is_the_exact_sign_flip_test():
    y = factorial(seeds=7, a=0.3)
    each = (y * MAIN_A).sum(axis=(1, 2))
    null = [abs(np.mean(np.array(s) * each)) for s in itertools.product([1, -1], repeat=7)]
    found = st.contrast(y, MAIN_A)
    size = st.bootstrap_interval(each)
    assert found.size == pytest.approx(size)
    flipped = np.mean(np.array(null) >= abs(each.mean()) - 1e-12)
    assert found.p == max(flipped, st.interval_p(size, 7))


def test_contrast_is_of_the_estimand_of_its_interval():
    """A mean far from 0 with an IQM of 0: 30 seeds of a skewed distribution, where flips alone answer for the mean."""
    each = np.exp(np.random.default_rng(3).normal(size=30))
    each -= st.interquartile_mean(each)
    each[:4] += 3.0
    each -= st.interquartile_mean(each)
    found = st.contrast(each[:, None], [1.0])
    assert st.max_t(each[:, None])[0] < 0.05
    assert found.size.low < 0 < found.size.high
    assert found.p > 0.05


def test_weights_must_fit():
    with pytest.raises(
        ValueError, match=r"^Weights must be of the shape of a seed's cells, \(2, 2\), but got \(2,\)\.$"
    ):
        st.contrast(factorial(), [1, -1])


def test_main_effect_of_two_levels_is_the_permutation_test_of_the_mean():
    y = factorial(seeds=9, a=0.5)
    d = (y[:, 1] - y[:, 0]).mean(axis=1)
    exact = stats.permutation_test(
        (d, np.zeros(9)), lambda u, v, axis: np.mean(u - v, axis=axis), permutation_type="samples", vectorized=True
    ).pvalue
    assert st.main_effect_test(y, 1) == pytest.approx(exact, abs=6 * np.sqrt(0.25 / st.PERMUTATIONS))


def test_main_effect_of_three_levels():
    rng = np.random.default_rng(4)
    y = rng.normal(0, 10, size=(10, 1, 1)) + np.array([0, 1, 3])[:, None] + rng.normal(size=(10, 3, 2))
    assert st.main_effect_test(y, 1) < 0.001
    assert st.main_effect_test(y, 2) > 0.05
    with pytest.raises(ValueError, match=r"^A factor's axis must be between 1 and 2, but got 0\.$"):
        st.main_effect_test(y, 0)


def test_main_effect_keeps_its_level():
    """800 null studies; 5 standard errors of .0077 above .05."""
    rng = np.random.default_rng(5)
    y = rng.normal(0, 5, size=(800, 8, 1)) + rng.exponential(size=(800, 8, 3))
    alarms = sum(st.main_effect_test(x, 1, permutations=300, seed=i) <= 0.05 for i, x in enumerate(y))
    assert 0.015 < alarms / 800 < 0.05 + 5 * 0.0077


def test_correlation_of_seeds_of_the_textbook():
    """Shrout and Fleiss 1979, table 4: six targets, four judges, ICC(3, 1) = .71."""
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert st.seed_correlation(ratings) == pytest.approx(0.71, abs=0.005)
    assert st.seed_correlation(np.zeros((3, 2))) == 0.0
    with pytest.raises(ValueError, match=r"^A correlation of seeds needs two seeds and two cells, but got 1 and 2\.$"):
        st.seed_correlation([[1, 2]])
