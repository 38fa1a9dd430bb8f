"""``vary`` in a study file: one table stands for many strategies or learners, one for each combination of values.

The results are ordinary tables with ordinary names, as if each had been written by hand. The origin of each name is
stored beside them (`Origin`): contrasts select by it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from replaylab.study.spec.components import Catalogue, option_names
from replaylab.study.spec.display_text import Line, Table
from replaylab.study.spec.errors import did_you_mean, shown

Factor = bool | int | float | Line
"""A value that contrasts select by; lists and schedules are represented by their text in names."""

_LABELS: TypeAdapter[dict[str, Factor]] = TypeAdapter(dict[str, Factor])


class Origin(Table):
    """The origin of a strategy or learner: its table, and its values of varied keys."""

    table: str
    """The table of the study file that made it."""

    varied: dict[str, Factor] = {}
    """Its value of each key in ``vary``."""

    labels: dict[str, Factor] = {}
    """``factors`` of its table."""

    @property
    def factors(self) -> dict[str, Factor]:
        """Everything it can be selected by, apart from its names."""
        return self.varied | self.labels


_Made = tuple[str, Any, Origin | None]


class ExpandedTables(NamedTuple):
    """Tables without the keys ``vary``, ``factors`` and ``title``, by name, and the contents of those keys."""

    tables: dict[str, Any]
    origins: dict[str, dict[str, Any]]
    """Origins of tables that had ``vary`` or ``factors``, by name."""

    titles: dict[str, Any]
    """Titles by name; the title of a table with ``vary`` is followed by the values of the combination."""


def expanded(tables: Mapping[str, Any], where: str, catalogue: Catalogue) -> ExpandedTables:
    """Return one table for each combination of the values in ``vary``.

    Args:
        tables: ``strategies`` or ``learners`` of a study file.
        where: which of both, for messages.
        catalogue: the types allowed here.

    Raises:
        ValueError: ``vary`` or ``factors`` breaks a rule, or two tables get one name or title.
    """
    expansion = ExpandedTables({}, {}, {})
    for name, table in tables.items():
        if not isinstance(table, dict) or not {"vary", "factors"} & set(table):
            each: list[_Made] = [(name, table, None)]
        else:
            each = list(_each(name, table, f"{where}.{name}", catalogue))
        for new, variant, origin in each:
            if new in expansion.tables:
                raise ValueError(
                    f"`{where}` must have different names, but {new!r} appears twice, from `vary` of {name!r}; "
                    f"rename a table"
                )
            expansion.tables[new] = variant
            if origin is not None:
                expansion.origins[new] = origin.model_dump()
            if isinstance(variant, dict) and "title" in variant:
                expansion.tables[new] = {k: v for k, v in variant.items() if k != "title"}
                expansion.titles[new] = _title(variant["title"], origin)
    _check_titles(expansion, where)
    return expansion


def _title(title: Any, origin: Origin | None) -> Any:
    """Return a title with the values that ``vary`` gave its table."""
    values = ", ".join(f"{k} {in_name(v)}" for k, v in origin.varied.items()) if origin else ""
    return f"{title} ({values})" if values and isinstance(title, str) else title


def _check_titles(expansion: ExpandedTables, where: str) -> None:
    """Raise unless reports can distinguish all strategies, or all learners."""
    seen: dict[str, str] = {}
    for name in expansion.tables:
        title = str(expansion.titles.get(name, name))
        if title in seen:
            raise ValueError(
                f"`{where}.{name}.title` must be unique among {where}, but {title!r} is also that of {seen[title]!r}; "
                f"change one of the two"
            )
        seen[title] = name


def _each(name: str, table: dict[str, Any], where: str, catalogue: Catalogue) -> Iterator[_Made]:
    rest = {k: v for k, v in table.items() if k not in ("vary", "factors")}
    labels = _labels(table.get("factors", {}), where)
    grid = _grid(table.get("vary", {}), rest, where, catalogue)
    if both := sorted(set(grid) & set(labels)):
        raise ValueError(f"`{where}.factors` must not repeat a key of `vary`, but repeats {both[0]!r}; remove it")
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        new = ".".join([name, *(f"{k}-{in_name(v)}" for k, v in chosen.items())])
        varied = {k: v if isinstance(v, str | int | float) else in_name(v) for k, v in chosen.items()}
        yield new, rest | chosen, Origin(table=name, varied=varied, labels=labels)


def _labels(labels: Any, where: str) -> dict[str, Factor]:
    try:
        return _LABELS.validate_python(labels, strict=True)
    except ValidationError:
        raise ValueError(
            f"`{where}.factors` must be a table of numbers, strings and booleans, such as "
            f'{{ choice = "td" }}, but got {shown(labels)}'
        ) from None


def _grid(vary: Any, rest: dict[str, Any], where: str, catalogue: Catalogue) -> dict[str, list[Any]]:
    if not isinstance(vary, dict):
        raise ValueError(f"`{where}.vary` must be a table of lists, such as {{ gamma = [0.9, 0.99] }}, but got {vary}")
    allowed = option_names(rest.get("type"), catalogue)
    for key, values in vary.items():
        path = f"`{where}.vary.{key}`"
        if allowed is not None and key not in allowed:
            raise ValueError(
                f"{path} must be an option of {rest['type']} ({', '.join(allowed) or 'it has none'})"
                f"{did_you_mean(key, allowed).removesuffix('.')}"
            )
        if key in rest:
            raise ValueError(
                f"{path} must not be set in the table as well, but is {shown(rest[key])} there; remove one of them"
            )
        if not isinstance(values, list) or not values:
            raise ValueError(f"{path} must be a list with at least one value, but got {shown(values)}")
        try:
            for text in filter(lambda value: isinstance(value, str), values):
                _LABELS.validate_python({key: text}, strict=True)
        except ValidationError:
            raise ValueError(f"{path} must have texts of one line, but got {shown(values)}") from None
        texts = [in_name(v) for v in values]
        if twice := sorted({t for t in texts if texts.count(t) > 1}):
            raise ValueError(f"{path} must list each value once, but {twice[0]} appears more than once")
    return vary


def in_name(value: object) -> str:
    """Return a value in the form of a name: short, and safe in a file's name.

    Examples:
        >>> [in_name(v) for v in (0.0, 50_000, True, [64, 64], {"type": "linear", "start": 0.4, "end": 1.0})]
        ['0', '50000', 'true', '64x64', 'linear-0.4-1']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        return "-".join(map(in_name, value.values()))
    if isinstance(value, list | tuple):
        return "x".join(map(in_name, value))
    return re.sub(r"[^A-Za-z0-9_+-]", "-", str(value))


def chosen_learners(
    wanted: object, origins: Mapping[str, Mapping[str, Any]], names: list[str], where: str
) -> list[str]:
    """Return the learners that a strategy's ``learners`` refers to: by name, by table, or by varied values.

    Args:
        wanted: the list in the file.
        origins: of the learners.
        names: of all learners, as `expanded` made them.
        where: the strategy, for messages.

    Raises:
        ValueError: it is no list, or an entry is none of the learners.
    """
    if not isinstance(wanted, list | tuple) or not wanted:
        raise ValueError(f"`{where}.learners` must be a list with at least one learner, but got {shown(wanted)}")
    tables = {n: str(origins.get(n, {}).get("table", n)) for n in names}
    chosen: list[str] = []
    for entry in wanted:
        if isinstance(entry, dict):
            has = {n: Origin.model_validate(origins[n]).factors if n in origins else {} for n in names}
            fit = [n for n in names if all(k in has[n] and has[n][k] == v for k, v in entry.items())]
        else:
            fit = [n for n in names if entry in (n, tables[n])]
        if not fit:
            raise ValueError(
                f"`{where}.learners` must name learners ({', '.join(names)}) or values that `vary` gave them, "
                f"but got {shown(entry)}"
            )
        chosen += [n for n in fit if n not in chosen]
    return [n for n in names if n in chosen]
