"""Words and sentences from the numbers: measures, verdicts, comparisons, costs.

A difference is equivalent if its interval lies within the declared margin, and otherwise higher or lower only if the
corrected p-value is below 0.05. Everything else is inconclusive, which is not "no difference".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from replaylab.number_format import counted, signed, significant, together
from replaylab.statistics import Interval
from replaylab.statistics.permutation import least_p
from replaylab.study.analysis.comparisons import FINAL_SHARE, SIGNIFICANCE, BudgetSpent, Difference, Measure
from replaylab.study.report.what_ran import WhatRan
from replaylab.study.spec.contrasts import Cell
from replaylab.study.spec.spec import Spec

MEASURE_TITLES: dict[Measure, str] = {"final": "Final return", "area": "Average return"}
"""Above a panel."""

MEASURE_NAMES: dict[Measure, str] = {"final": "final", "area": "average"}
"""As a table's column has them."""

MEASURE_PHRASES: dict[Measure, str] = {"final": "final return", "area": "average return"}
"""In a sentence."""

DEFINITIONS = (
    "Return: sum of rewards in an evaluation episode, which the greedy policy plays in a separate environment. "
    f"Average return: mean over the evaluations of a run. Final return: mean over the last "
    f"{100 * FINAL_SHARE:.0f} % of training."
)
"""Definitions of both measures, for the top of a page."""

MOST_NAMED = 8
"""Strategies that one sentence names."""


def estimate(size: Interval) -> str:
    """Return the estimate, with the decimals of its interval."""
    return together(size)[0]


def interval(size: Interval, runs: int) -> str:
    """Return the ends of an interval over so many runs, which one run does not have."""
    return "–" if runs == 1 else " to ".join(together(size)[1:])


def with_interval(size: Interval, runs: int) -> str:
    """Return the estimate with its interval over so many runs; only the estimate of one run."""
    return estimate(size) if runs == 1 else f"{estimate(size)} ({interval(size, runs)})"


def effect(size: Interval) -> str:
    """Return a difference with its sign, and the decimals of its interval."""
    return _signed(size)[0]


def effect_interval(size: Interval, pairs: int) -> str:
    """Return the ends of a difference's interval, with their signs; a dash for one pair, which has none."""
    return "–" if pairs == 1 else " to ".join(_signed(size)[1:])


def _signed(size: Interval) -> list[str]:
    return [text if text == "0" else signed(text, value) for text, value in zip(together(size), size, strict=True)]


def capital(text: str) -> str:
    """Return a sentence with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def joined(items: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def some(items: Sequence[str], noun: str = "others") -> str:
    """Return the items, joined; of more than `MOST_NAMED` the first ones, and how many more there are."""
    if len(items) <= MOST_NAMED:
        return joined(items)
    return f"{', '.join(items[: MOST_NAMED - 1])} and {len(items) - MOST_NAMED + 1} {noun}"


def versus(strategy: str, baseline: str) -> str:
    """Return what a row compares: "A vs B"."""
    return f"{strategy} vs {baseline}"


def bounds(difference: Difference) -> str:
    """Return the equivalence margin as ±size; nothing if none was declared."""
    return f"±{significant(difference.equivalence.bounds.high)}" if difference.equivalence else ""


def verdict(difference: Difference) -> str:
    """Return the verdict on one comparison in one word; equivalent comes first, as with contrasts."""
    if difference.equivalent:
        return "equivalent"
    if not difference.shown:
        return "inconclusive"
    return "higher" if difference.iqm.estimate > 0 else "lower"


def in_words(word: str, margin: str) -> str:
    """Return a verdict as readers see it; an equivalent one has its margin, such as "±0.05"."""
    return f"equivalent within {margin}" if word == "equivalent" else word


def compared(ran: WhatRan) -> str:
    """Return one sentence about the comparison and its method; for an incomplete study, about the stored runs."""
    spec, groups = ran.spec, ran.with_baseline()
    if groups:
        base = spec.title_of(spec.baseline)
        parts = [f"{some(titled(others, spec))} vs {base}, {_places(cells, spec)}" for others, cells in groups.items()]
        against = "; ".join(parts[:MOST_NAMED])
        if len(parts) > MOST_NAMED:
            against += f"; and {len(parts) - MOST_NAMED} more such groups"
    else:
        against = f"only {some(titled(ran.strategies, spec))}, {_places(ran.cells, spec)}"
    paired = " Every strategy uses the same seeds, so runs are compared in pairs." if groups else ""
    return (
        f"Compared: {against}, {ran.counted_seeds} each and {budget_of(spec)} a run "
        f"({ran.counted_runs}).{paired} "
        f"Evaluation: {counted(spec.evaluation.episodes, 'episode')} every {spec.evaluation.every:,} "
        f"{spec.budget.unit}."
    )


def titled(strategies: Iterable[str], spec: Spec) -> list[str]:
    """Return what reports call strategies."""
    return [spec.title_of(strategy) for strategy in strategies]


def _places(cells: Sequence[Cell], spec: Spec) -> str:
    """Return where cells are: two lists if every environment has every learner, else a list of pairs."""
    places = list(dict.fromkeys((cell.environment, spec.learner_title_of(cell.learner)) for cell in cells))
    environments, learners = (list(dict.fromkeys(names)) for names in zip(*places, strict=True))
    if len(places) == len(environments) * len(learners):
        noun = "learner" if len(learners) == 1 else "learners"
        return f"on {joined(environments)}, with the {noun} {joined(learners)}"
    if len(places) == len(environments):  # each has its own learner
        return f"on {joined(environments)}"
    return some([f"on {environment} with {learner}" for environment, learner in places])


def budgets(spent: Sequence[BudgetSpent], spec: Spec) -> str:
    """Return what is matched between the strategies of an environment and learner, and what is not."""
    if not any(s.updates >= 0 for s in spent):
        return f"A run takes {budget_of(spec)}; updates were not recorded."
    if len(spec.strategies) == 1:
        return f"Every run takes {budget_of(spec)}; the table of budgets has its updates."
    cells: dict[tuple[str, str], list[BudgetSpent]] = {}
    for strategy_spent in spent:
        cells.setdefault(strategy_spent.cell, []).append(strategy_spent)
    matched, unmatched, lacking = list[str](), list[str](), list[str]()
    for name, of in _SPENT:
        amounts = [{round(of(s)) for s in cell if of(s) >= 0} for cell in cells.values()]
        alike = matched if all(of(s) >= 0 for s in spent) else lacking
        (alike if max(map(len, amounts)) <= 1 else unmatched).append(name or spec.budget.counted)
    parts = [("Matched between strategies", matched), ("Not matched", unmatched), ("Not recorded of all", lacking)]
    text = " ".join(f"{what}: {joined(names)}." for what, names in parts if names)
    if spec.budget.counted in unmatched:
        shared = {min(s.budget for s in cell) for cell in cells.values()}
        length = (
            f"the first {min(shared):,}"
            if len(shared) == 1
            else "those that all strategies of an environment share of their"
        )
        text += f" Average returns are over {length} {spec.budget.counted}; each final return is at the run's own end."
    if "transitions replayed" not in unmatched:
        return text
    shares: dict[str, dict[str, None]] = {}
    for s in spent:
        if s.updates > 0 and s.transitions_replayed >= 0:
            shares.setdefault(s.strategy, {})[significant(s.transitions_replayed / s.updates)] = None
    listed = some([f"{spec.title_of(strategy)} {' or '.join(amounts)}" for strategy, amounts in shares.items()])
    return f"{text} Transitions replayed in one update: {listed}. What that alone does is part of each difference."


_SPENT: tuple[tuple[str, Callable[[BudgetSpent], float]], ...] = (
    ("", lambda spent: spent.budget),
    ("updates", lambda spent: spent.updates),
    ("transitions replayed", lambda spent: spent.transitions_replayed),
)
"""Amounts that may be matched; the first is named by its unit."""


def budget_of(spec: Spec) -> str:
    """Return the budget of a run in words; if strategies have different budgets, the least and the greatest."""
    totals = [spec.budget_of(strategy).total for strategy in spec.strategies]
    least, most = min(totals), max(totals)
    return f"{least:,} {spec.budget.counted}" if least == most else f"{least:,} to {most:,} {spec.budget.counted}"


ENOUGH_SEEDS = 20
"""With fewer a report warns of the distributions of runs in which its error is far above 5 %."""

_FEW_BY_ROLE = (
    "if some runs fail and one strategy varies much more than the others, the verdict on the primary contrast can be "
    "wrong in more than 5 % of studies (in simulations up to 31 % with 10 seeds, 12 % with 20, 4 % with 30)"
)
_FEW = (
    "if some runs solve the task and others fail, the intervals are too narrow (in the worst simulation 79 % of the "
    "95 % intervals held the true value with 5 seeds, 94.5 % or more from 10 seeds on)"
)


def below_enough_seeds(spec: Spec, seeds: int) -> str | None:
    """Return a warning if so few seeds risk an error far above 5 %, or None; for one seed see `few_seeds`."""
    if not 1 < seeds < ENOUGH_SEEDS:
        return None
    return (
        f"Only {seeds} seeds, fewer than {ENOUGH_SEEDS}: {_FEW_BY_ROLE if spec.judged_by_role else _FEW}. "
        "The page “Statistics” of the documentation has the tables."
    )


def few_seeds(spec: Spec, runs: Iterable[int], pairs: Iterable[int]) -> str | None:
    """Return a warning if no test can find a difference with so few seeds, or None.

    Args:
        spec: the study.
        runs: Number of runs of each curve.
        pairs: Number of seeds in each comparison with the baseline.
    """
    seed_counts = set(runs) or {len(spec.seeds)}
    if 1 in seed_counts:
        return "A strategy with a single run has no interval, and no test can show a difference. Add seeds."
    most = max(seed_counts)
    seeds_of = {"contrasts": most} if spec.contrasts else {}
    if any(strategy != spec.baseline for *_, strategy in spec.cells):
        seeds_of = {"differences": max(pairs, default=most)} | seeds_of
    too_few = {test: seeds for test, seeds in seeds_of.items() if least_p(seeds) >= SIGNIFICANCE}
    warnings = []
    if spec.judged_by_role and too_few.pop("contrasts", 0):  # their p-values are not those of swaps
        warnings.append(f"With {counted(most, 'seed')} no contrast is called higher or lower, whatever its p")
    for seeds in dict.fromkeys(too_few.values()):
        tests = " or ".join(test for test in too_few if too_few[test] == seeds)
        whose = "" if seeds == most else " of both strategies"
        warnings.append(
            f"With {counted(seeds, 'seed')}{whose} no test of {tests} can reach p < 0.05 whatever the data (its "
            f"smallest p is {least_p(seeds):.2g})"
        )
    return f"{'. '.join(warnings)}: read the intervals, or add seeds." if warnings else None
