"""Contrasts of a study: the cells they match, what they find where the truth is known, and what they say of gaps."""

import zlib

import numpy as np
import pytest

from replaylab import statistics
from replaylab.errors import SpecError
from replaylab.study import Spec
from replaylab.study.analysis import contrast_results
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.analysis.contrast_results import SeedValues, evaluate_contrasts
from replaylab.study.report.headline import contrast_lines, sentence
from replaylab.study.report.sections.contrasts import matrix
from replaylab.study.spec.contrasts import resolve_contrasts
from replaylab.study.spec.declared_contrasts import PublishedStatement
from tests.study.tiny import table

PRIORITIZED = {"type": "prioritized", "vary": {"block_length": [1, 4], "beta": [0.0, 1.0]}, "factors": {"choice": "td"}}
UNIFORM = {"type": "uniform", "factors": {"choice": "uniform", "block_length": 1}}
BLOCKS = {"type": "blocks", "length": 4, "factors": {"choice": "uniform", "block_length": 4}}
STRATEGIES = {"uniform": UNIFORM, "blocks": BLOCKS, "prioritized": PRIORITIZED}
SCORES = {"CartPole-v1": {"low": 0.0, "high": 100.0}, "Acrobot-v1": {"low": -500.0, "high": 0.0}}
DEPENDENCE = {"name": "dependence", "more": {"block_length": 1}, "less": {"block_length": 4}}
CHOICE = {"name": "choice", "more": {"choice": "td", "beta": 0.0}, "less": {"choice": "uniform"}}
BOTH = {"name": "both", "of": ["dependence", "choice"]}
STATEMENT = {"says": "Single draws help", "verdict": ["higher"], "source": "Doe 2016"}


def spec(*contrasts, **changes):
    standard = {"strategies": STRATEGIES, "environments": ["CartPole-v1", "Acrobot-v1"], "scores": SCORES, "seeds": 10}
    return Spec.from_table(table(**standard | {"contrasts": list(contrasts)} | changes), source="my.toml")


def curves_at(study, level, metric="eval/mean_reward", seeds=range(10), noise=0.0):
    """Return a way to get curves: flat ones at ``level(cell's factors)``, plus what a seed does to all cells."""
    curves = []
    for s in study.strategies:
        factors = study.origins.strategies[s].factors
        for e in study.environments_of(s):
            for learner in study.learners_of(s):
                rng = np.random.default_rng(zlib.crc32(f"{s} {e} {learner}".encode())) if noise else None
                y = np.array([7.0 * seed + level({"environment": e, "learner": learner, **factors}) for seed in seeds])
                y += rng.normal(0, noise, len(y)) if rng is not None else 0.0
                curves.append(Curve(e, learner, s, np.array(seeds), np.array([100, 300]), np.stack([y, y], axis=1)))
    return lambda wanted: curves if wanted == metric else []


def test_cells_are_matched_in_all_that_is_not_named():
    (dependence, choice, both) = resolve_contrasts(spec(DEPENDENCE, CHOICE, BOTH))
    pairs = {(g.more[0].environment, g.more[0].strategy, g.less[0].strategy) for g in dependence.groups}
    name = "prioritized.block_length-{}.beta-{}"
    assert pairs == {(e, name.format(1, b), name.format(4, b)) for e in SCORES for b in (0, 1)} | {
        (e, "uniform", "blocks") for e in SCORES
    }
    assert {(g.more[0].strategy, g.less[0].strategy) for g in choice.groups} == {
        (name.format(1, 0), "uniform"),
        (name.format(4, 0), "blocks"),
    }
    assert all(len(side) == 1 for contrast in (dependence, choice) for g in contrast.groups for side in g)
    assert both.unit == "score"
    assert both.groups == ()


def test_a_list_of_values_is_averaged_within_its_group():
    contrast = {"name": "any", "more": {"choice": "td", "beta": [0.0, 1.0]}, "less": {"choice": "uniform"}}
    (contrast_cells,) = resolve_contrasts(spec(contrast))
    assert [(len(g.more), len(g.less)) for g in contrast_cells.groups] == [(2, 1)] * 4


def test_names_of_tables_and_of_strategies_select_too():
    plain = {"uniform": {"type": "uniform"}, "prioritized": {"type": "prioritized", "vary": {"beta": [0.0, 1.0]}}}
    by_table = {"name": "t", "more": {"strategy": "prioritized", "beta": 0.0}, "less": {"strategy": "uniform"}}
    by_name = {"name": "n", "more": {"strategy": "prioritized.beta-0", "beta": 0}, "less": {"strategy": "uniform"}}
    resolved = resolve_contrasts(spec(by_table, by_name, strategies=plain))
    assert resolved[0].groups == resolved[1].groups
    assert len(resolved[0].groups) == 2


def test_learners_that_vary_are_matched_with_themselves():
    learners = {"dqn": {"type": "dqn", "vary": {"capacity": [500, 900]}}}
    study = spec(
        DEPENDENCE, {"name": "capacity", "more": {"capacity": 900}, "less": {"capacity": 500}}, learners=learners
    )
    dependence, capacity = resolve_contrasts(study)
    assert len(dependence.groups) == 12
    assert all(g.more[0].learner == g.less[0].learner for g in dependence.groups)
    assert len(capacity.groups) == 12
    assert all(g.more[0].strategy == g.less[0].strategy for g in capacity.groups)


def truth(factors):
    """In score: independence gains 0.2, choosing 0.1 with L = 1 and 0.3 with L = 4."""
    width = 500.0 if factors["environment"] == "Acrobot-v1" else 100.0
    td, alone = factors["choice"] == "td", factors["block_length"] == 1
    return width * (0.2 * alone + td * (0.1 if alone else 0.3))


def test_a_known_effect_is_found_exactly():
    study = spec(DEPENDENCE, CHOICE, BOTH)
    results = {f.contrast.name: f for f in evaluate_contrasts(study, curves_at(study, truth)).results}
    # four prioritized pairs at 0.2 - 0.2, two uniform ones at 0.2; choice: mean of 0.1 and 0.3
    np.testing.assert_allclose(results["dependence"].each.values, 0.2 / 3)
    np.testing.assert_allclose(results["choice"].each.values, 0.2)
    np.testing.assert_allclose(results["both"].each.values, 0.2 / 3 - 0.2)
    assert (results["dependence"].groups, results["dependence"].cells) == (6, 12)
    assert results["dependence"].p == results["dependence"].p_max_t == 2 / 2**10
    assert [results[k].verdict for k in ("dependence", "choice", "both")] == ["higher", "higher", "lower"]
    assert sentence(results["dependence"]).startswith(
        "The average score was higher with block_length 1 than with block_length 4. Block_length 1 vs block_length 4: "
        "higher, +0.067 in average score, mean of 2 environments (uncorrected 95 % interval +0.067 to +0.067; "
    )
    assert sentence(results["both"]).startswith(
        "The difference in average score was lower in “dependence” than in “choice”. "
    )
    assert results["both"].each.seeds.tolist() == list(range(10))


def test_returns_of_one_environment_need_no_score():
    contrast = CHOICE | {
        "more": {"choice": "td", "beta": 0.0, "environment": "Acrobot-v1"},
        "less": {"choice": "uniform", "environment": "Acrobot-v1"},
    }
    study = spec(contrast, scores={})
    (result,) = evaluate_contrasts(study, curves_at(study, truth)).results
    assert result.contrast.unit == "return"
    np.testing.assert_allclose(result.each.values, 100.0)


def test_other_metrics_keep_their_unit_and_are_not_judged():
    contrast = DEPENDENCE | {"metric": "replay/same_episode_share", "measure": "final"}
    study = spec(contrast)
    share = curves_at(study, lambda f: -0.5 * (f["block_length"] == 1), metric="replay/same_episode_share")
    (result,) = evaluate_contrasts(study, share).results
    assert (result.contrast.unit, result.verdict) == ("replay/same_episode_share", "lower")
    np.testing.assert_allclose(result.each.values, -0.5)
    assert (
        ": lower, −0.50 in final pairs from one episode, mean of 2 environments (uncorrected 95 % interval"
        in sentence(result)
    )


@pytest.mark.parametrize(("better", "word"), [("lower", "worse"), ("higher", "better")])
def test_an_error_is_better_lower(better, word):
    study = spec(DEPENDENCE | {"better": better})
    shown = matrix(evaluate_contrasts(study, curves_at(study, truth)).results)
    ((_, (cell,)),) = shown.rows
    assert (cell.kind, cell.word, cell.sign, cell.effect) == (word, "higher", "▲", "+0.067")


def test_sizes_are_those_of_the_statistics_module():
    study = spec(DEPENDENCE | {"equivalence": 0.05})
    (result,) = evaluate_contrasts(study, curves_at(study, lambda f: 0.0, noise=3.0)).results
    c = result.each.values
    assert c.std() > 0
    assert result.size == statistics.bootstrap_interval(c)
    assert result.inner == statistics.bootstrap_interval(c, level=0.9)
    limit = statistics.interval_t(result.size, len(c))
    assert result.p == statistics.sign_flip_test(c).p >= statistics.interval_p(result.size, len(c))
    assert result.p_max_t == max(result.p, float(statistics.max_t(c[:, None], limits=[limit])[0]))


@pytest.mark.parametrize(
    ("effect", "noise", "bound", "verdict"),
    [
        (0.0, 1.0, 0.05, "equivalent"),
        (1.0, 1.0, 0.05, "equivalent"),
        (0.0, 40.0, 0.01, "inconclusive"),
        (20.0, 1.0, 0.05, "higher"),
        (-20.0, 1.0, 0.05, "lower"),
        (0.0, 1.0, None, "inconclusive"),
    ],
)
def test_verdicts(effect, noise, bound, verdict):
    rng = np.random.default_rng(3)
    choice = {
        "more": {"choice": "td", "beta": 0, "environment": "CartPole-v1"},
        "less": {"choice": "uniform", "environment": "CartPole-v1"},
    }
    study = spec({"name": "choice", **choice} | ({"equivalence": bound} if bound else {}))
    curves = curves_at(study, lambda f: effect * (f["choice"] == "td") + rng.normal(0, noise))
    (result,) = evaluate_contrasts(study, curves).results
    each = result.each.values
    assert result.verdict == verdict, each
    if bound:
        assert f"±{bound}" in sentence(result)


@pytest.mark.parametrize(
    ("verdict", "agreeing", "outcome"),
    [
        ("lower", ("lower",), "reproduced"),
        ("equivalent", ("lower",), "not reproduced"),
        ("higher", ("lower",), "not reproduced"),
        ("inconclusive", ("lower",), "contested"),
        ("not interpretable", ("lower",), "contested"),
        ("equivalent", ("higher", "equivalent"), "reproduced"),
        ("lower", ("higher", "equivalent"), "not reproduced"),
    ],
)
def test_a_published_statement_is_reproduced_by_its_verdicts(verdict, agreeing, outcome):
    assert PublishedStatement(says="x", verdict=agreeing, source="y").outcome(verdict) == outcome


def test_nothing_is_equivalent_with_fewer_than_five_seeds():
    study = spec(DEPENDENCE | {"equivalence": 0.05})
    for few, verdict in ((4, "inconclusive"), (5, "equivalent")):
        (result,) = evaluate_contrasts(study, curves_at(study, lambda f: 0.0, seeds=range(few), noise=0.1)).results
        assert result.equivalence.equivalent
        assert result.verdict == verdict


def corrected(each, resamples=1_000):
    """The corrected p-values of contrasts with the intervals that belong to them."""
    return contrast_results.corrected(
        each, [statistics.bootstrap_interval(values.values, resamples=resamples) for values in each]
    )


def test_no_more_than_one_study_in_twenty_raises_a_false_alarm():
    rng = np.random.default_rng(0)
    seeds, studies, alarms = np.arange(9), 600, 0
    for _ in range(studies):
        shared = rng.standard_t(3, size=9)
        each = [SeedValues(seeds, shared + rng.standard_t(3, size=9)) for _ in range(6)]
        alarms += corrected(each, resamples=300).min() < 0.05
    assert 2 <= alarms <= 59  # binomial(600, 0.05): outside with probability < 1e-6


def test_a_contrast_lacking_seeds_uses_those_it_has():
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 1, size=12), rng.normal(0, 1, size=12)
    seeds = np.arange(12)
    complete = corrected([SeedValues(seeds, a), SeedValues(seeds, b)])
    part = corrected([SeedValues(seeds, a), SeedValues(seeds[4:], b[4:])])
    assert complete[0] <= 0.05
    assert part[0] == pytest.approx(complete[0], abs=0.02)
    alone = corrected([SeedValues(seeds[4:], b[4:])])
    assert part[1] >= statistics.max_t(b[4:, None])[0]
    assert part[1] == pytest.approx(alone[0], abs=1e-12)


def test_missing_cells_are_named_and_their_groups_left_out():
    study = spec(DEPENDENCE, CHOICE)
    curves = [
        c
        for c in curves_at(study, truth)("eval/mean_reward")
        if (c.environment, c.strategy) != ("Acrobot-v1", "blocks")
    ]
    reported = evaluate_contrasts(study, lambda _: curves)
    assert reported.warnings == (
        "dependence: eval/mean_reward is missing for Acrobot-v1 · dqn · blocks. 1 of 6 matched groups are left out.",
        "choice: eval/mean_reward is missing for Acrobot-v1 · dqn · blocks. 1 of 4 matched groups are left out.",
    )
    assert reported.results[0].groups == 5
    np.testing.assert_allclose(reported.results[0].each.values, 0.2 / 5)
    assert contrast_lines(reported)[2].startswith("warning: dependence: ")


def test_missing_seeds_are_named():
    study = spec(DEPENDENCE)
    curves = list(curves_at(study, truth)("eval/mean_reward"))
    short = curves[0]
    curves[0] = Curve(short.environment, short.learner, short.strategy, short.seeds[3:], short.steps, short.values[3:])
    reported = evaluate_contrasts(study, lambda _: curves)
    assert reported.results[0].each.seeds.tolist() == list(range(3, 10))
    assert reported.warnings == (
        "dependence: 3 of 10 seeds are left out because they are missing for CartPole-v1 · dqn · uniform.",
    )


def test_a_contrast_without_results_is_not_answered():
    reported = evaluate_contrasts(study := spec(DEPENDENCE, BOTH | {"of": ["dependence", "dependence"]}), lambda _: [])
    assert reported.results == ()
    assert len(reported.warnings) == 3
    assert reported.warnings[1] == "dependence: not answered: it needs results of all its cells for 2 seeds, but has 0."
    assert len(resolve_contrasts(study)[0].cells) == 12


def test_study_json_round_trips():
    study = spec(DEPENDENCE | {"equivalence": 0.05, "question": "?"}, CHOICE, BOTH)
    assert Spec.model_validate_json(study.model_dump_json()) == study
    assert Spec.model_validate(study.model_dump(mode="json")) == study


MESSAGES = [
    ([{"name": "x"}], "`contrasts.0` must hold `more` and `less`, or `weights`, or `of`, but got {'name': 'x'}."),
    (
        [DEPENDENCE, BOTH | {"of": ["dependence", "dependense"]}],
        "`contrasts.1` (both): `of` must name two contrasts above it (dependence), but got 'dependense'; did you mean "
        "`dependence`?",
    ),
    (
        [DEPENDENCE, CHOICE, BOTH | {"metric": "train/loss"}],
        "`contrasts.2` must not have `metric` together with `of`, which takes it from the contrasts it names, but got",
    ),
    (
        [DEPENDENCE, CHOICE | {"metric": "train/loss"}, BOTH],
        "`contrasts.2` (both): `of` must name contrasts of one metric, but 'dependence' has eval/mean_reward and "
        "'choice' train/loss.",
    ),
    (
        [DEPENDENCE, DEPENDENCE],
        "`contrasts.1` (dependence) must have a unique name, but an earlier contrast has the same one; rename it.",
    ),
    (
        [DEPENDENCE | {"more": {"block_lenth": 1}}],
        "`contrasts.0` (dependence): `more.block_lenth` must be a factor (environment, learner, strategy, choice, "
        "block_length, beta); did you mean `block_length`?",
    ),
    (
        [DEPENDENCE | {"more": {"block_length": 2}}],
        "`contrasts.0` (dependence): `more.block_length` must be among 1, 4, but got 2.",
    ),
    (
        [DEPENDENCE | {"more": {"block_length": 1, "strategy": "blocks"}}],
        "`contrasts.0` (dependence): `more` must choose at least one cell, but none has "
        "block_length 1, strategy blocks.",
    ),
    (
        [DEPENDENCE | {"more": {"block_length": [1, 4]}}],
        "`contrasts.0` (dependence): `more` and `less` must choose different cells, but both choose "
        "Acrobot-v1 · dqn · blocks.",
    ),
    (
        [CHOICE | {"more": {"choice": "td"}}],
        "`contrasts.0` (choice): a cell of `more` must agree with one of `less` in all that they do not name, but none "
        "does: CartPole-v1 · dqn · prioritized.block_length-1.beta-0 has environment CartPole-v1, learner dqn, "
        "block_length 1, beta 0.0, CartPole-v1 · dqn · uniform has environment CartPole-v1, learner dqn, "
        "block_length 1; add what may differ to `more` and `less`.",
    ),
    ([DEPENDENCE | {"equivalence": 0}], "`contrasts.0.equivalence` must be above 0, but got 0."),
    ([DEPENDENCE | {"measure": "max"}], "`contrasts.0.measure` must be 'area' or 'final', but got 'max'."),
    (
        [DEPENDENCE | {"mor": {}}],
        "unknown key `contrasts.0.mor`; did you mean `more`? Allowed here: name, question, sides, answers, "
        "more, less, weights, within, of, metric, measure, log, better, equivalence, primary, each_environment, check, "
        "guards, published.",
    ),
    (
        [DEPENDENCE | {"published": STATEMENT | {"verdict": []}}],
        "`contrasts.0.published.verdict` must have at least one entry, but got [].",
    ),
    (
        [DEPENDENCE | {"published": STATEMENT | {"verdict": ["best"]}}],
        "`contrasts.0.published.verdict.0` must be 'higher', 'lower' or 'equivalent', but got 'best'.",
    ),
]


@pytest.mark.parametrize(("contrasts", "message"), MESSAGES, ids=[m[:50] for _, m in MESSAGES])
def test_a_mistake_is_reported_with_its_contrast_and_its_fix(contrasts, message):
    with pytest.raises(SpecError) as caught:
        spec(*contrasts)
    assert str(caught.value).startswith(f"my.toml: {message}")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (
            {},
            "`contrasts.0` (dependence) must have [scores] of eval/mean_reward for all its environments, to average "
            'them, but Acrobot-v1 has none; write [scores."Acrobot-v1"], or choose by `environment`.',
        ),
        ({"CartPole-v1": {"low": 1, "high": 1}}, "`scores.CartPole-v1` must have `low` below `high`, but got"),
        (
            {"Taxi-v4": {"low": 0, "high": 1}},
            "`environments` must list every environment referenced elsewhere in the file, but lacks",
        ),
    ],
)
def test_scores_are_checked(scores, message):
    with pytest.raises(SpecError) as caught:
        spec(DEPENDENCE, scores=scores)
    assert str(caught.value).startswith(f"my.toml: {message}")
