"""The contrasts of a study: ``[[contrasts]]`` and ``[scores]`` of its file, and the cells that each one compares.

A cell is an environment, a learner and a strategy. It has a value of each factor: `environment`; what `vary` gave its
learner and strategy; the labels in ``factors``; and `strategy` and `learner`, the tables that made them (of a strategy
with labels these stand for the table, so that strategies of different tables can be matched).

A study without a ``primary`` contrast corrects all of them together. With one, that one is tested alone, the others
are one family, and those with ``check`` are manipulation checks, outside of it, which guard the verdicts of others.

A contrast's ``more`` and ``less`` choose cells by factors. Cells that agree in every factor that neither of the two
names make a `MatchedGroup`; within it the mean of the cells of ``more`` is compared with that of ``less``. Or
``weights`` gives strategies weights; the weighted sums are averaged over the environments and learners that ``within``
chooses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from replaylab.study.spec.declared_contrasts import RETURN, DeclaredContrast, PublishedStatement, Selector
from replaylab.study.spec.display_text import Answers, Factor
from replaylab.study.spec.errors import did_you_mean, shown
from replaylab.study.spec.study_tables import StudyTables


class Cell(NamedTuple):
    """An environment, learner and strategy of a study."""

    environment: str
    learner: str
    strategy: str

    def __str__(self) -> str:
        return " · ".join(self)


WeightedCell = tuple[Cell, float]
"""A cell with its weight."""


class MatchedGroup(NamedTuple):
    """Cells that agree in every factor that a contrast does not name."""

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
    weighted: tuple[tuple[WeightedCell, ...], ...] = ()
    """Weighted cells of each environment and learner, for a contrast with ``weights``."""

    primary: bool = False
    check: tuple[float, float] | None = None
    guards: tuple[str, ...] | None = None
    sides: tuple[str, str] = ("", "")
    """Names in reports of the side that is counted up, and of the other one."""

    answers: Answers = field(default_factory=Answers)
    published: PublishedStatement | None = None
    log: bool = False
    environment: str | None = None
    """The only environment of a contrast that is asked in each; None: of all its environments."""

    def guards_contrast(self, other: ResolvedContrast) -> bool:
        """Return whether a verdict depends on this manipulation check."""
        here = self.environment is None or other.environment in (None, self.environment)
        return here and (self.guards is None or other.name in self.guards)

    @property
    def versus(self) -> str:
        """Both sides as "A vs B"."""
        return " vs ".join(self.sides)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells it compares; none of a difference of contrasts."""
        direct = [c for group in self.groups for side in group for c in side]
        return tuple(dict.fromkeys(direct + [cell for weighted_cells in self.weighted for cell, _ in weighted_cells]))

    def only_in(self, environment: str) -> ResolvedContrast:
        """Return the contrast of the groups and weighted cells that are all in one environment."""
        return replace(
            self,
            groups=tuple(g for g in self.groups if all(c.environment == environment for side in g for c in side)),
            weighted=tuple(cells for cells in self.weighted if all(c.environment == environment for c, _ in cells)),
        )


def resolve_contrasts(spec: StudyTables) -> list[ResolvedContrast]:
    """Return the study's contrasts, resolved, in the order of the file.

    Raises:
        ValueError: a contrast breaks a rule; the message names it, the rule, the value and the fix.
    """
    cells = _cells(spec) if spec.contrasts else {}
    resolved: dict[str, ResolvedContrast] = {}
    for i, declared in enumerate(spec.contrasts):
        where = f"`contrasts.{i}` ({declared.name})"
        for each in _resolved(declared, cells, resolved, spec, where):
            if each.name in resolved:
                raise ValueError(
                    f"{where} must have a unique name, but an earlier contrast has the same one; rename it"
                )
            resolved[each.name] = each
    _check_roles(resolved.values())
    return list(resolved.values())


def _resolved(
    declared: DeclaredContrast,
    cells: Mapping[Cell, dict[str, Factor]],
    earlier: Mapping[str, ResolvedContrast],
    spec: StudyTables,
    where: str,
) -> list[ResolvedContrast]:
    """Return a contrast, and after it those of each environment, where they are asked for."""
    if declared.of:
        overall = _difference(declared, earlier, spec, where)
        each = [e for e in spec.environments if all(named_in(name, e) in earlier for name in declared.of)]
        if declared.each_environment and not each:
            raise ValueError(
                f"{where} must be of contrasts that are asked in each environment to be so itself, but "
                f"{declared.of[0]!r} and {declared.of[1]!r} are not; write each_environment = true in both"
            )
        if declared.check is not None and not declared.each_environment:
            return [overall]
        return [overall, *(_difference(declared, earlier, spec, where, e) for e in each)]
    overall = _direct(declared, cells, spec, where)
    if not declared.each_environment:
        return [overall]
    parts = []
    for environment in dict.fromkeys(cell.environment for cell in overall.cells):
        alone = {cell: factors for cell, factors in cells.items() if cell.environment == environment}
        part = _direct(declared, alone, spec, where)
        parts.append(_in_environment(part, environment))
    return [overall, *parts]


def _in_environment(contrast: ResolvedContrast, environment: str) -> ResolvedContrast:
    """Return a contrast as that of a single environment, which is never the question of the study."""
    name = named_in(contrast.name, environment)
    return replace(
        contrast, name=name, question="", primary=False, answers=Answers(), published=None, environment=environment
    )


def named_in(name: str, environment: str) -> str:
    """Return what a contrast is called in one environment."""
    return f"{name}, {environment}"


def _check_roles(contrasts: Collection[ResolvedContrast]) -> None:
    primary = [contrast.name for contrast in contrasts if contrast.primary]
    if len(primary) > 1:
        raise ValueError(f"`contrasts` must have one `primary` contrast at most, but {', '.join(primary)} are")
    for contrast in contrasts:
        if contrast.check is not None and not primary:
            raise ValueError(
                f"`contrasts` must have a `primary` one where {contrast.name!r} is a check; write primary = true in one"
            )
        guarded = [other.name for other in contrasts if other.check is None]
        for name in contrast.guards or ():
            if name not in guarded:
                raise ValueError(
                    f"`guards` of the contrast {contrast.name!r} must name contrasts that are no checks "
                    f"({', '.join(guarded)}), but got {name!r}{did_you_mean(name, guarded).removesuffix('.')}"
                )


def _difference(
    declared: DeclaredContrast,
    earlier: Mapping[str, ResolvedContrast],
    spec: StudyTables,
    where: str,
    environment: str | None = None,
) -> ResolvedContrast:
    assert declared.of is not None
    for name in declared.of:
        if name not in earlier:
            raise ValueError(
                f"{where}: `of` must name two contrasts above it ({', '.join(earlier) or 'none is defined yet'}), but "
                f"got {name!r}{did_you_mean(name, earlier).removesuffix('.')}"
            )
    a, b = (earlier[name if environment is None else named_in(name, environment)] for name in declared.of)
    for key in ("metric", "measure", "unit", "log"):
        if getattr(a, key) != getattr(b, key):
            raise ValueError(
                f"{where}: `of` must name contrasts of one {key}, but {a.name!r} has {getattr(a, key)} and {b.name!r} "
                f"{getattr(b, key)}"
            )
    resolved = ResolvedContrast(
        *(declared.name, declared.question, a.metric, a.measure, None, declared.equivalence, a.unit, a.scored),
        of=(a.name, b.name),
        log=a.log,
        **_role(declared, spec),
    )
    return resolved if environment is None else _in_environment(resolved, environment)


def _role(declared: DeclaredContrast, spec: StudyTables) -> dict[str, Any]:
    """Return the fields of a contrast for its role, the names of its sides and its answers.

    The answers of the study are those of its primary contrast, or without one of its first.
    """
    main = next((other for other in spec.contrasts if other.primary), spec.contrasts[0])
    answers = declared.answers or (spec.answers if declared.name == main.name else None) or Answers()
    role = {key: getattr(declared, key) for key in ("primary", "check", "guards", "published")}
    return role | {"sides": _sides(declared, spec), "answers": answers}


def _sides(declared: DeclaredContrast, spec: StudyTables) -> tuple[str, str]:
    """Return what reports call both sides of a contrast: as declared, or by what distinguishes them."""
    if declared.sides is not None:
        return declared.sides
    if declared.of is not None:
        return declared.of
    if declared.weights:
        up, down = (
            " + ".join(spec.title_of(name) for name, weight in declared.weights.items() if sign * weight > 0)
            for sign in (1, -1)
        )
        return up, down
    more, less = (_described(a, b, spec) for a, b in ((declared.more, declared.less), (declared.less, declared.more)))
    return more, less


def _described(side: Selector, other: Selector, spec: StudyTables) -> str:
    """Return the values by which one side is not the other one; by their titles, those of strategies and learners."""
    distinct = {key: value for key, value in side.items() if other.get(key) != value} or side
    parts = []
    for key, wanted in distinct.items():
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        titles = {"strategy": spec.titles.strategies, "learner": spec.titles.learners}.get(key, {})
        texts = [f"{v:,}" if type(v) is int else titles.get(str(v), str(v)) for v in values]
        parts.append(("" if key in ("strategy", "learner", "environment") else f"{key} ") + " or ".join(texts))
    return ", ".join(parts)


def _direct(
    declared: DeclaredContrast, cells: Mapping[Cell, dict[str, Factor]], spec: StudyTables, where: str
) -> ResolvedContrast:
    """Return a contrast of cells, with its unit and everything else filled in."""
    metric = declared.metric or RETURN
    better = declared.better or ("higher" if metric == RETURN else None)
    common = (declared.name, declared.question, metric, declared.measure or "area", better, declared.equivalence)
    rest = {"unit": "", "scored": False, "log": declared.log, **_role(declared, spec)}
    if declared.weights:
        rest["weighted"] = _weighted(declared, cells, spec, where)
    else:
        rest["groups"] = tuple(_groups(declared, cells, where))
    resolved = ResolvedContrast(*common, **rest)
    if declared.log:
        return replace(resolved, unit=f"ln {metric}")
    scored = _scored({cell.environment for cell in resolved.cells}, metric, spec, where)
    return replace(resolved, unit="score" if scored else "return" if metric == RETURN else metric, scored=scored)


def _weighted(
    declared: DeclaredContrast, cells: Mapping[Cell, dict[str, Factor]], spec: StudyTables, where: str
) -> tuple[tuple[WeightedCell, ...], ...]:
    """Return the weighted cells of each environment and learner."""
    for name in declared.weights:
        if name not in spec.strategies:
            raise ValueError(
                f"{where}: `weights` must name strategies ({', '.join(spec.strategies)}), but got {name!r}"
                f"{did_you_mean(name, spec.strategies).removesuffix('.')}"
            )
    chosen = _chosen(declared.within, "within", cells, declared, where)
    places = dict.fromkeys((cell.environment, cell.learner) for cell in chosen)
    weighted = []
    for environment, learner in places:
        weighted_cells = tuple((Cell(environment, learner, name), weight) for name, weight in declared.weights.items())
        if all(cell in chosen for cell, _ in weighted_cells):
            weighted.append(weighted_cells)
    if not weighted:
        raise ValueError(
            f"{where}: `weights` must name strategies that all run in one environment with one learner, but "
            f"{', '.join(declared.weights)} never do"
        )
    return tuple(weighted)


def _scored(environments: set[str], metric: str, spec: StudyTables, where: str) -> bool:
    has = {e for e in environments if e in spec.scores and spec.scores[e].metric == metric}
    if (has and has != environments) or (metric == RETURN and not has and len(environments) > 1):
        lacks = min(environments - has)
        raise ValueError(
            f"{where} must have [scores] of {metric} for all its environments, to average them, but {lacks} has none; "
            f'write [scores."{lacks}"], or choose by `environment`'
        )
    return bool(has)


def _cells(spec: StudyTables) -> dict[Cell, dict[str, Factor]]:
    """Return the factors of every cell of a study."""
    factors: dict[Cell, dict[str, Factor]] = {}
    for cell in map(Cell._make, spec.cells):
        of_learner = _factors("learner", cell.learner, spec)
        of_strategy = _factors("strategy", cell.strategy, spec)
        if both := sorted(set(of_learner) & set(of_strategy)):
            raise ValueError(
                f"`contrasts` cannot distinguish the factor {both[0]!r} of learners from that of strategies; "
                f"vary it in only one of them"
            )
        factors[cell] = {"environment": cell.environment, **of_learner, **of_strategy}
    return factors


def _factors(kind: Literal["learner", "strategy"], name: str, spec: StudyTables) -> dict[str, Factor]:
    origin = (spec.origins.learners if kind == "learner" else spec.origins.strategies).get(name)
    if origin is None:
        return {kind: name}
    of_table = {} if origin.labels else {kind: origin.table}
    reserved = {"environment", "learner", "strategy"} & set(origin.factors)
    if reserved:
        raise ValueError(
            f"`factors` of {origin.table!r} must not use the reserved name {min(reserved)!r}; choose another label"
        )
    return of_table | origin.factors


def _groups(declared: DeclaredContrast, cells: Mapping[Cell, dict[str, Factor]], where: str) -> list[MatchedGroup]:
    sides = [_chosen(getattr(declared, side), side, cells, declared, where) for side in ("more", "less")]
    if both := set(sides[0]) & set(sides[1]):
        raise ValueError(f"{where}: `more` and `less` must choose different cells, but both choose {min(both)}")
    named = set(declared.more) | set(declared.less)
    by_rest: dict[frozenset[tuple[str, Factor]], tuple[list[Cell], list[Cell]]] = {}
    for i, side in enumerate(sides):
        for cell in side:
            rest = frozenset((k, v) for k, v in cells[cell].items() if k not in named)
            by_rest.setdefault(rest, ([], []))[i].append(cell)
    matched = [MatchedGroup(tuple(more), tuple(less)) for more, less in by_rest.values() if more and less]
    if not matched:
        first, second = ({k: cells[side[0]][k] for k in cells[side[0]] if k not in named} for side in sides)
        raise ValueError(
            f"{where}: a cell of `more` must agree with one of `less` in all that they do not name, but none does: "
            f"{sides[0][0]} has {_listed(first)}, {sides[1][0]} has {_listed(second)}; add what may differ to `more` "
            f"and `less`"
        )
    return matched


def _listed(factors: Mapping[str, Factor]) -> str:
    return ", ".join(f"{k} {v}" for k, v in factors.items()) or "nothing else"


def _chosen(
    selector: Selector, side: str, cells: Mapping[Cell, dict[str, Factor]], declared: DeclaredContrast, where: str
) -> list[Cell]:
    chosen = list(cells)
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
        chosen = [c for c in chosen if {cells[c].get(key), getattr(c, key, None)} & set(values)]
    if not chosen:
        raise ValueError(
            f"{where}: `{side}` must choose at least one cell, but none has {_listed(getattr(declared, side))}"
        )
    return chosen


def _values(key: str, cells: Mapping[Cell, dict[str, Factor]]) -> Iterable[Factor]:
    """Return every value that a factor has; of strategies and learners their names, and their tables' names."""
    values: dict[Factor, None] = {}
    for cell, factors in cells.items():
        if key in factors:
            values[factors[key]] = None
        if key in Cell._fields:
            values[getattr(cell, key)] = None
    return values
