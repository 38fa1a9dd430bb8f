"""What a study asks: ``[[contrasts]]`` and ``[scores]`` of a study file, and the cells that each contrast compares.

A cell is an environment, a learner and a strategy. It has a value of each factor: `environment`; what `vary` gave its
learner and strategy; the labels in ``factors``; and `strategy` and `learner`, the tables that made them (of a strategy
with labels these stand for the table, so that strategies of different tables can be matched).

A contrast's ``more`` and ``less`` choose cells by factors. Cells that agree in every factor that neither of the two
names make a `MatchedGroup`; within it the mean of the cells of ``more`` is compared with that of ``less``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from replaylab.statistics import normalised_score
from replaylab.study.spec.display_text import Line, Prose
from replaylab.study.spec.errors import did_you_mean, shown
from replaylab.study.spec.parameter_grids import Factor

if TYPE_CHECKING:
    from replaylab.study.spec.study_file import Spec

RETURN = "eval/mean_reward"
"""The metric that is compared where a file does not say otherwise: the mean return of one greedy evaluation."""

Selector = dict[str, Factor | tuple[Factor, ...]]


class Score(BaseModel):
    """x becomes (x - low) / (high - low), so that environments can be averaged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: Annotated[float, Field(allow_inf_nan=False)]
    """Becomes 0; the return of random actions, for instance."""

    high: Annotated[float, Field(allow_inf_nan=False)]
    """Becomes 1."""

    metric: Line = RETURN
    """What is scored."""

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values on the scale of the score."""
        return normalised_score(values, self.low, self.high)

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if not self.low < self.high:
            raise ValueError("must have `low` below `high`")
        return self


class DeclaredContrast(BaseModel):
    """One contrast, as declared before the data are there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[Line, Field(min_length=1, max_length=80)]
    question: Prose = ""
    more: Selector = {}
    """Cells whose mean is counted up."""

    less: Selector = {}
    """Cells whose mean is counted down."""

    of: tuple[str, str] | None = None
    """Two contrasts, named earlier in the file: the first minus the second, seed by seed. In place of more and less."""

    metric: Line | None = None
    """Any recorded metric; None: the return."""

    measure: Literal["area", "final"] | None = None
    """Of a run: the average over training (None: this), or the mean of the last tenth."""

    better: Literal["higher", "lower"] | None = None
    """Which verdict is the good one; None: higher for the return, neither for other metrics."""

    equivalence: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Differences up to this size do not matter; in the unit of the contrast."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.of is None and not (self.more and self.less):
            raise ValueError("must hold `more` and `less`, or `of`")
        own = [k for k in ("more", "less", "metric", "measure", "better") if getattr(self, k)]
        if self.of is not None and own:
            raise ValueError(f"must not have `{own[0]}` together with `of`, which takes it from the contrasts it names")
        return self


class Cell(NamedTuple):
    """An environment, learner and strategy of a study."""

    environment: str
    learner: str
    strategy: str

    def __str__(self) -> str:
        return " · ".join(self)


class MatchedGroup(NamedTuple):
    """Cells that agree in all that a contrast does not name."""

    more: tuple[Cell, ...]
    less: tuple[Cell, ...]


@dataclass(frozen=True)
class ResolvedContrast:
    """A contrast with everything filled in."""

    name: str
    question: str
    metric: str
    measure: Literal["area", "final"]
    better: Literal["higher", "lower"] | None
    """None for a difference of contrasts: an effect that is larger than another is not better."""
    equivalence: float | None
    unit: str
    scored: bool
    groups: tuple[MatchedGroup, ...] = ()
    of: tuple[str, str] | None = None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells it compares; none of a difference of contrasts."""
        return tuple(dict.fromkeys(c for group in self.groups for side in group for c in side))


def resolve_contrasts(spec: Spec) -> list[ResolvedContrast]:
    """Return the study's contrasts, resolved, in the order of the file.

    Raises:
        ValueError: a contrast breaks a rule; the message names it, the rule, the value and the mend.
    """
    cells = _cells(spec) if spec.contrasts else {}
    found: dict[str, ResolvedContrast] = {}
    for i, one in enumerate(spec.contrasts):
        where = f"`contrasts.{i}` ({one.name})"
        if one.name in found:
            raise ValueError(f"{where} must have a unique name, but an earlier contrast has the same one; rename it")
        found[one.name] = _difference(one, found, where) if one.of else _direct(one, cells, spec, where)
    return list(found.values())


def _difference(one: DeclaredContrast, earlier: Mapping[str, ResolvedContrast], where: str) -> ResolvedContrast:
    assert one.of is not None
    for name in one.of:
        if name not in earlier:
            raise ValueError(
                f"{where}: `of` must name two contrasts above it ({', '.join(earlier) or 'none is defined yet'}), but "
                f"got {name!r}{did_you_mean(name, earlier).removesuffix('.')}"
            )
    a, b = (earlier[name] for name in one.of)
    for key in ("metric", "measure", "unit"):
        if getattr(a, key) != getattr(b, key):
            raise ValueError(
                f"{where}: `of` must name contrasts of one {key}, but {a.name!r} has {getattr(a, key)} and {b.name!r} "
                f"{getattr(b, key)}"
            )
    return ResolvedContrast(
        one.name, one.question, a.metric, a.measure, None, one.equivalence, a.unit, a.scored, of=(a.name, b.name)
    )


def _direct(one: DeclaredContrast, cells: Mapping[Cell, dict[str, Factor]], spec: Spec, where: str) -> ResolvedContrast:
    groups = _groups(one, cells, where)
    metric = one.metric or RETURN
    scored = _scored({c.environment for g in groups for side in g for c in side}, metric, spec, where)
    unit = "score" if scored else "return" if metric == RETURN else metric
    better = one.better or ("higher" if metric == RETURN else None)
    return ResolvedContrast(
        one.name, one.question, metric, one.measure or "area", better, one.equivalence, unit, scored, tuple(groups)
    )


def _scored(environments: set[str], metric: str, spec: Spec, where: str) -> bool:
    has = {e for e in environments if e in spec.scores and spec.scores[e].metric == metric}
    if (has and has != environments) or (metric == RETURN and not has and len(environments) > 1):
        lacks = min(environments - has)
        raise ValueError(
            f"{where} must have [scores] of {metric} for all its environments, to average them, but {lacks} has none; "
            f'write [scores."{lacks}"], or choose by `environment`'
        )
    return bool(has)


def _cells(spec: Spec) -> dict[Cell, dict[str, Factor]]:
    """Return the factors of every cell of a study."""
    found: dict[Cell, dict[str, Factor]] = {}
    for strategy in spec.strategies:
        for learner in spec.learners_of(strategy):
            of_learner = _factors("learner", learner, spec)
            of_strategy = _factors("strategy", strategy, spec)
            if both := sorted(set(of_learner) & set(of_strategy)):
                raise ValueError(
                    f"`contrasts` cannot distinguish the factor {both[0]!r} of learners from that of strategies; "
                    f"vary it in only one of them"
                )
            for environment in spec.environments_of(strategy):
                cell = Cell(environment, learner, strategy)
                found[cell] = {"environment": environment, **of_learner, **of_strategy}
    return found


def _factors(kind: Literal["learner", "strategy"], name: str, spec: Spec) -> dict[str, Factor]:
    origin = (spec.origins.learners if kind == "learner" else spec.origins.strategies).get(name)
    if origin is None:
        return {kind: name}
    own = {} if origin.labels else {kind: origin.table}
    reserved = {"environment", "learner", "strategy"} & set(origin.factors)
    if reserved:
        raise ValueError(
            f"`factors` of {origin.table!r} must not use the reserved name {min(reserved)!r}; choose another label"
        )
    return own | origin.factors


def _groups(one: DeclaredContrast, cells: Mapping[Cell, dict[str, Factor]], where: str) -> list[MatchedGroup]:
    sides = [_chosen(getattr(one, side), side, cells, one, where) for side in ("more", "less")]
    if both := set(sides[0]) & set(sides[1]):
        raise ValueError(f"{where}: `more` and `less` must choose different cells, but both choose {min(both)}")
    named = set(one.more) | set(one.less)
    by_rest: dict[frozenset[tuple[str, Factor]], tuple[list[Cell], list[Cell]]] = {}
    for i, side in enumerate(sides):
        for cell in side:
            rest = frozenset((k, v) for k, v in cells[cell].items() if k not in named)
            by_rest.setdefault(rest, ([], []))[i].append(cell)
    whole = [MatchedGroup(tuple(more), tuple(less)) for more, less in by_rest.values() if more and less]
    if not whole:
        first, second = ({k: cells[side[0]][k] for k in cells[side[0]] if k not in named} for side in sides)
        raise ValueError(
            f"{where}: a cell of `more` must agree with one of `less` in all that they do not name, but none does: "
            f"{sides[0][0]} has {_listed(first)}, {sides[1][0]} has {_listed(second)}; add what may differ to `more` "
            f"and `less`"
        )
    return whole


def _listed(factors: Mapping[str, Factor]) -> str:
    return ", ".join(f"{k} {v}" for k, v in factors.items()) or "nothing else"


def _chosen(
    selector: Selector, side: str, cells: Mapping[Cell, dict[str, Factor]], one: DeclaredContrast, where: str
) -> list[Cell]:
    found = list(cells)
    for key, wanted in selector.items():
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        known = _values(key, cells)
        if not known:
            keys = dict.fromkeys(["environment", "learner", "strategy", *(k for f in cells.values() for k in f)])
            raise ValueError(
                f"{where}: `{side}.{key}` must be a factor ({', '.join(keys)})"
                f"{did_you_mean(key, keys).removesuffix('.')}"
            )
        for value in values:
            if value not in known:
                raise ValueError(
                    f"{where}: `{side}.{key}` must be among {', '.join(map(str, known))}, but got {shown(value)}"
                )
        found = [c for c in found if {cells[c].get(key), getattr(c, key, None)} & set(values)]
    if not found:
        raise ValueError(f"{where}: `{side}` must choose at least one cell, but none has {_listed(getattr(one, side))}")
    return found


def _values(key: str, cells: Mapping[Cell, dict[str, Factor]]) -> Iterable[Factor]:
    """Return every value that a factor has; of strategies and learners their names, and their tables' names."""
    found: dict[Factor, None] = {}
    for cell, factors in cells.items():
        if key in factors:
            found[factors[key]] = None
        if key in Cell._fields:
            found[getattr(cell, key)] = None
    return found
