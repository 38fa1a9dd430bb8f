"""From rows to levels, differences and words, on made-up results whose truth is known."""

import re
from dataclasses import replace
from functools import partial
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from replaylab import statistics
from replaylab.number_format import decimals, p_value
from replaylab.plotting import palette
from replaylab.statistics import Band, Interval
from replaylab.study import Spec
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import BudgetSpent, Curve, Difference
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.report import figures, headline, sentences
from replaylab.study.report.page import cells_of
from replaylab.study.report.what_ran import what_ran
from tests.study.tiny import page_of, pretended, run_here, study, table


def answered(curves, reported):
    """Return the answer, and the line about the other measure, the final return."""
    results = comparisons.ComparisonResults(
        comparisons.levels(curves), comparisons.differences_of(curves, reported.spec), []
    )
    return headline.difference_lines(results, reported.spec)


def with_curves(tmp_path, gain, **changes):
    reported = pretended(tmp_path, gain, seeds=10, chunk_size=10, **changes)
    return reported, comparisons.curves_of(reported.results(), reported.spec, comparisons.RETURN)


def test_curves_come_in_the_order_of_the_file(tmp_path):
    _, curves = with_curves(tmp_path, 0.0)
    assert [c.strategy for c in curves] == ["uniform", "prioritized"]
    assert curves[0].seeds.tolist() == list(range(10))
    assert curves[0].steps.tolist() == [100, 200, 300]
    assert curves[0].values.shape == (10, 3)


def test_final_and_area_of_a_straight_line():
    curve = Curve("e", "l", "s", np.array([0]), np.arange(10, 101, 10), np.arange(10.0, 101.0, 10.0)[None])
    assert curve.of_runs("final").tolist() == [100.0]
    assert curve.of_runs("area").tolist() == [55.0]


def test_a_gain_is_found_and_said(tmp_path):
    reported, curves = with_curves(tmp_path, 30.0)
    final, area = comparisons.differences(curves, "uniform")
    assert (final.measure, area.measure) == ("final", "area")
    assert final.iqm.low < 30 < final.iqm.high + 1
    assert final.iqm.high - final.iqm.low < 4  # seeds vary by 5, but pairs by 1
    assert final.p == final.p_max_t == 2 / 2**10
    assert sentences.verdict(final) == "higher"
    answer, line = answered(curves, reported)
    assert answer.startswith("The average return was higher with prioritized than with uniform. Prioritized vs uniform")
    assert line == headline.row(final, reported.spec)
    assert "inconclusive" not in answer


def test_no_gain_is_inconclusive(tmp_path):
    reported, curves = with_curves(tmp_path, 0.0)
    differences = comparisons.differences(curves, "uniform")
    assert not any(d.shown for d in differences)
    answer, line = answered(curves, reported)
    assert answer.startswith(
        "Inconclusive: the data do not show whether the average return is higher with prioritized or uniform. "
    )
    assert line.startswith("Prioritized vs uniform, final return: inconclusive, ")
    assert "excludes 0" not in line


@pytest.mark.parametrize(
    ("interval", "p", "word", "ending"),
    [
        ((5, 1, 9), 0.01, "higher, +5.0", ""),
        ((-5, -9, -1), 0.01, "lower, −5.0", ""),
        ((5, -1, 9), 0.20, "inconclusive, +5.0", ""),
        ((5, 1, 9), 0.06, "inconclusive, +5.0", "; the interval excludes 0, but p is above 0.05"),
    ],
)
def test_a_comparison_in_words(tmp_path, interval, p, word, ending):
    difference = Difference("e", "l", "per", "final", "uniform", 10, Interval(*interval), p / 3, p)
    sentence = headline.row(difference, study(tmp_path).spec)
    assert sentence.startswith(f"Per vs uniform, final return: {word} (uncorrected 95 % interval ")
    assert sentence.endswith(f"; 10 pairs; p = {p:.2g}, corrected{ending}).")


def test_the_correction_is_over_all_comparisons_of_a_measure(tmp_path):
    """Of three copies of one strategy each is as sure as it alone; with others beside it none is surer."""
    _, curves = with_curves(tmp_path, 30.0, strategies__none={"type": "online"})
    finals = [d for d in comparisons.differences(curves, "uniform") if d.measure == "final"]
    base, other, none = (curves[k] for k in (0, 1, 2))
    table = np.stack([np.subtract(*comparisons.paired_values(curve, base, "final")) for curve in (other, none)], axis=1)
    limits = [statistics.interval_t(d.iqm, d.pairs) for d in finals]
    assert [d.p_max_t for d in finals] == np.maximum(
        [d.p for d in finals], statistics.max_t(table, limits=limits)
    ).tolist()
    copies = [base, *(replace(other, environment=where, strategy="per") for where in "abc")]
    copies += [replace(base, environment=where) for where in "abc"]
    many = [d for d in comparisons.differences(copies, "uniform") if d.measure == "final"]
    assert [d.p_max_t for d in many] == [finals[0].p] * 3
    assert all(d.p_max_t >= d.p for d in finals)


def test_a_comparison_of_one_seed_takes_no_part(tmp_path):
    _, curves = with_curves(tmp_path, 30.0, strategies__none={"type": "online"})
    base, other, none = curves
    of_one_seed = replace(none, seeds=none.seeds[:1], values=none.values[:1])
    alone, both = (comparisons.differences([base, other, *more], "uniform") for more in ([], [of_one_seed]))
    assert [d for d in both if d.strategy != "none"] == alone
    assert {d.p_max_t for d in both if d.strategy == "none"} == {1.0}


@pytest.mark.parametrize(("gain", "bound", "word"), [(0.5, 10.0, "equivalent"), (8.0, 10.0, "equivalent")])
def test_what_cannot_matter_is_equivalent_even_if_it_is_there(tmp_path, gain, bound, word):
    reported, curves = with_curves(tmp_path, gain, equivalence={"CartPole-v1": bound})
    final, area = comparisons.differences_of(curves, reported.spec)
    assert final.equivalence.inner == statistics.paired_difference(
        *comparisons.paired_values(curves[1], curves[0], "final"), level=0.9
    )
    assert -bound < final.equivalence.inner.low < final.iqm.estimate < final.equivalence.inner.high < bound
    assert sentences.verdict(final) == sentences.verdict(area) == word
    assert final.shown == (gain > 1.0)
    answer, line = answered(curves, reported)
    assert f": equivalent within ±{bound:g}, " in line
    assert f" (90 % interval {sentences.effect_interval(final.equivalence.inner, 10)}; " in line
    assert answer.startswith(
        f"The average return was equivalent with prioritized and with uniform, within ±{bound:g}. "
    )
    assert "higher" not in answer


def test_an_interval_that_reaches_a_bound_is_not_equivalent(tmp_path):
    reported, curves = with_curves(tmp_path, 8.0, equivalence={"CartPole-v1": 8.0})
    final, _ = comparisons.differences_of(curves, reported.spec)
    assert final.equivalence.inner.low < 8.0 < final.equivalence.inner.high
    assert sentences.verdict(final) == "higher"
    assert all(d.equivalence is None for d in comparisons.differences_of(curves, reported.spec, "train/q_mean"))


def test_equivalence_is_corrected_over_comparisons_with_bounds(tmp_path):
    """Three of six comparisons of a measure have bounds: each is tested at a third of the error."""
    _, curves = with_curves(tmp_path, 0.0, strategies__none={"type": "online"}, strategies__recency={"type": "recency"})
    treated, baseline = curves[1].of_runs("final"), curves[0].of_runs("final")
    everywhere = [replace(c, environment=e) for e in ("a", "b") for c in curves]
    differences = [d for d in comparisons.differences(everywhere, "uniform", {"b": 9.0}) if d.measure == "final"]
    assert [d.equivalence and d.equivalence.bounds.high for d in differences] == [None] * 3 + [9.0] * 3
    assert [d.equivalence and d.equivalence.inner for d in differences[:4]] == [None] * 3 + [
        statistics.paired_difference(treated, baseline, level=1 - 0.1 / 3)
    ]


@pytest.mark.parametrize(("seeds", "compared", "reported"), [(4, 1, False), (5, 1, True), (5, 2, False), (6, 2, True)])
def test_few_seeds_are_never_called_equivalent(seeds, compared, reported):
    """However close all of them are: N on one side of a bound are chance in 1 of 2^N, which must be below the error."""
    values = np.arange(float(seeds))[:, None]
    base = Curve("e", "l", "uniform", np.arange(seeds), np.array([1]), values)
    others = [replace(base, strategy=f"s{k}", values=values + 1e-6) for k in range(compared)]
    differences = comparisons.differences([base, *others], "uniform", {"e": 1e3})
    assert {d.equivalent for d in differences} == {reported}
    assert {bool(np.isfinite(d.equivalence.inner[1:]).all()) for d in differences} == {reported}


def test_the_chance_of_any_false_equivalence_is_kept():
    """Eight strategies are exactly at the bound: one is called equivalent in 5 % of studies or less, not in 34 %.

    Their differences are all but independent, as the baseline's runs are all but alike.
    """
    rng = np.random.default_rng(5)
    grid, seeds, called = np.array([1]), np.arange(20), 0
    interval = partial(statistics.paired_difference, resamples=1_000)
    for _ in range(150):
        base = Curve("e", "l", "uniform", seeds, grid, rng.normal(scale=0.1, size=(20, 1)))
        others = [
            Curve("e", "l", f"s{k}", seeds, grid, base.values + 1.0 + rng.normal(scale=0.3, size=(20, 1)))
            for k in range(8)
        ]
        pairs = [comparisons._paired(curve, base, "final") for curve in others]
        inner = [comparisons.inner_interval(0.05 / 8, [treated, baseline], interval) for _, treated, baseline in pairs]
        called += any(interval.low > -1.0 and interval.high < 1.0 for interval in inner)
    assert called <= 23  # with chance .05 more than that in 1 of a million; without a correction 38


def test_only_seeds_both_have_are_paired():
    grid = np.array([1, 2])
    base = Curve("e", "l", "u", np.array([1, 2, 3]), grid, np.array([[0, 10.0], [0, 20], [0, 30]]))
    other = Curve("e", "l", "p", np.array([3, 4, 2]), grid, np.array([[0, 31.0], [0, 99], [0, 22]]))
    treated, baseline = comparisons.paired_values(other, base, "final")
    assert (treated - baseline).tolist() == [2.0, 1.0]


def test_runs_without_common_steps_are_brought_onto_one_grid(tmp_path):
    reported, _ = with_curves(tmp_path, 0.0)
    curve = comparisons.curve_of_runs(
        reported.chunks[0],
        np.array([0, 0, 1]),
        np.array([10, 200, 100]),
        np.array([1.0, 2.0, 3.0]),
    )
    assert curve.values.shape == (2, 200)
    assert curve.values[0, [0, 8, 198, 199]].tolist() == [1, 1, 1, 2]
    assert set(curve.values[1]) == {3.0}


def test_budgets_say_what_is_not_matched(tmp_path):
    reported, _ = with_curves(tmp_path, 0.0, strategies__none={"type": "online"})
    spent = comparisons.budgets_spent(reported.results(), reported.spec, reported.curves())
    assert [(s.strategy, s.updates, s.transitions_replayed) for s in spent] == [
        ("uniform", 280, 2240),
        ("prioritized", 280, 2240),
        ("none", 280, 280),
    ]
    assert sentences.budgets(spent, reported.spec) == (
        "Matched between strategies: environment steps and updates. Not matched: transitions replayed. "
        "Transitions replayed in one update: uniform 8, prioritized 8 and none 1. "
        "What that alone does is part of each difference."
    )
    assert sentences.budgets(spent[:2], reported.spec) == (
        "Matched between strategies: environment steps, updates and transitions replayed."
    )


def test_budgets_are_matched_within_each_environment_and_learner(tmp_path):
    """Learners may differ: what is compared is strategies of one of them."""
    spec = study(tmp_path).spec
    spent = [
        BudgetSpent("e", learner, strategy, 300, updates, 8 * updates)
        for learner, updates in (("every", 280), ("each fourth", 70))
        for strategy in ("uniform", "prioritized")
    ]
    matched = "Matched between strategies: environment steps, updates and transitions replayed."
    assert sentences.budgets(spent, spec) == matched
    assert sentences.budgets([replace(s, transitions_replayed=np.nan) for s in spent], spec) == (
        "Matched between strategies: environment steps and updates. Not recorded of all: transitions replayed."
    )
    spent[3] = replace(spent[3], transitions_replayed=140)
    assert sentences.budgets(spent, spec) == (
        "Matched between strategies: environment steps and updates. Not matched: transitions replayed. Transitions "
        "replayed in one update: uniform 8 and prioritized 8 or 2. What that alone does is part of each difference."
    )


def test_budgets_of_strategies_own_are_not_matched(tmp_path):
    reported = pretended(tmp_path, 0.0, strategies__prioritized={"type": "prioritized", "budget": {"steps": 600}})
    spec = reported.spec
    spent = [BudgetSpent("CartPole-v1", "dqn", s, spec.budget_of(s).total, 280, 2240) for s in spec.strategies]
    assert sentences.budgets(spent, spec) == (
        "Matched between strategies: updates and transitions replayed. Not matched: environment steps. Average "
        "returns are over the first 300 environment steps; each final return is at the run's own end."
    )
    assert "4 seeds each and 300 to 600 environment steps a run (8 runs)" in sentences.compared(what_ran(reported))
    assert sentences.budgets([], spec).startswith("A run takes 300 to 600 environment steps; ")


def test_averages_are_over_what_unequal_budgets_share(tmp_path):
    """Prioritized replay's curve continues to twice the level, which its average must not count."""
    reported, curves = with_curves(
        tmp_path, 0.0, strategies__prioritized={"type": "prioritized", "budget": {"steps": 600}}
    )
    uniform, prioritized = curves
    assert prioritized.steps[-1] == 600
    assert uniform.of_runs("area") == pytest.approx(uniform.values.mean(axis=1)), "three points of a straight line"
    assert prioritized.of_runs("area") == pytest.approx(prioritized.values[:, :3].mean(axis=1))
    assert prioritized.of_runs("final") == pytest.approx(prioritized.values[:, -1])
    (area,) = (d for d in comparisons.differences_of(curves, reported.spec) if d.measure == "area")
    assert area.iqm.estimate == pytest.approx(-100 / 3, abs=5), "200 / 3 against 100 / 3, at half the pace"
    between = replace(prioritized, shared=350)
    assert between.of_runs("area") == pytest.approx(prioritized.values[:, [0, 2]].mean(axis=1) * 2.25 / 2), "a line"
    short = replace(prioritized, shared=50)
    assert np.isnan(short.of_runs("area")).all(), "nothing is within it"
    assert not [d for d in comparisons.differences([uniform, short], "uniform") if d.measure == "area"]


def test_of_other_metrics_only_strategies_that_have_them_share(tmp_path):
    """One strategy ends before its first evaluation; the others' averages are of all of theirs."""
    short = {"type": "uniform", "budget": {"steps": 250}}
    reported, _ = with_curves(tmp_path, 0.0, strategies__short=short, measures__every=300)
    assert [c.shared for c in comparisons.curves_of(reported.results(), reported.spec, comparisons.RETURN)] == [250] * 3
    (tmp_path / "runs" / f"{next(p for p in reported.chunks if p.strategy == 'short').id}.parquet").unlink()
    assert [c.shared for c in comparisons.curves_of(reported.results(), reported.spec, comparisons.RETURN)] == [300] * 2


def test_points_within_one_episode_have_a_level():
    """A budget in episodes: all of them stand at episode 0."""
    curve = Curve("e", "l", "s", np.array([0]), np.array([0, 0]), np.array([[1.0, 3.0]]), shared=1)
    assert curve.of_runs("final").tolist() == curve.of_runs("area").tolist() == [2.0]


def test_budgets_in_episodes_are_reported_as_such(tmp_path, undrawn):
    reported = run_here(
        tmp_path,
        environments=["FrozenLake-v1"],
        learners={"q": {"type": "q_learning", "batch_size": 4}},
        seeds=2,
        budget={"episodes": 6},
        evaluation={"every": 3, "episodes": 1},
        logging={"every": 3},
        measures={"every": 0},
    )
    assert re.search("<th[^>]*>Episodes</th>", reported.report(figure_files=False).read_text())
    header, first, *_ = (tmp_path / "tables" / "budgets.csv").read_text().splitlines()
    assert header == "environment,learner,strategy,episodes,updates,transitions_replayed"
    assert first.startswith("FrozenLake-v1,q,uniform,6,")


def test_a_strategy_alone_is_matched_with_nothing(tmp_path):
    reported = pretended(tmp_path, 0.0, strategies={"uniform": {"type": "uniform"}})
    spent = comparisons.budgets_spent(reported.results(), reported.spec, reported.curves())
    assert sentences.budgets(spent, reported.spec) == (
        "Every run takes 300 environment steps; the table of budgets has its updates."
    )
    assert sentences.compared(what_ran(reported)).startswith("Compared: only uniform, on CartPole-v1")
    assert "pairs" not in sentences.compared(what_ran(reported))


def test_too_few_seeds_are_reported(tmp_path):
    ten = study(tmp_path, seeds=10).spec
    three = (
        "With 3 seeds no test of differences can reach p < 0.05 whatever the data (its smallest p is 0.25): read the "
        "intervals, or add seeds."
    )
    assert sentences.few_seeds(ten, [10, 10], [10]) is None
    assert sentences.few_seeds(study(tmp_path, seeds=3).spec, [3, 3], [3]) == three
    assert sentences.few_seeds(ten, [3, 2], []) == three, "what is there counts, not what is planned"
    assert sentences.few_seeds(ten, [9, 8], [3]) == three.replace("seeds no", "seeds of both strategies no"), "of pairs"


def test_too_few_seeds_are_reported_by_the_contrasts_method(tmp_path):
    asked = {"name": "c", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}
    of, alone = study(tmp_path, contrasts=[asked]).spec, study(tmp_path, contrasts=[asked | {"primary": True}]).spec
    assert sentences.few_seeds(of, [5, 5], [5]).startswith("With 5 seeds no test of differences or contrasts can reach")
    assert sentences.few_seeds(of, [8, 8], [4]).startswith("With 4 seeds of both strategies no test of differences can")
    assert sentences.few_seeds(alone, [5, 5], [5]).startswith(
        "With 5 seeds no contrast is called higher or lower, whatever its p. With 5 seeds no test of differences can"
    )
    assert sentences.few_seeds(alone, [6, 6], [6]) is None


@pytest.mark.parametrize(("seeds", "warned"), [(2, True), (19, True), (20, False)])
def test_a_report_of_fewer_than_20_seeds_warns(tmp_path, no_sections, seeds, warned):
    page = page_of(tmp_path, 30.0, seeds=seeds, chunk_size=seeds)
    assert (f"Only {seeds} seeds, fewer than 20: if some runs solve the task" in page) == warned


def test_a_primary_contrasts_error_rate_with_few_seeds(tmp_path):
    asked = {"name": "c", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}, "primary": True}
    spec = study(tmp_path, contrasts=[asked]).spec
    assert "up to 31 % with 10 seeds" in sentences.below_enough_seeds(spec, 10)
    assert sentences.below_enough_seeds(spec, 1) is sentences.below_enough_seeds(spec, 20) is None


def test_one_run_has_no_interval(tmp_path):
    """Both its ends would be the estimate, which reads as certainty."""
    for runs in ([1, 1], [10, 1]):
        reported = sentences.few_seeds(study(tmp_path, seeds=10).spec, runs, [])
        assert reported.startswith("A strategy with a single run has no interval")
    alone = pretended(tmp_path, 1.0, seeds=1, chunk_size=1)
    curves = comparisons.curves_of(alone.results(), alone.spec, comparisons.RETURN)
    (difference, _) = comparisons.differences(curves, "uniform")
    assert headline.row(difference, alone.spec).endswith("; one pair has no interval.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (-0.001, "0.00"),
        (3.14159, "3.14"),
        (-31.4159, "−31.4"),
        (314.159, "314"),
        (31415.9, "31,416"),
    ],
)
def test_numbers_for_people(value, text):
    assert decimals(value) == text


def test_p_values_for_people():
    assert [p_value(p) for p in (0.0004, 0.012, 1)] == ["< 0.001", "0.012", "1"]


def styled(strategies, baseline):
    spec = Spec.from_table(table(strategies={name: {"type": "uniform"} for name in strategies}, baseline=baseline))
    return figures.CurveStyle(palette.line_styles(strategies, baseline), spec, "return")


def test_the_legend_names_strategies_of_some_environments():
    def drawn(environment, strategy):
        return Curve(environment, "l", strategy, np.arange(2), np.array([50, 300]), np.ones((2, 2)))

    cells = [[(drawn(e, s), Band(*np.ones((3, 2)))) for s in names] for e, names in {"a": "u", "b": "hu"}.items()]
    drawing = figures.curves(cells, styled(["h", "u", "x"], "u"))
    assert [name for name, _ in drawing.legend] == ["u", "h"]
    assert [panel.title for panel in drawing.groups[0].panels] == [f"{e}: return over environment steps" for e in "ab"]


FIVE = [f"E{i}-v0" for i in range(5)]
SLOW = {"type": "dqn", "title": "slow"}


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"environments": FIVE}, "higher on all 5 environments."),
        ({"environments": [*FIVE, "L-v0"]}, "higher on 5 of 6 environments, and equivalent elsewhere."),
        ({"environments": ["E-v0", "L-v0"]}, "higher on E-v0, and equivalent elsewhere."),
        ({"learners__slow": SLOW}, "higher with both learners."),
        (
            {"environments": ["E-v0", "L-v0"], "learners__slow": SLOW | {"environments": ["E-v0"]}},
            "higher on E-v0 (dqn) and E-v0 (slow), and equivalent elsewhere.",
        ),
        (
            {"environments": [*FIVE[:2], "L-v0"], "learners__slow": SLOW},
            "higher on E0-v0 (dqn), E0-v0 (slow), E1-v0 (dqn) and E1-v0 (slow), and equivalent elsewhere.",
        ),
        (
            {
                "learners__slow": SLOW,
                "strategies__prioritized__learners": ["slow"],
                "strategies__none": {"type": "none"},
            },
            "higher with slow.",
        ),
    ],
)
def test_the_answer_says_where_each_verdict_is(changes, answer, tmp_path):
    if "L-v0" in changes.get("environments", ()):
        changes = changes | {"equivalence": {"L-v0": 1e6}}
    reported, curves = with_curves(tmp_path, 30.0, **changes)
    line, *_ = answered(curves, reported)
    assert line.startswith("Average return compared with uniform: ")
    assert f" prioritized was {answer} 10 seeds each;" in line


def test_figures_and_sentences_name_learners_by_their_titles(tmp_path):
    titles = {"learners__dqn__title": "fast", "learners__slow": {"type": "dqn", "title": "slow, but safe"}}
    reported, curves = with_curves(tmp_path, 1.0, **titles)
    cells = cells_of(curves)
    style = figures.CurveStyle(palette.line_styles(["uniform", "prioritized"], "uniform"), reported.spec, "return")
    over_time = [panel.title for panel in figures.curves(cells, style).groups[0].panels]
    assert over_time == [
        "CartPole-v1, fast: return over environment steps",
        "CartPole-v1, slow, but safe: return over environment steps",
    ]
    groups = figures.multiples(cells, style, runs=False).groups
    assert [group.title for group in groups] == ["CartPole-v1, fast", "CartPole-v1, slow, but safe"]
    (group,) = figures.over_environments(cells, style, lambda _: (0.0, 1.0)).groups
    assert [panel.title for panel in group.panels][:2] == ["uniform, fast", "uniform, slow, but safe"]
    assert "on CartPole-v1, with the learners fast and slow, but safe, 10 seeds" in sentences.compared(
        what_ran(reported)
    )


def test_many_strategies_get_a_panel_each():
    names = ["u", *(f"s{i}" for i in range(27))]
    steps = np.array([50, 300])
    cell = [
        (Curve("a", "l", s, np.arange(2), steps, np.ones((2, 2)) * i), Band(*np.ones((3, 2)) * i))
        for i, s in enumerate(names)
    ]
    drawing = figures.curves([cell], styled(names, "u"))
    (group,) = drawing.groups
    assert [panel.title for panel in group.panels] == names
    assert {panel.figure.axes[0].get_ylim() for panel in group.panels} == {(-1.35, 28.35)}
    assert all(len(panel.figure.axes[0].lines) == 1 + (panel.title != "u") for panel in group.panels)


def test_a_run_is_drawn_at_few_points_up_to_its_last():
    steps = np.arange(1, 1_001)
    curve = Curve("e", "l", "u", np.arange(3), steps, np.outer([1.0, 2.0, 3.0], steps))
    drawing = figures.multiples([[(curve, Band(*curve.values))]], styled(["u"], "u"), runs=True)
    *runs, _ = drawing.groups[0].panels[0].figure.axes[0].lines
    assert [len(line.get_xdata()) for line in runs] == [figures.MOST_POINTS] * 3
    assert [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in runs] == [(1000, 1000), (1000, 2000), (1000, 3000)]


def test_dots_show_every_run_and_equal_values_too():
    rows = [figures.Row("u", "#000000", Interval(3.0, 3.0, 3.0), np.full(7, 3.0))]
    drawing = figures.dots([("e", [figures.Dots("t", rows)])], "return")
    axes = drawing.groups[0].panels[0].figure.axes[0]
    assert axes.get_xlim() == (2.0, 4.0)
    assert len(axes.lines[0].get_xdata()) == 7


def test_thinned_keeps_the_last_point_and_short_curves_whole():
    curve = Curve("e", "l", "s", np.array([0]), np.arange(10), np.arange(10.0)[None])
    assert comparisons.thinned(curve, 4).steps.tolist() == [0, 3, 6, 9]
    assert comparisons.thinned(curve, 50).values.tolist() == curve.values.tolist()


def test_figures_and_progress_count_episodes_where_budgets_do(tmp_path):
    reported = study(tmp_path, budget={"episodes": 300})
    curve = Curve("e", "l", "s", np.arange(2), np.array([50, 300]), np.ones((2, 2)))
    style = figures.CurveStyle(palette.line_styles(["s"], "s"), reported.spec, "return")
    drawn = figures.curves([[(curve, Band(*np.ones((3, 2))))]], style)
    (axes,) = drawn.groups[0].panels[0].figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "100", "200", "300"]
    assert axes.get_xlabel() == "episodes"
    console = Console(record=True, file=StringIO())
    PlainReporter(console).begin(reported.chunks, [], 1)
    assert "8 runs to do, 2,400 episodes, 1 worker." in console.export_text()


def test_a_sentence_names_a_few_strategies_and_counts_the_others():
    assert sentences.some(["a", "b", "c"]) == "a, b and c"
    assert sentences.some([f"s{i}" for i in range(12)]) == "s0, s1, s2, s3, s4, s5, s6 and 5 others"


def test_the_longest_curve_is_drawn_to_its_end():
    """Strategies may have their own budgets."""
    short, long = (
        (Curve("a", "l", name, np.arange(2), np.array([50, last]), np.ones((2, 2))), Band(*np.ones((3, 2))))
        for name, last in (("short", 300), ("long", 600))
    )
    style = styled(["short", "long"], "short")
    for drawing in (
        figures.curves([[short, long]], style),
        figures.multiples([[short, long]], style, runs=True),
    ):
        assert {panel.figure.axes[0].get_xlim() for panel in drawing.groups[0].panels} == {(0.0, 600.0)}


def test_a_family_is_inconclusive_where_mean_and_iqm_disagree():
    """85 runs gain 8, 15 are lost: the interquartile mean gains, the mean loses far more."""
    rng = np.random.default_rng(0)
    base = rng.normal(500.0, 3.0, 100)
    treated = base + 8.0 + rng.normal(0.0, 3.0, 100)
    treated[:15] -= 260.0
    steps, seeds = np.array([10]), np.arange(100)
    runs = {"uniform": base, "mostly": treated, "other": base + rng.normal(0.0, 3.0, 100)}
    curves = [Curve("E", "q", name, seeds, steps, values[:, None]) for name, values in runs.items()]
    differences = {d.strategy: d for d in comparisons.differences(curves, "uniform") if d.measure == "final"}
    assert differences["mostly"].iqm.low > 0.0
    assert (treated - base).mean() < 0.0
    assert not differences["mostly"].shown
    alone = comparisons.differences(curves[:2], "uniform")[0]
    assert alone.shown
