"""Intervals that hold together: what they agree with, and how often whole studies decide wrongly."""

import numpy as np
import pytest
from scipy import stats

from replaylab.errors import ConfigError, ShapeError
from replaylab.statistics import contrast_power, decisions, heterogeneity_test, mean_intervals
from tests.statistics.decision_procedure import FEW_TRUTHS, TRUTHS, rates


class TestIntervals:
    def test_p_values_agree_with_intervals_that_leave_out_0(self):
        rng = np.random.default_rng(0)
        seen = set()
        for k in range(100):
            values = rng.normal(size=(rng.integers(2, 20), 3)) * rng.choice([1, 5], 3) + 0.7
            intervals = mean_intervals(values, resamples=int(rng.integers(19, 400)), seed=k)
            outside = (intervals.low > 0) | (intervals.high < 0)
            assert ((intervals.p < 0.05) == outside).all()
            seen |= set(outside.tolist())
        assert seen == {True, False}

    def test_one_contrast_is_about_students(self):
        values = np.random.default_rng(1).normal(0.2, 1.0, (60, 1))
        intervals = mean_intervals(values)
        half = stats.t.ppf(0.975, 59) * stats.sem(values[:, 0])
        assert intervals.estimate[0] == pytest.approx(values.mean())
        assert half <= (intervals.high - intervals.low)[0] / 2 < 1.06 * half
        assert stats.ttest_1samp(values[:, 0], 0).pvalue <= intervals.p[0]

    def test_a_family_is_wider_and_copies_cost_nothing(self):
        values = np.random.default_rng(2).normal(size=(40, 8))
        alone, copies, family = (mean_intervals(v) for v in (values[:, :1], values[:, [0] * 8], values))
        np.testing.assert_allclose([copies.low[3], copies.p[3]], [alone.low[0], alone.p[0]])
        assert family.high[0] - family.low[0] > 1.2 * (alone.high[0] - alone.low[0])
        assert (family.p >= alone.p[0]).any()

    def test_missing_seeds(self):
        values = np.random.default_rng(3).normal(1.0, 1.0, (30, 2))
        values[20:, 1] = np.nan
        intervals = mean_intervals(values)
        assert intervals.estimate[1] == pytest.approx(values[:20, 1].mean())
        assert intervals.high[1] - intervals.low[1] > intervals.high[0] - intervals.low[0]

    @pytest.mark.parametrize("seeds", [2, 5, 6, 7, 12])
    def test_of_equal_seeds_p_is_that_of_flipped_signs(self, seeds):
        intervals = mean_intervals(np.full((seeds, 2), [0.0, 0.1]))
        assert intervals.p.tolist() == [1.0, max(1 / 20_000, min(1.0, 2 * 2 / 2**seeds))]
        arm = 0.0 if intervals.p[1] < 0.05 else np.inf
        np.testing.assert_array_equal(
            [intervals.low, intervals.high], [intervals.estimate - arm, intervals.estimate + arm]
        )
        assert not arm or seeds < 7

    @pytest.mark.parametrize(("contrasts", "seeds"), [(1, n) for n in range(2, 9)] + [(7, n) for n in (3, 6, 7, 8, 9)])
    def test_fair_coins_are_called_different_as_often_as_said(self, contrasts, seeds):
        """Every pattern of one coin; 1,000 studies of seven: 50 expected at most, 90 with a chance below 1e-6."""
        patterns = (np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1
        coins = patterns[..., None] if contrasts == 1 else np.random.default_rng(seeds).random((1_000, seeds, 7)) < 0.5
        different = (decisions(np.where(coins, 1.0, -1.0), resamples=299).p < 0.05).any(axis=1)
        assert different.mean() <= (0.05 if contrasts == 1 else 0.09)

    def test_more_level_than_resamples_can_tell_has_no_ends(self):
        intervals = mean_intervals(np.full((9, 1), 2.0), resamples=10)
        assert (intervals.low[0], intervals.high[0], intervals.p[0]) == (-np.inf, np.inf, 1 / 11)

    def test_many_studies_at_once_are_those_one_by_one(self):
        values = np.random.default_rng(4).normal(size=(7, 12, 3))
        together = decisions(values, resamples=99, seed=5)
        for k, value in enumerate(values):
            alone = mean_intervals(value, resamples=99, seed=5)
            for a, b in zip(alone, together, strict=True):
                np.testing.assert_allclose(a, b[k])

    @pytest.mark.parametrize("values", [np.zeros(3), np.zeros((1, 2)), np.full((4, 1), np.nan)])
    def test_shapes(self, values):
        with pytest.raises(ShapeError, match=r"shape \(N, K\) with two numbers in each column"):
            mean_intervals(values)


class TestPower:
    def test_of_normal_contrasts_is_that_of_students_test(self):
        pilot = stats.norm.ppf((np.arange(200) + 0.5) / 200) * 0.1
        power = contrast_power(pilot, 40, effect=0.05, bound=0.05, studies=1_000, resamples=299)
        expected = stats.nct.sf(stats.t.ppf(0.975, 39), 39, 0.05 / (0.1 / np.sqrt(40)))
        assert power.different.estimate == pytest.approx(expected, abs=0.04)
        assert power.equivalent.estimate < 0.07

    def test_of_equivalence(self):
        pilot = np.random.default_rng(0).normal(0, 0.1, 300)
        few, many = (contrast_power(pilot, n, effect=0.0, bound=0.05, studies=300, resamples=299) for n in (20, 60))
        assert few.equivalent.estimate < many.equivalent.estimate
        assert many.equivalent.estimate == pytest.approx(
            2 * stats.norm.cdf(0.05 * np.sqrt(60) / 0.1 - 1.67) - 1, abs=0.1
        )
        assert many.different.estimate < 0.1

    @pytest.mark.parametrize(("seeds", "chances"), [(4, (0, 0)), (5, (0, 1)), (6, (1, 1))])
    def test_few_seeds_decide_as_little_as_in_a_study(self, seeds, chances):
        pilot = np.random.default_rng(0).normal(0.0, 1e-3, 40)
        power = contrast_power(pilot, seeds, effect=0.1, bound=1e9, studies=20, resamples=199)
        assert (power.different.estimate, power.equivalent.estimate) == chances

    @pytest.mark.parametrize("alpha", [0.5, 0.6])
    def test_alpha_has_an_equivalence_interval(self, alpha):
        with pytest.raises(ConfigError, match=rf"`alpha` must be between 0 and 0.5, but got {alpha}"):
            contrast_power([1.0, 2.0], 20, effect=0.1, bound=0.05, alpha=alpha)

    def test_one_seed(self):
        with pytest.raises(ConfigError, match="at least two seeds"):
            contrast_power([1.0], 20, effect=0.1, bound=0.05)


FEW = {"studies": 300, "seeds": 60, "resamples": 299}


class TestDecisions:
    """Of whole studies; the table of 2,000 each is that of `decision_procedure`."""

    @pytest.mark.parametrize("name", ["equal levels, spreads 1 : 5", "D = .05, spreads 1 : 5"])
    def test_they_are_seldom_wrong(self, name):
        errors = rates(TRUTHS[name], **FEW)
        for share in (errors.primary_wrong, errors.family_wrong, errors.family_equivalent_wrong):
            assert stats.binomtest(round(share * 300), 300, 0.05, alternative="greater").pvalue > 1e-3
        if name.startswith("D"):  # the bound itself is not equivalent
            assert (
                stats.binomtest(round(errors.primary_equivalent * 300), 300, 0.05, alternative="greater").pvalue > 1e-3
            )

    def test_few_seeds_err_far_more_often_where_one_run_in_ten_fails(self):
        """The table's 31 and 4 %, of 300 studies: false alarms and misses below one in a million each."""
        truth = FEW_TRUTHS["one arm's spread × 5, two kinds of runs"]
        few, enough = (rates(truth, studies=300, seeds=seeds, resamples=299).primary_wrong for seeds in (10, 30))
        assert stats.binomtest(round(few * 300), 300, 0.31).pvalue > 1e-6
        assert stats.binomtest(round(few * 300), 300, 0.15, alternative="greater").pvalue < 1e-6
        assert stats.binomtest(round(enough * 300), 300, 0.05, alternative="greater").pvalue > 1e-6

    @pytest.mark.slow
    def test_lognormal_runs_need_more_than_thirty_seeds(self):
        """The table's 8.5 % with 30 seeds, of 2,000 studies: above 5 % with p < 1e-6."""
        truth = FEW_TRUTHS["one arm's spread × 5, lognormal"]
        wrong = round(rates(truth, studies=2_000, seeds=30).primary_wrong * 2_000)
        assert stats.binomtest(wrong, 2_000, 0.05, alternative="greater").pvalue < 1e-6
        assert stats.binomtest(wrong, 2_000, 0.085).pvalue > 1e-6

    @pytest.mark.slow
    @pytest.mark.parametrize("name", TRUTHS)
    def test_two_thousand_of_each(self, name):
        errors = rates(TRUTHS[name], studies=2_000, seeds=120)
        for share in (errors.primary_wrong, errors.family_wrong, errors.family_equivalent_wrong):
            assert stats.binomtest(round(share * 2_000), 2_000, 0.05, alternative="greater").pvalue > 1e-3
        if "D = .05" in name:
            assert stats.binomtest(round(errors.primary_equivalent * 2_000), 2_000, 0.05, "greater").pvalue > 1e-3


class TestHeterogeneity:
    def test_q_is_cochrans(self):
        values = np.random.default_rng(0).normal(size=(30, 4)) * [1, 2, 1, 3] + [0, 0.5, 1, 0]
        weights, means = 30 / values.var(axis=0, ddof=1), values.mean(axis=0)
        common = (weights * means).sum() / weights.sum()
        assert heterogeneity_test(values).q == pytest.approx((weights * (means - common) ** 2).sum())

    def test_p_is_about_alexander_and_governs(self):
        """And rather larger: 0.287 and 0.260, 0.0083 and 0.0037."""
        for shift in (0.0, 0.3):
            values = np.random.default_rng(1).normal(size=(60, 5)) * [1, 1, 2, 2, 1] + [0, 0, 0, 0, shift]
            expected = stats.alexandergovern(*values.T).pvalue
            assert 0.9 * expected < heterogeneity_test(values).p < 2.5 * expected

    def test_false_alarms(self):
        """Of 1,000 studies of equal means and unequal spreads 50 are expected; 90 with a chance below 1e-6."""
        rng = np.random.default_rng(2)
        studies = rng.normal(size=(1_000, 60, 5)) * [0.1, 0.2, 0.1, 1.0, 0.3]
        assert 20 < sum(heterogeneity_test(values, resamples=199).p < 0.05 for values in studies) < 90

    def test_a_common_shift_is_no_heterogeneity(self):
        values = np.random.default_rng(3).normal(size=(40, 5))
        assert heterogeneity_test(values + 7.0).p == heterogeneity_test(values).p

    def test_missing_and_constant_contrasts(self):
        values = np.random.default_rng(4).normal([0, 0, 2], size=(40, 3))
        values[30:, 1] = np.nan
        assert heterogeneity_test(values).p < 0.001
        with_constant = np.column_stack([values, np.full(40, 5.0)])
        assert heterogeneity_test(with_constant) == heterogeneity_test(values)
        assert heterogeneity_test(values[:, :1]).p == 1.0
