"""Sentences made from the numbers: what was compared, and what came out.

A difference is called equivalent where none that matters is left, by declared bounds, and else higher or lower only
where the corrected p-value is below 0.05. Everything else is "no difference shown", which is not "no difference": the
sentence gives the interval, so the reader sees what is still open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from replaylab.number_format import at_scale, counted, equals_p, signed, significant
from replaylab.statistics import Interval
from replaylab.statistics.permutation import least_p
from replaylab.study.analysis.comparisons import BudgetSpent, Difference, Level, Measure
from replaylab.study.report.what_ran import WhatRan
from replaylab.study.spec.contrasts import Cell
from replaylab.study.spec.planned_looks import SIGNIFICANCE
from replaylab.study.spec.study_file import Spec

MEASURE_TITLES: dict[Measure, str] = {"final": "Final level", "area": "Average over training (area)"}
"""Above a panel."""

MEASURE_NAMES: dict[Measure, str] = {"final": "final", "area": "average"}
"""As a table's column has them."""

MEASURE_PHRASES: dict[Measure, str] = {
    "final": "final level",
    "area": "average over training",
}
"""In a sentence."""

MOST_NAMED = 8
"""Strategies that one sentence names."""


def estimate(found: Interval) -> str:
    """Return the estimate, with the decimals of its interval."""
    return at_scale(found.estimate, _scale(found))


def interval(found: Interval, runs: int) -> str:
    """Return the ends of an interval over so many runs, which one run does not have."""
    if runs == 1:
        return "–"
    return f"{at_scale(found.low, _scale(found))} to {at_scale(found.high, _scale(found))}"


def with_interval(found: Interval, runs: int) -> str:
    """Return the estimate with its interval over so many runs; alone, of one run."""
    return estimate(found) if runs == 1 else f"{estimate(found)} ({interval(found, runs)})"


def effect(found: Interval) -> str:
    """Return a difference with its sign, and the decimals of its interval."""
    return _signed_at(found.estimate, _scale(found))


def effect_interval(found: Interval, pairs: int) -> str:
    """Return the ends of a difference's interval, with their signs; a dash for one pair, which has none."""
    if pairs == 1:
        return "–"
    return f"{_signed_at(found.low, _scale(found))} to {_signed_at(found.high, _scale(found))}"


def _scale(found: Interval) -> float:
    """Return the largest size of the estimate and the ends, of which some may be infinite."""
    return max(abs(one) for one in found if math.isfinite(one))


def _signed_at(value: float, scale: float) -> str:
    return signed(at_scale(value, scale), value)


def joined(items: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def some(items: Sequence[str], noun: str = "others") -> str:
    """Return the items, joined; of more than `MOST_NAMED` the first ones, and how many more there are."""
    if len(items) <= MOST_NAMED:
        return joined(items)
    return f"{', '.join(items[: MOST_NAMED - 1])} and {len(items) - MOST_NAMED + 1} {noun}"


def bounds(difference: Difference) -> str:
    """Return which differences do not matter, as ±size; nothing where that was not declared."""
    return f"±{significant(difference.equivalence.bounds.high)}" if difference.equivalence else ""


def verdict(difference: Difference) -> str:
    """Return the verdict on one comparison, in one to three words; as with contrasts, equivalent comes first."""
    if difference.equivalent:
        return "equivalent"
    if not difference.shown:
        return "no difference shown"
    return "higher" if difference.iqm.estimate > 0 else "lower"


def compared(ran: WhatRan) -> str:
    """Return one sentence: what was compared, and how; of an incomplete study what is there."""
    spec, groups = ran.spec, ran.with_baseline()
    if groups:
        parts = [f"{some(others)} with {spec.baseline}, {_places(cells)}" for others, cells in groups.items()]
        against = "; ".join(parts[:MOST_NAMED])
        if len(parts) > MOST_NAMED:
            against += f"; and {len(parts) - MOST_NAMED} more such groups"
    else:
        against = f"{some(ran.strategies)} alone, {_places(ran.cells)}"
    paired = " The same seeds serve every strategy, so runs are compared in pairs." if groups else ""
    return (
        f"Compared: {against}, {ran.counted_seeds} each and {budget_of(spec)} a run "
        f"({ran.counted_runs}).{paired} "
        f"A run is judged by its greedy policy on separate environments: the mean return of "
        f"{counted(spec.evaluation.episodes, 'episode')}, every {spec.evaluation.every:,} {spec.budget.unit}."
    )


def _places(cells: Sequence[Cell]) -> str:
    """Return where cells are: environments and learners, by themselves where each of one stands beside each other."""
    places = list(dict.fromkeys(cell[:2] for cell in cells))
    environments, learners = (list(dict.fromkeys(names)) for names in zip(*places, strict=True))
    if len(places) == len(environments) * len(learners):
        return f"on {joined(environments)}, with {joined(learners)}"
    return some([f"on {environment} with {learner}" for environment, learner in places])


def answers(found: Sequence[Difference], levels: Sequence[Level], spec: Spec) -> list[str]:
    """Return the answer, a sentence or two for each environment and learner."""
    cells = list(dict.fromkeys((d.environment, d.learner) for d in found))
    return [
        _answer([d for d in found if (d.environment, d.learner) == cell], levels, cell, len(spec.learners) > 1)
        for cell in cells
    ]


def _answer(found: Sequence[Difference], levels: Sequence[Level], cell: tuple[str, str], name_learner: bool) -> str:
    where = f"{cell[0]} with {cell[1]}" if name_learner else cell[0]
    parts = [
        _one_measure([d for d in found if d.measure == measure], measure, where, first=not i)
        for i, measure in enumerate(dict.fromkeys(d.measure for d in found))
    ]
    base = next(
        lv
        for lv in levels
        if (lv.environment, lv.learner) == cell and lv.strategy == found[0].baseline and lv.measure == "final"
    )
    ends = "one run" if base.runs == 1 else f"95 % interval {interval(base.iqm, base.runs)}"
    reached = f"{base.strategy} itself ended at {estimate(base.iqm)} ({ends})."
    return " ".join([*parts, reached[0].upper() + reached[1:]])


def _one_measure(found: Sequence[Difference], measure: Measure, where: str, *, first: bool) -> str:
    baseline = found[0].baseline
    clauses = []
    for kind in ("higher", "lower"):
        named = [f"{d.strategy} ({effect(d.iqm)})" for d in found if verdict(d) == kind]
        if named:
            clauses.append(f"{some(named)} came out {kind} than {baseline}")
    alike = [d for d in found if d.equivalent]
    if alike:
        named = [f"{d.strategy} ({effect(d.iqm)})" for d in alike]
        clauses.append(f"{some(named)} came out equivalent to {baseline}, within {bounds(alike[0])}")
    open_ = [d.strategy for d in found if verdict(d) == "no difference shown"]
    if open_:
        clauses.append(f"no difference from {baseline} was shown for {some(open_)}")
    lead = f"On {where}, by the {MEASURE_PHRASES[measure]}, " if first else f"By the {MEASURE_PHRASES[measure]}, "
    return lead + "; ".join(clauses) + "."


def comparison(difference: Difference) -> str:
    """Return one sentence on one comparison: effect, interval, p-value, verdict."""
    d = difference
    what = f"{d.strategy} against {d.baseline}, {MEASURE_PHRASES[d.measure]}: {effect(d.iqm)}"
    if d.pairs == 1:
        return f"{what} in one pair: no difference shown; one pair has no interval."
    numbers = (
        f"{what} (95 % interval {effect_interval(d.iqm, d.pairs)}; {counted(d.pairs, 'pair')}; "
        f"p {equals_p(d.p_max_t)}, corrected)"
    )
    if d.equivalence is not None and d.equivalent:
        return f"{numbers}: equivalent; {effect_interval(d.equivalence.inner, d.pairs)} is within {bounds(d)}."
    if d.shown:
        return f"{numbers}: {verdict(d)}."
    if d.covers_zero:
        return f"{numbers}: no difference shown; the interval covers 0."
    return f"{numbers}: no difference shown; the interval leaves out 0, but p stays above 0.05."


def budgets(spent: Sequence[BudgetSpent], spec: Spec) -> str:
    """Return what is matched between the strategies of an environment and learner, and what is not."""
    if not any(s.updates >= 0 for s in spent):
        return f"A run takes {budget_of(spec)}; updates were not recorded."
    if len(spec.strategies) == 1:
        return f"Every run takes {budget_of(spec)}; the table of budgets has its updates."
    cells: dict[tuple[str, str], list[BudgetSpent]] = {}
    for one in spent:
        cells.setdefault((one.environment, one.learner), []).append(one)
    matched, unmatched, lacking = list[str](), list[str](), list[str]()
    for name, of in _SPENT:
        amounts = [{round(of(s)) for s in cell if of(s) >= 0} for cell in cells.values()]
        alike = matched if all(of(s) >= 0 for s in spent) else lacking
        (alike if max(map(len, amounts)) <= 1 else unmatched).append(name or spec.budget.counted)
    parts = [("Matched between strategies", matched), ("Not matched", unmatched), ("Not recorded of all", lacking)]
    text = " ".join(f"{what}: {joined(names)}." for what, names in parts if names)
    if spec.budget.counted in unmatched:
        shared = {min(s.budget for s in cell) for cell in cells.values()}
        length = f"the first {min(shared):,}" if len(shared) == 1 else "what all strategies of a place have of their"
        text += (
            f" Averages over training are over {length} {spec.budget.counted}; final levels are each at its own end."
        )
    if "transitions replayed" not in unmatched:
        return text
    shares: dict[str, dict[str, None]] = {}
    for s in spent:
        if s.updates > 0 and s.transitions_replayed >= 0:
            shares.setdefault(s.strategy, {})[significant(s.transitions_replayed / s.updates)] = None
    listed = some([f"{strategy} {' or '.join(own)}" for strategy, own in shares.items()])
    return f"{text} Transitions replayed in one update: {listed}. What that alone does is part of each difference."


_SPENT: tuple[tuple[str, Callable[[BudgetSpent], float]], ...] = (
    ("", lambda spent: spent.budget),
    ("updates", lambda spent: spent.updates),
    ("transitions replayed", lambda spent: spent.transitions_replayed),
)
"""What may be matched; the first has its unit's name."""


def budget_of(spec: Spec) -> str:
    """Return what a run takes: the study's budget, or where strategies have others the least and the greatest."""
    totals = [spec.budget_of(strategy).total for strategy in spec.strategies]
    least, most = min(totals), max(totals)
    return f"{least:,} {spec.budget.counted}" if least == most else f"{least:,} to {most:,} {spec.budget.counted}"


def few_seeds(spec: Spec, runs: Iterable[int], pairs: Iterable[int]) -> str | None:
    """Return a warning where the seeds cannot carry a verdict, or None.

    Args:
        spec: the study.
        runs: how many each curve has.
        pairs: of how many seeds each strategy's runs are compared with the baseline's.
    """
    there = set(runs) or {len(spec.seeds)}
    if 1 in there:
        return (
            "One run tells nothing of how far runs differ: where there is but one, there is no interval, and no "
            "test can show a difference. Add seeds."
        )
    compared = [s for s in spec.strategies if s != spec.baseline]
    of: dict[int, list[str]] = {}
    if any(spec.environments_of(s, learner) for s in compared for learner in spec.learners_of(s)):
        of.setdefault(max(pairs, default=max(there)), []).append("differences")
    if spec.contrasts:
        of.setdefault(max(there), []).append("contrasts")
    told = []
    for seeds, tests in of.items():
        least = min(float(least_p(seeds)) * SIGNIFICANCE / spec.look_level, 1.0)
        whose = "" if seeds == max(there) else " of both strategies"
        if least < SIGNIFICANCE:
            continue
        if spec.judged_by_role and "contrasts" in tests:  # their p-values are not those of swaps
            told.append(f"With {counted(seeds, 'seed')} no contrast is called higher or lower, whatever its p")
            tests.remove("contrasts")
        if tests:
            told.append(
                f"With {counted(seeds, 'seed')}{whose} no test of {' or '.join(tests)} can reach p < 0.05 whatever the "
                f"data (its smallest p is {least:.2g})"
            )
    return f"{'. '.join(told)}: read the intervals, or add seeds." if told else None
