"""Studies with one primary contrast: what is corrected, what is not, and what a failed check takes back."""

import json

import numpy as np
import pytest

from replaylab.errors import SpecError
from replaylab.statistics import mean_intervals
from replaylab.study import Spec
from replaylab.study.analysis.contrast_results import evaluate_contrasts, heterogeneity
from replaylab.study.report.headline import contrast_lines, sentence
from replaylab.study.spec.contrasts import resolve_contrasts
from tests.study.analysis.test_contrast_results import (
    CHOICE,
    DEPENDENCE,
    SCORES,
    STATEMENT,
    STRATEGIES,
    curves_at,
    spec,
)

INF = float("inf")
D = {"name": "D", "of": ["dependence", "choice"], "primary": True, "equivalence": 5.0}
CHECK = {"name": "check: L", "more": {"block_length": 4}, "less": {"block_length": 1}, "check": [1.0, INF]}
PRESENT = [DEPENDENCE | {"each_environment": True}, CHOICE | {"each_environment": True}, D]


def level(factors):
    """Single draws are 20 better, in Acrobot 40; choosing is 3 worse."""
    gain = (40.0 if factors["environment"] == "Acrobot-v1" else 20.0) * (factors["block_length"] == 1)
    return gain - 3.0 * (factors["choice"] == "td")


def results(*contrasts, noise=1.0, levels=level):
    study = spec(*contrasts)
    return evaluate_contrasts(study, curves_at(study, levels, noise=noise)).results


class TestRoles:
    def test_numbers_are_those_of_the_means(self):
        by_name = {f.contrast.name: f for f in results(*PRESENT)}
        assert list(by_name) == [
            *("dependence", "dependence, CartPole-v1", "dependence, Acrobot-v1"),
            *("choice", "choice, CartPole-v1", "choice, Acrobot-v1"),
            *("D", "D, CartPole-v1", "D, Acrobot-v1"),
        ]
        family = [name for name in by_name if name != "D"]
        together = mean_intervals(np.stack([by_name[name].each.values for name in family], axis=1))
        alone = mean_intervals(by_name["D"].each.values[:, None])
        for k, name in enumerate(family):
            assert by_name[name].size == (together.estimate[k], together.low[k], together.high[k])
            assert by_name[name].p_max_t == together.p[k] >= by_name[name].p
        assert by_name["D"].size == (alone.estimate[0], alone.low[0], alone.high[0])
        assert by_name["D"].p == by_name["D"].p_max_t == alone.p[0]
        mean_values, *parts = (by_name[name].each.values for name in ("D", "D, CartPole-v1", "D, Acrobot-v1"))
        np.testing.assert_allclose(mean_values, np.mean(parts, axis=0))

    def test_without_a_primary_one_all_is_as_before(self):
        *_, both = results(DEPENDENCE, CHOICE, {"name": "both", "of": ["dependence", "choice"]})
        assert not both.contrast.primary
        c = both.each.values
        assert both.size.estimate == pytest.approx(np.sort(c)[2:-2].mean())

    def test_p_values_and_intervals_agree(self):
        for noise in (1.0, 20.0, 60.0):
            for result in results(*PRESENT, noise=noise):
                assert (result.p_max_t < 0.05) == (not result.size.low <= 0 <= result.size.high)

    @pytest.mark.parametrize("noise", [1.0, 20.0, 60.0])
    def test_the_interval_that_is_printed_is_the_one_that_decides(self, noise):
        bounded = [contrast | {"equivalence": 30.0} for contrast in PRESENT]
        seen = set()
        for result in results(*bounded, noise=noise):
            size, label = result.reported.interval, result.reported.label
            seen.add((label, result.verdict))
            if result.verdict == "equivalent":
                assert -30.0 < size.low < size.high < 30.0
            elif result.verdict in ("higher", "lower", "inconclusive"):
                assert (result.verdict == "inconclusive") == (size.low <= 0.0 <= size.high)
        family = {verdict for label, verdict in seen if label == "simultaneous 95 %"}
        assert "equivalent" in family or noise == 60.0
        assert {label for label, _ in seen} <= {"simultaneous 95 %", "90 %", "95 %"}

    def test_equivalence_is_as_certain_as_differences(self):
        bounded = [DEPENDENCE | {"equivalence": 30.0}, CHOICE | {"name": "C", "primary": True, "equivalence": 30.0}]
        dependence, choice = results(*bounded)
        assert dependence.inner == dependence.size
        assert choice.inner.low > choice.size.low


def of(study, noise):
    """Curves of the study's seeds, those of choosing by TD error one higher."""
    return curves_at(study, lambda f: float(f["choice"] == "td"), seeds=study.seeds, noise=noise)


class TestFewSeeds:
    """Four fair coins of one value and its opposite, almost: on the same side in an eighth of studies."""

    @pytest.mark.parametrize(
        ("seeds", "verdict"), [(4, "inconclusive"), (5, "inconclusive"), (6, "higher"), (10, "higher")]
    )
    def test_seeds_that_agree_by_chance_decide_nothing(self, seeds, verdict):
        study = spec(CHOICE | {"primary": True}, seeds=seeds)
        (result,) = evaluate_contrasts(study, of(study, 1e-3)).results
        assert result.p < 0.05 < 0.9 < result.size.low / result.size.estimate
        assert result.verdict == verdict

    def test_equal_seeds_have_no_interval(self):
        study = spec(CHOICE | {"primary": True, "equivalence": 5.0}, seeds=5)
        equal = evaluate_contrasts(study, of(study, 0.0))
        (result,) = equal.results
        assert (result.size.low, result.size.high, result.p) == (-INF, INF, 2 / 2**5)
        assert (result.reported.interval, result.reported.label) == (result.inner, "90 %"), "by which it is equivalent"
        unbounded = evaluate_contrasts(spec(CHOICE | {"primary": True}, seeds=5), of(study, 0.0))
        assert "(95 % interval −∞ to +∞; " in contrast_lines(unbounded)[0]


class TestHeterogeneity:
    def test_of_contrasts_in_each_environment(self):
        """In score single draws are better by .2 and .08; choosing by TD error is worse by .03 and .006."""
        tested = {f.contrast.name: (count, test.p) for f, count, test in heterogeneity(results(*PRESENT))}
        assert set(tested) == {"dependence", "choice", "D"}
        assert {count for count, _ in tested.values()} == {2}
        assert tested["dependence"][1] < 0.001
        assert not heterogeneity(results(DEPENDENCE, CHOICE, D))

    def test_not_of_checks(self):
        check = CHECK | {"each_environment": True}
        assert "check: L" not in {f.contrast.name for f, *_ in heterogeneity(results(*PRESENT, check))}


class TestWeights:
    def test_a_weighted_sum_is_the_same_difference(self):
        """½(S1 + T1 - S8 - T8) - ½(T1 + T8 - S1 - S8) by strategies' names."""
        td = "prioritized.block_length-{}.beta-0"
        weights = {"uniform": 1.0, td.format(4): -1.0}
        narrow = {"more": {"block_length": 1, "beta": 0.0}, "less": {"block_length": 4, "beta": 0.0}}
        strategies = json.loads(json.dumps(STRATEGIES))
        for name in ("uniform", "blocks"):
            strategies[name]["factors"]["beta"] = 0.0
        d = {"name": "dependence", **narrow, "each_environment": True}
        c = {"name": "choice", "more": {"choice": "td", "beta": 0.0}, "less": {"choice": "uniform", "beta": 0.0}}
        w = {"name": "W", "weights": weights, "each_environment": True}
        study = spec(d, c | {"each_environment": True}, D, w, strategies=strategies)
        by_name = {f.contrast.name: f for f in evaluate_contrasts(study, curves_at(study, level, noise=4.0)).results}
        for place in ("", ", CartPole-v1", ", Acrobot-v1"):
            np.testing.assert_allclose(by_name[f"W{place}"].each.values, by_name[f"D{place}"].each.values)
        assert by_name["W"].cells == 4

    def test_cells_are_chosen(self):
        w = {"name": "W", "weights": {"uniform": 1, "blocks": -1}, "within": {"environment": "CartPole-v1"}}
        (resolved,) = resolve_contrasts(spec(w))
        assert {cell.environment for cell in resolved.cells} == {"CartPole-v1"}
        assert resolved.unit == "score"


class TestChecks:
    def test_a_check_that_fails_guards(self):
        wrong = CHECK | {"name": "one", "guards": ["D"]}
        right = CHECK | {"name": "other", "check": [-INF, -0.1]}
        by_name = {f.contrast.name: f for f in results(*PRESENT, wrong, right)}
        assert (by_name["one"].verdict, by_name["other"].verdict) == ("failed", "passed")
        assert by_name["D"].verdict == "not interpretable"
        assert by_name["dependence"].verdict == "higher"
        study = spec(*PRESENT, wrong, right)
        said = contrast_lines(evaluate_contrasts(study, curves_at(study, level, noise=1.0)))
        assert said[0] == "Not interpretable: the check one failed."
        (check,) = (line for line in said if line.startswith("one"))
        assert check.startswith("one: Check failed on the mean of environments.")
        assert "−0.14" in check
        assert "it must lie within +1 to +∞; 10 seeds" in check

    def test_without_guards_it_guards_all(self):
        verdicts = [f.verdict for f in results(*PRESENT, CHECK)]
        assert verdicts == ["not interpretable"] * 9 + ["failed"]

    def test_not_being_sure_is_failing(self):
        check = {"name": "c", "more": CHOICE["more"], "less": CHOICE["less"], "check": [-0.025, 1.0]}
        *_, judged = results(*PRESENT, check, noise=10.0)
        assert judged.verdict == "failed"
        *_, judged = results(*PRESENT, check, noise=0.1)
        assert judged.verdict == "passed"

    def test_a_check_that_cannot_be_made_fails(self):
        check = CHECK | {"metric": "replay/same_episode_share"}
        assert {f.verdict for f in results(*PRESENT, check)} == {"not interpretable"}

    def test_a_check_has_a_result_in_each_environment(self):
        """Single draws are .2 of score better on CartPole, .08 on Acrobot; the mean alone is within the bounds."""
        check = CHECK | {"check": [-INF, -0.1]}
        *others, judged = results(*PRESENT, check)
        assert judged.verdict == "passed"
        parts = judged.by_environment
        assert {name: part.verdict for name, part in parts.items()} == {"CartPole-v1": "passed", "Acrobot-v1": "failed"}
        np.testing.assert_allclose(np.mean([p.each.values for p in parts.values()], axis=0), judged.each.values)
        assert [part.size.estimate for part in parts.values()] == pytest.approx([-0.2, -0.08], abs=0.01)
        assert {other.verdict for other in others} != {"not interpretable"}, "the mean decides"
        assert not any(other.by_environment for other in others)
        assert sentence(judged).startswith("Check passed on the mean of environments.")
        assert sentence(judged).endswith(
            " By environment: failed in Acrobot-v1 (−0.080); passed in CartPole-v1 (−0.20)."
        )

    def test_a_check_of_contrasts_has_one_too(self):
        check = {"name": "both", "of": ["dependence", "choice"], "check": [-INF, INF]}
        by_name = {f.contrast.name: f for f in results(*PRESENT, check)}
        for environment, part in by_name["both"].by_environment.items():
            np.testing.assert_allclose(part.each.values, by_name[f"D, {environment}"].each.values)

    def test_a_check_in_each_environment_guards_it_and_the_mean(self):
        """The same check as above passes on the mean and fails on Acrobot."""
        check = CHECK | {"check": [-INF, -0.1], "each_environment": True}
        by_name = {f.contrast.name: f for f in results(*PRESENT, check)}
        verdicts = {name: f.verdict for name, f in by_name.items() if f.contrast.check is not None}
        assert verdicts == {"check: L": "passed", "check: L, CartPole-v1": "passed", "check: L, Acrobot-v1": "failed"}
        guarded = {name for name, f in by_name.items() if f.verdict == "not interpretable"}
        assert guarded == {name for name in by_name if name in ("D", "dependence", "choice") or "Acrobot" in name} - {
            "check: L, Acrobot-v1"
        }
        assert by_name["D"].failed_checks == ("check: L, Acrobot-v1",)
        assert [name for name, f in by_name.items() if f.by_environment] == ["check: L"]

    def test_a_check_of_logarithms_bounds_a_ratio(self):
        ratio = {"more": {"block_length": 1}, "less": {"block_length": 4}, "log": True, "each_environment": True}
        study = spec(*PRESENT, {"name": "ratio", **ratio, "check": [0.0, 0.2]})

        def returns(factors):
            ratio = 1.4 if factors["environment"] == "Acrobot-v1" else 1.1
            return 1e6 * ratio ** (factors["block_length"] == 1)

        evaluated = evaluate_contrasts(study, curves_at(study, returns, noise=0.1))
        by_name = {f.contrast.name: f for f in evaluated.results}
        expected = {"CartPole-v1": np.log(1.1), "Acrobot-v1": np.log(1.4)}
        for environment, difference in expected.items():
            assert by_name[f"ratio, {environment}"].size.estimate == pytest.approx(difference, abs=0.005)
        assert [by_name[f"ratio, {e}"].verdict for e in expected] == ["passed", "failed"]
        assert by_name["ratio"].contrast.unit == "ln eval/mean_reward"

    def test_a_check_of_one_environment_is_one(self):
        study = spec(DEPENDENCE | {"primary": True}, CHECK, environments=["CartPole-v1"], scores={})
        *_, result = evaluate_contrasts(study, curves_at(study, level, noise=1.0)).results
        assert result.by_environment == {}

    def test_checks_are_not_in_the_family(self):
        before = results(*PRESENT)
        after = results(*PRESENT, CHECK)
        assert [f.p_max_t for f in before] == [f.p_max_t for f in after[:-1]]

    def test_a_difference_on_each_environment_is_of_such(self):
        with pytest.raises(SpecError, match="'dependence' and 'choice' are not; write each_environment = true in both"):
            results(DEPENDENCE, CHOICE, D | {"each_environment": True})

    def test_a_statement_is_on_the_mean_of_environments(self):
        resolved = resolve_contrasts(spec(DEPENDENCE | {"each_environment": True, "published": STATEMENT}))
        assert [contrast.published is not None for contrast in resolved] == [True, False, False]

    def test_a_check_of_contrasts_on_each_environment_is_one(self):
        check = {"name": "both", "of": ["dependence", "choice"], "check": [-INF, INF], "guards": ["D"]}
        names = [contrast.name for contrast in resolve_contrasts(spec(*PRESENT, check)) if contrast.check is not None]
        assert names == ["both"]

    def test_infinite_bounds_survive_a_record(self):
        study = spec(*PRESENT, CHECK)
        again = Spec.model_validate_json(json.dumps(study.model_dump(mode="json")))
        assert again.contrasts == study.contrasts


MISTAKES = [
    ([D | {"name": "E"}], "must have one `primary` contrast at most, but D, E are"),
    ([CHECK | {"guards": ["d"]}], "`guards` of the contrast 'check: L' must name contrasts that are no checks"),
    ([CHECK | {"guards": ["check: L"]}], "must name contrasts that are no checks"),
    ([CHECK | {"check": [2.0, 1.0]}], "must have a `check` whose first bound is below its second"),
    ([CHECK | {"equivalence": 1.0}], "must not have `check` together with `equivalence`"),
    ([CHECK | {"published": STATEMENT}], "must not have `check` together with `published`"),
    ([CHOICE | {"name": "g", "guards": ["D"]}], "must not have `guards` without `check`"),
    ([{"name": "w", "weights": {"uniform": 1.0, "blocks": -0.5}}], "must have `weights` that add up to 0, but .* 0.5"),
    ([{"name": "w", "weights": {"uniform": 1.0, "block": -1.0}}], "`weights` must name strategies .* `blocks`"),
    (
        [CHOICE | {"name": "w", "weights": {"uniform": 1.0, "blocks": -1.0}}],
        "must hold `more` and `less`, or `weights`",
    ),
    ([CHOICE | {"name": "w", "within": {"beta": 0.0}}], "must not have `within` without `weights`"),
]


@pytest.mark.parametrize(("more", "words"), MISTAKES)
def test_mistakes_are_reported(more, words):
    with pytest.raises(SpecError, match=words):
        spec(*PRESENT, *more)


def test_checks_need_a_primary_contrast():
    with pytest.raises(SpecError, match="must have a `primary` one where 'check: L' is a check"):
        spec(DEPENDENCE, CHECK)
    assert set(SCORES) == {"CartPole-v1", "Acrobot-v1"}
