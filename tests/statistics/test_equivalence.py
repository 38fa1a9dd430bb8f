"""Equivalence, and the power of a planned study, against closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st

BASE = np.random.default_rng(0).normal(0, 10, size=30)
NOISE = np.random.default_rng(1).normal(0, 1, size=30)


@pytest.mark.parametrize(
    ("shift", "bounds", "verdict"),
    [
        (0, (-5, 5), "equivalent"),
        (2, (-5, 5), "equivalent"),
        (20, (-5, 5), "higher"),
        (-20, (-5, 5), "lower"),
        (0, (-0.01, 0.01), "inconclusive"),
        (5, (-5, 5), "higher"),
    ],
)
def test_verdicts(shift, bounds, verdict):
    result = st.paired_equivalence(BASE + NOISE + shift, BASE, st.Bounds(*bounds))
    assert result.verdict == verdict
    assert result.difference.low <= result.inner.low <= result.inner.high <= result.difference.high


def test_bounds_hold_zero():
    with pytest.raises(ValueError, match=r"^Equivalence bounds need low < 0 < high, but got 1 and 2\.$"):
        st.Bounds(1, 2)


def test_at_the_bound_equivalence_is_rare():
    """The truth is at the bound: at most 5 % should be called equivalent; 600 studies, 5 standard errors of .009."""
    rng = np.random.default_rng(2)
    wrong = 0
    for i in range(600):
        b = rng.normal(size=12)
        a = b + 1 + rng.normal(0, 0.3, size=12)
        wrong += st.paired_equivalence(a, b, st.Bounds(-1, 1), resamples=400, seed=i).equivalent
    assert 0.005 < wrong / 600 < 0.05 + 5 * 0.009


def test_power_of_normal_differences_is_near_the_t_tests():
    """A pilot so large that it is the chunk; the IQM's test is a little weaker than the t test."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=20_000) + rng.normal(0, np.sqrt(0.5), size=(2, 20_000))
    power = st.power(a, b, seeds=12, effect=1.0, studies=400, permutations=500)
    t_test = stats.nct.sf(stats.t.ppf(0.975, 11), 11, np.sqrt(12))
    assert t_test == pytest.approx(0.886, abs=0.01)
    assert t_test - 0.25 < power.chance.estimate < t_test + 0.05
    assert power.chance.low < power.chance.estimate < power.chance.high


def test_power_grows_with_seeds_and_is_alpha_without_effect():
    a, b = BASE + 3 * NOISE, BASE
    small, large = (st.power(a, b, n, effect=3.0, studies=100, permutations=300).chance.estimate for n in (6, 24))
    assert small + 0.2 < large
    none = st.power(a, b, 12, effect=0.0, studies=400, permutations=300).chance.estimate
    assert none < 0.05 + 5 * 0.011
    fewer = st.power(a, b, 12, effect=3.0, comparisons=10, studies=100, permutations=300).chance.estimate
    assert fewer < st.power(a, b, 12, effect=3.0, studies=100, permutations=300).chance.estimate


def test_power_of_a_hopeless_test_is_refused():
    message = r"^A test of 5 pairs with 1,000 permutations cannot reach p <= 0\.05; its smallest p is 0\.062\."
    with pytest.raises(ValueError, match=message):
        st.power(BASE, BASE, 5)
