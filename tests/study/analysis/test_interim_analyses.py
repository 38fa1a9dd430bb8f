"""Interim analyses: the error over all of them, in closed form, simulated, and by the study's own procedure."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm, t

from replaylab import statistics
from replaylab.errors import ConfigError, SpecError
from replaylab.statistics.alpha_spending import interim_levels
from replaylab.statistics.bootstrap import resolves
from replaylab.study import Spec
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.analysis.interim_analyses import interval_at
from tests.study.tiny import table

SEEDS = (10, 20, 30)
SHARES = np.array(SEEDS) / SEEDS[-1]
CHOICE = {"name": "choice", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}, "equivalence": 99.0}


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_levels_are_what_the_spending_function_adds_at_each_analysis(spending, alpha):
    shares = [0.2, 0.3, 0.9, 1.0]
    functions = {
        "obrien_fleming": lambda t: 2 * norm.cdf(norm.ppf(alpha / 2) / math.sqrt(t)),
        "pocock": lambda t: alpha * math.log(1 + (math.e - 1) * t),
    }
    spent = [0.0, *map(functions[spending], shares)]
    found = interim_levels(shares, spending, alpha)
    np.testing.assert_allclose(found, [b - a for a, b in pairwise(spent)], rtol=1e-9, atol=1e-15)
    assert found.sum() == pytest.approx(alpha, rel=1e-12)


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.5, 0.2], [0.0, 1.0], [0.5, 1.1]])
def test_shares_must_increase(shares):
    with pytest.raises(ConfigError, match=r"^`shares` must be"):
        interim_levels(shares)


def p_values(studies, strategies, seed=7):
    """Holm-corrected p-values of strategies that are all alike, against one baseline: (analyses, studies).

    By the t-test, which is exact here.
    """
    runs = np.random.default_rng(seed).normal(size=(studies, SEEDS[-1], strategies + 1))
    found = []
    for count in SEEDS:
        each = runs[:, :count, 1:] - runs[:, :count, :1]
        size = each.mean(1) / (each.std(1, ddof=1) / math.sqrt(count))
        p = 2 * t.sf(np.abs(size), count - 1)
        found.append(np.minimum(1, p.min(-1) * strategies))  # Holm: the smallest decides whether any is called
    return np.array(found)


@pytest.mark.parametrize("strategies", [1, 3])
@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_false_alarms_over_all_analyses_stay_at_five_percent_and_do_not_without_a_plan(strategies, spending):
    """40,000 studies: a share of 5 % has a standard error of .11 %; 5.6 % is 5.5 of them, one in ten million."""
    p = p_values(40_000, strategies)
    levels = interim_levels(SHARES, spending)[:, None]
    planned, unplanned = (p < levels).any(0).mean(), (p < 0.05).any(0).mean()
    assert 0.02 < planned < 0.056
    assert unplanned > 0.08


def study(seeds=20, **changes):
    return Spec.from_table(table(seeds=seeds, interim={"seeds": [10, 20, 40]}, **changes))


def curves(seeds, seed=3, gain=0.0, names=("uniform", "prioritized")):
    """Runs at one evaluation, alike except for what the second strategy gains."""
    runs = np.random.default_rng(seed).normal(size=(len(names), seeds))
    steps = np.array([300])
    return [
        Curve("CartPole-v1", "dqn", name, np.arange(seeds), steps, (own + gain * bool(i))[:, None])
        for i, (name, own) in enumerate(zip(names, runs, strict=True))
    ]


def test_differences_are_judged_at_the_level_of_their_analysis():
    level = interim_levels([0.25, 0.5, 1.0])[1]
    assert study().analysis_level == pytest.approx(level)
    verdicts = set()
    for gain in np.linspace(0.0, 2.0, 7):
        runs = curves(20, gain=gain)
        plain, planned = comparisons.differences(runs, "uniform"), comparisons.differences_of(runs, study())
        for one, interim in zip(plain, planned, strict=True):
            assert interim.shown == (one.p_max_t < level)
            assert interim.p_max_t == pytest.approx(min(1.0, one.p_max_t * 0.05 / level))
            verdicts.add((one.shown, interim.shown))
    assert verdicts == {(False, False), (True, False), (True, True)}, "some are shown only by a single analysis"


def test_contrasts_are_too_and_equivalence_with_a_wider_interval():
    verdicts = set()
    spec = study(contrasts=[CHOICE | {"equivalence": 0.9}])
    unplanned = spec.model_copy(update={"interim": None})
    for gain in np.linspace(0.0, 2.0, 6):
        runs = curves(20, gain=gain)
        (one,), (interim,) = (evaluate_contrasts(each, lambda _, runs=runs: runs).results for each in (unplanned, spec))
        factor = 0.05 / spec.analysis_level
        assert (interim.p, interim.p_max_t) == (min(1, one.p * factor), min(1, one.p_max_t * factor))
        wide = statistics.bootstrap_interval(one.each.values, level=1 - 2 * spec.analysis_level)
        assert interim.inner == wide
        assert wide.low < one.inner.low < one.inner.high < wide.high
        verdicts.add((one.verdict, interim.verdict))
    assert {("equivalent", "inconclusive"), ("higher", "inconclusive"), ("higher", "higher")} <= verdicts


@pytest.mark.parametrize(("seeds", "reported"), [(10, False), (20, True), (40, True)])
def test_levels_that_few_runs_cannot_tell_have_no_ends(seeds, reported):
    """At the first analysis α is 9e-5: the most extreme of all resamples of 10 runs is not as far out."""
    spec = study(seeds, contrasts=[CHOICE])
    (found,) = evaluate_contrasts(spec, lambda _: curves(seeds)).results
    assert np.isfinite([found.inner.low, found.inner.high]).all() == reported
    assert found.verdict == ("equivalent" if reported else "inconclusive")


@pytest.mark.parametrize(("seeds", "enough"), [(6, False), (7, True)])
def test_nothing_is_equivalent_by_so_few_seeds_that_chance_puts_them_on_one_side(seeds, enough):
    """At the first analysis α is .0114 or .0132, between 1/2^6 and 1/2^7; the interval of either level has ends."""
    plan = {"seeds": [seeds, 40], "spending": "pocock"}
    spec = Spec.from_table(table(seeds=seeds, interim=plan, contrasts=[CHOICE]))
    assert (0.5**seeds <= spec.analysis_level) == enough
    (found,) = evaluate_contrasts(spec, lambda _: curves(seeds)).results
    assert np.isfinite(
        interval_at(1 - 2 * spec.analysis_level, [found.each.values], statistics.bootstrap_interval)
    ).all()
    assert np.isfinite([found.inner.low, found.inner.high]).all() == enough
    assert found.verdict == ("equivalent" if enough else "inconclusive")


@pytest.mark.parametrize("runs", [2, 5, 8])
def test_an_interval_that_is_resolved_ends_within_its_resamples(runs):
    """It widens with its level as long as it is."""
    values = np.random.default_rng(runs).normal(size=runs)
    levels = [level for level in (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999) if resolves(level, runs)]
    assert (0.95 in levels) == (runs >= 5)
    ends = [statistics.paired_difference(values, np.zeros(runs), level=level) for level in levels]
    for inner, outer in pairwise(ends):
        assert values.min() <= outer.low < inner.low < inner.high < outer.high <= values.max()


def test_without_interim_analyses_nothing_changes():
    spec = Spec.from_table(table(seeds=20))
    runs = curves(20, gain=1.0)
    assert spec.analysis_level == 0.05
    assert comparisons.differences_of(runs, spec) == comparisons.differences(runs, "uniform")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"seeds": [10, 30]}, r"`seeds` must be as many as in one of the `interim` analyses, 10, 30 seeds, but are 20"),
        ({"seeds": [20, 10]}, r"interim.seeds.*must be increasing numbers of seeds"),
        ({"seeds": []}, r"interim.seeds"),
        ({"seeds": [20], "spending": "all"}, r"interim.spending"),
        ({"seeds": [20], "spend": "all"}, r"interim.spend"),
        (
            {"seeds": [20, 400]},
            r"interim.*must have analyses of a level above 5e-05.* with 20 seeds has 2e-18; leave it out.* \"pocock\"",
        ),
        ({"seeds": [20, 10_000]}, r"interim.*with 20 seeds has 0; leave it out"),
        ({"seeds": [20, 240]}, r"interim.*with 20 seeds has 1e-11; leave it out"),
        ({"seeds": [20, 200_000], "spending": "pocock"}, r"interim.*with 20 seeds has 9e-06; leave .* more seeds"),
    ],
)
def test_what_no_plan_can_be(plan, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_table(table(seeds=20, interim=plan))


@pytest.mark.slow
@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_the_studys_own_procedure_keeps_to_five_percent(spending):
    """200 studies of three strategies alike, analysed three times: .05 + 5.2 standard errors is .13."""
    names = ("uniform", "a", "b", "c")
    strategies = {name: {"type": "uniform"} for name in names}
    plan = {"seeds": list(SEEDS), "spending": spending}
    specs = [Spec.from_table(table(seeds=n, interim=plan, strategies=strategies)) for n in SEEDS]
    alarms = {"planned": 0, "unplanned": 0}
    for number in range(200):
        whole = curves(SEEDS[-1], seed=number, names=names)
        called = {"planned": False, "unplanned": False}
        for spec in specs:
            n = len(spec.seeds)
            there = [replace(c, seeds=c.seeds[:n], values=c.values[:n]) for c in whole]
            plain = [d for d in comparisons.differences(there, "uniform") if d.measure == "final"]
            called["unplanned"] |= any(d.shown for d in plain)
            called["planned"] |= any(d.shown and d.measure == "final" for d in comparisons.differences_of(there, spec))
        for kind, was in called.items():
            alarms[kind] += was
    print({kind: count / 200 for kind, count in alarms.items()})
    assert alarms["planned"] / 200 < 0.13
    assert alarms["unplanned"] > alarms["planned"]


def test_a_primary_contrast_is_analysed_once():
    asked = {"name": "D", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}, "primary": True}
    with pytest.raises(SpecError, match="`interim` must not stand beside a contrast that is `primary`"):
        study(contrasts=[asked])
