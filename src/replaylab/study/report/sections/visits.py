"""Visited states of a tabular study: maps, differences from the baseline, and the tests.

Grid worlds are drawn as maps; of environments without a known map the states that differ most are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replaylab.errors import ConfigError
from replaylab.number_format import counted, equals_p, p_value
from replaylab.plotting.drawing import Drawing, Panel, PanelGroup
from replaylab.statistics import Interval
from replaylab.study.analysis import visit_counts
from replaylab.study.analysis.comparisons import SIGNIFICANCE, ComparisonResults
from replaylab.study.analysis.visit_counts import StrategyVisits, VisitDifference
from replaylab.study.report import figures
from replaylab.study.report.page import KEYS, Column, Page, ReportFigure, ReportTable, Section, Shown
from replaylab.study.report.sections import visit_maps
from replaylab.study.report.sections.learner_internals import TITLE

if TYPE_CHECKING:
    import duckdb

    from replaylab.study.spec.spec import Spec
    from replaylab.watch.grid import Grid

MOST_LISTED = 15
"""States in the list of an environment without a map."""


@dataclass(frozen=True)
class Places:
    """The places at which an environment's visits are shown: the cells of a map, or its states."""

    grid: Grid | None
    of_state: NDArray[np.intp]
    """The place of each state, shape (S,)."""

    @property
    def number(self) -> int:
        """Number of places."""
        return int(self.of_state.max()) + 1 if self.grid is None else self.grid.size

    def of(self, visits: StrategyVisits) -> StrategyVisits:
        """Return the visits of the places."""
        return visits if self.grid is None else visits.at(self.of_state, self.number)

    def position(self, place: int) -> tuple[object, object]:
        """Return the row and the column of a place on the map; empty without one."""
        return ("", "") if self.grid is None else divmod(place, self.grid.shape[1])


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return where the strategies went and how that differs from the baseline; None where no visits were counted."""
    visits = visit_counts.visits_of(page.rows, page.spec)
    if not visits:
        return None
    places = {v.environment: _places(v, page.spec) for v in visits}
    shown = [places[v.environment].of(v) for v in visits]
    tested = visit_counts.visit_differences(visits, page.spec.baseline)
    parts: list[Shown] = []
    if any(p.grid for p in places.values()):
        parts.append(_maps(page, shown, places))
    if tested:
        parts += [_differences(page, shown, places, tested), _table(page, tested)]
    return Section(
        TITLE,
        parts,
        [
            "A visit is an episode that begins in a state, or a step that leads to it, while training. Shown are "
            "shares of a run’s visits."
        ],
        points=[sentence(d, len(tested), page.spec) for d in tested] if len(tested) <= figures.MOST_TOGETHER else [],
        subtitle="Visited states",
    )


def lines(rows: duckdb.DuckDBPyRelation, spec: Spec) -> list[str]:
    """Return a line for each comparison of a strategy's visits with the baseline's, for a terminal."""
    tested = visit_counts.visit_differences(visit_counts.visits_of(rows, spec), spec.baseline)
    return [f"{spec.place_of(*d.cell)}: {sentence(d, len(tested), spec)}" for d in tested]


def sentence(difference: VisitDifference, comparisons: int, spec: Spec) -> str:
    """Return how far a strategy's visits are from the baseline's, with the test and its correction."""
    corrected = f", Holm-corrected over {comparisons} comparisons" if comparisons > 1 else ""
    strategy, base = spec.title_of(difference.strategy), spec.title_of(difference.baseline)
    return (
        f"{100 * difference.distance:.1f} % of the visits of {strategy} are to other states than those of {base} "
        f"(total variation distance; permutation within {counted(difference.seeds, 'seed')}: "
        f"p {equals_p(difference.p_holm)}{corrected})."
    )


def _places(visits: StrategyVisits, spec: Spec) -> Places:
    """Return the map of an environment, which only the environment itself knows, or its states."""
    from replaylab.watch.grid import state_cells  # asks Gymnasium, which no other report needs

    states = visits.counts.shape[1]
    try:
        env_id, options = spec.made_of(visits.environment)
        grid, cells = state_cells(env_id, **options)
    except ConfigError:
        return Places(None, np.arange(states))
    return Places(grid, cells) if len(cells) == states else Places(None, np.arange(states))


def _maps(page: Page, visits: Sequence[StrategyVisits], places: dict[str, Places]) -> ReportFigure:
    groups = []
    for cell in dict.fromkeys(v.cell for v in visits):
        grid = places[cell[0]].grid
        shares = {page.spec.title_of(v.strategy): v.shares.mean(axis=0) for v in visits if v.cell == cell}
        if grid is not None:
            groups.append(PanelGroup(page.spec.place_of(*cell), visit_maps.shares(shares, grid)))
    return page.figure(
        "visits",
        "Share of the time in each cell",
        "Mean over seeds, in percent of a run’s visits; all maps of an environment share their logarithmic colours. "
        "Empty cells were never visited; hatched ones cannot be entered, or end an episode and were never reached.",
        Drawing(groups),
        (*KEYS, "place", "row", "column", "share", "seeds"),
        (
            (*v.key, i, *places[v.environment].position(i), share, len(v.seeds))
            for v in visits
            for i, share in enumerate(v.shares.mean(axis=0).tolist())
        ),
    )


def _differences(
    page: Page, visits: Sequence[StrategyVisits], places: dict[str, Places], tested: Sequence[VisitDifference]
) -> ReportFigure:
    title_of = page.spec.title_of
    baseline = title_of(page.spec.baseline)
    pairs = [
        (compared, base, visit_counts.state_p_values(compared, base))
        for compared, base in visit_counts.paired_visits(visits, page.spec.baseline)
    ]
    groups: list[PanelGroup] = []
    for cell in dict.fromkeys(compared.cell for compared, *_ in pairs):
        pairs_of_cell = [pair for pair in pairs if pair[0].cell == cell]
        of = {d.strategy: d for d in tested if d.cell == cell}
        notes = {title_of(s): f"{100 * d.distance:.1f} % elsewhere, p {equals_p(d.p_holm)}" for s, d in of.items()}
        grid = places[cell[0]].grid
        if grid is None:
            groups.append(PanelGroup(page.spec.place_of(*cell), _listed(page, pairs_of_cell, notes)))
        else:
            maps = {
                title_of(compared.strategy): ((compared.shares - base.shares).mean(axis=0), p)
                for compared, base, p in pairs_of_cell
            }
            groups.append(PanelGroup(page.spec.place_of(*cell), visit_maps.differences(maps, notes, grid)))
    return page.figure(
        "visit_differences",
        f"Difference from {baseline} in the share of the time",
        f"Mean over seeds of the strategy’s share minus {baseline}’s, in percentage points: blue where the strategy is "
        f"more often, orange where {baseline} is. Framed (in lists: blue): p < {SIGNIFICANCE} for this place, by "
        f"flipping the signs of whole seeds, max-T-corrected over all places of the environment. Above each: the share "
        f"of visits that are to other states (total variation distance over all states), its p by permutation within "
        f"seeds, Holm-corrected over {counted(len(tested), 'comparison')}.",
        Drawing(groups),
        (*KEYS, "baseline", "place", "row", "column", "difference", "p_max_t", "seeds"),
        _difference_rows(pairs, places),
    )


def _difference_rows(
    pairs: Sequence[tuple[StrategyVisits, StrategyVisits, NDArray[np.float64]]], places: dict[str, Places]
) -> Iterator[tuple[Any, ...]]:
    for compared, base, p in pairs:
        difference = (compared.shares - base.shares).mean(axis=0)
        for i, numbers in enumerate(zip(difference.tolist(), p.tolist(), strict=True)):
            key = (*compared.key, base.strategy)
            yield (*key, i, *places[compared.environment].position(i), *numbers, len(compared.seeds))


def _listed(
    page: Page,
    pairs: Sequence[tuple[StrategyVisits, StrategyVisits, NDArray[np.float64]]],
    notes: dict[str, str],
) -> list[Panel]:
    """Return the states with the largest differences, the largest first, a panel for each strategy."""
    panels = []
    for compared, base, p in pairs:
        each = 100 * (compared.shares - base.shares)
        largest = np.argsort(-np.abs(each.mean(axis=0)), kind="stable")[:MOST_LISTED]
        rows = [
            figures.Row(f"state {i}", visit_maps.color(p[i]), Interval(*[float(each[:, i].mean())] * 3), each[:, i])
            for i in largest.tolist()
        ]
        title = page.spec.title_of(compared.strategy)
        panels.append(figures.Dots(f"{title}: {notes[title]}", rows, reference=0.0))
    return [panel for group in figures.dots([("", panels)], "").groups for panel in group.panels]


def _table(page: Page, tested: Sequence[VisitDifference]) -> ReportTable:
    columns: list[Column[VisitDifference]] = [
        *page.versus_columns,
        Column("Seeds", lambda d: str(d.seeds), "seeds", lambda d: d.seeds),
        Column("Elsewhere", lambda d: f"{100 * d.distance:.1f} %", "distance", lambda d: d.distance),
        Column("p", lambda d: p_value(d.p), "p", lambda d: d.p),
        Column("p (Holm)", lambda d: p_value(d.p_holm), "p_holm", lambda d: d.p_holm),
    ]
    return page.table(
        "visits",
        f"Visits of other states than {page.spec.title_of(page.spec.baseline)}",
        "Total variation distance of mean shares over all states: how much of the time is spent in other states. p by "
        "permutation within seeds, then Holm-corrected over all rows.",
        tested,
        columns,
    )
