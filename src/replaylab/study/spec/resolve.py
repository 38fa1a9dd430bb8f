"""From the study file as it is written to the study: `resolve`.

``vary`` makes ordinary strategies and learners with ordinary names, as if each had been written by hand. Their origins
are stored beside them, because contrasts select by them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from replaylab.errors import SpecError
from replaylab.learners.training.configuration import IN_STUDIES, Fitting
from replaylab.study.spec import components
from replaylab.study.spec.components import LEARNERS, STRATEGIES, TRANSFORMS, Catalogue, Part, with_arguments
from replaylab.study.spec.custom_components import code_of_file
from replaylab.study.spec.errors import did_you_mean, sentence, shown
from replaylab.study.spec.study_tables import (
    Origin,
    Origins,
    Overrides,
    ResolvedOverrides,
    StudyTables,
    made_of,
    module_of,
)
from replaylab.study.spec.toml_model import LearnerTable, SettingsTable, StudyToml


def resolve(file: StudyToml, source: str) -> StudyTables:
    """Return the study that a file describes, with everything filled in.

    Args:
        file: The study as written.
        source: The file's name, for messages.

    Raises:
        SpecError: Two strategies or learners get one name or title, a key of ``vary`` is no option or is set twice, a
            strategy names no learner, or a part is invalid. The message names the key, the rule, the value and the fix.
        ValidationError: A name or a title that ``vary`` makes is too long.
    """
    learners = _expanded(file.learners, "learners", LEARNERS, source)
    strategies = _expanded(file.strategies, "strategies", STRATEGIES, source)
    origins = Origins(strategies=_origins(strategies), learners=_origins(learners))
    learner_parts = {k: components.resolve(v.part, LEARNERS, f"learners.{k}", source) for k, v in learners.items()}
    strategy_parts = {
        k: components.resolve(v.part, STRATEGIES, f"strategies.{k}", source) for k, v in strategies.items()
    }
    overrides = {}
    for name, variant in strategies.items():
        table = file.strategies[variant.table]
        written = {key: getattr(table, key) for key in Overrides.model_fields if key in table.model_fields_set}
        if table.learners is not None:
            written["learners"] = _chosen(table.learners, learners, f"strategies.{name}.learners", source)
        if written:
            overrides[name] = Overrides(**written)
    environments = {k: file.learners[v.table].environments for k, v in learners.items()}
    modules = {e: module_of(made_of(e, file.env_options.get(e, {}))[0]) for e in file.environments}
    as_written = {key: getattr(file, key) for key in StudyToml.model_fields}
    combined = {
        "learners": learner_parts,
        "strategies": strategy_parts,
        "titles": {"strategies": _titles(strategies), "learners": _titles(learners)},
        "overrides": overrides,
        "overridden": resolve_overrides(learner_parts, overrides, source),
        "learner_environments": {k: some for k, some in environments.items() if some is not None},
        "origins": origins,
        "environment_code": {e: code_of_file(module) for e, module in modules.items() if module},
    }
    return StudyTables(**as_written | _fitting_defaults(file) | combined)


def _fitting_defaults(file: StudyToml) -> dict[str, SettingsTable]:
    """Return the tables of settings with the defaults that depend on the budget, by the smallest one."""
    budgets = [file.budget, *(table.budget for table in file.strategies.values() if table.budget)]
    smallest = min(budgets, key=lambda budget: budget.total)
    tables: dict[str, SettingsTable] = {}
    for setting in IN_STUDIES.values():
        table: SettingsTable = getattr(file, setting.table)
        if isinstance(setting.default, Fitting) and setting.key not in table.model_fields_set:
            period = setting.default.within(smallest.total, smallest.unit)
            tables[setting.table] = tables.get(setting.table, table).model_copy(update={setting.key: period})
    return tables


def resolve_overrides(
    learners: Mapping[str, Part], overrides: Mapping[str, Overrides], source: str
) -> dict[str, dict[str, ResolvedOverrides]]:
    """Return what strategies change, with every option filled in, by strategy and learner.

    Args:
        learners: The study's, resolved.
        overrides: As written, by strategy.
        source: The file, for messages.

    Raises:
        SpecError: An option is unknown, or a value breaks a rule.
    """
    return {
        strategy: {
            name: _overridden(learner, changes, f"strategies.{strategy}", source)
            for name, learner in learners.items()
            if changes.learners is None or name in changes.learners
        }
        for strategy, changes in overrides.items()
        if changes.learner or changes.transforms
    }


def _overridden(learner: Part, changes: Overrides, where: str, source: str) -> ResolvedOverrides:
    """Return a strategy's overrides of a learner, and its transforms; an n-step return has the learner's discount."""
    changed = None
    if changes.learner:
        # Without the digits of the modules that an algorithm's arguments name, since its changes may name others.
        options = {k: v for k, v in learner.options.items() if (learner.type, k) != ("sb3", "code")} | changes.learner
        before, after = learner.options.get("arguments"), changes.learner.get("arguments")
        if isinstance(before, dict) and isinstance(after, dict):
            options["arguments"] = before | after
        changed = components.resolve(Part.of(learner.type, options), LEARNERS, f"{where}.learner", source)
    gamma = with_arguments((changed or learner).options).get("gamma", 0.99)
    transforms = [
        Part.of(part.type, {"gamma": gamma} | part.options) if part.type == "n_step" else part
        for part in changes.transforms
    ]
    return ResolvedOverrides(
        learner=changed,
        transforms=tuple(components.resolve(part, TRANSFORMS, f"{where}.transforms", source) for part in transforms),
    )


class _Variant(NamedTuple):
    """A strategy or learner: a table of the file with one combination of the values in its ``vary``."""

    table: str
    part: Part
    title: str | None
    origin: Origin | None
    """None without ``vary`` and ``factors``."""


def _titles(variants: Mapping[str, _Variant]) -> dict[str, str]:
    return {name: variant.title for name, variant in variants.items() if variant.title is not None}


def _origins(variants: Mapping[str, _Variant]) -> dict[str, Origin]:
    return {name: variant.origin for name, variant in variants.items() if variant.origin is not None}


def _expanded(tables: Mapping[str, LearnerTable], where: str, catalogue: Catalogue, source: str) -> dict[str, _Variant]:
    """Return one variant for each combination of the values in ``vary``, by name."""
    variants: dict[str, _Variant] = {}
    titles: dict[str, str] = {}
    for table_name, table in tables.items():
        if rule := _fault_of_grid(table, f"{where}.{table_name}", catalogue):
            raise SpecError(sentence(source, rule))
        for name, variant in _each(table_name, table):
            if name in variants:
                raise SpecError(
                    f"{source}: `{where}` must have different names, but {name!r} appears twice, from `vary` of "
                    f"{table_name!r}; rename a table."
                )
            variants[name] = variant
            title = variant.title or name
            if title in titles:
                raise SpecError(
                    f"{source}: `{where}.{name}.title` must be unique among {where}, but {title!r} is also that of "
                    f"{titles[title]!r}; change one of the two."
                )
            titles[title] = name
    return variants


def _each(table_name: str, table: LearnerTable) -> Iterator[tuple[str, _Variant]]:
    for values in product(*table.vary.values()):
        chosen = dict(zip(table.vary, values, strict=True))
        title, origin = table.title, None
        if chosen and title is not None:
            title += f" ({', '.join(f'{k} {in_name(v)}' for k, v in chosen.items())})"
        if {"vary", "factors"} & table.model_fields_set:
            varied = {k: v if isinstance(v, str | int | float) else in_name(v) for k, v in chosen.items()}
            origin = Origin(table=table_name, varied=varied, labels=table.factors)
        part = Part.of(table.type, table.options | chosen)
        yield (
            ".".join([table_name, *(f"{k}-{in_name(v)}" for k, v in chosen.items())]),
            _Variant(table_name, part, title, origin),
        )


def _fault_of_grid(table: LearnerTable, where: str, catalogue: Catalogue) -> str:
    """Return the rule that ``vary`` and ``factors`` of a table break; "" for none."""
    if both := sorted(set(table.vary) & set(table.factors)):
        return f"`{where}.factors` must not repeat a key of `vary`, but repeats {both[0]!r}; remove it"
    allowed, written = components.option_names(table.type, catalogue), {"type": table.type, **table.options}
    for key, values in table.vary.items():
        path = f"`{where}.vary.{key}`"
        if allowed is not None and key not in allowed:
            return (
                f"{path} must be an option of {table.type} ({', '.join(allowed) or 'it has none'})"
                f"{did_you_mean(key, allowed).removesuffix('.')}"
            )
        if key in written:
            return f"{path} must not be set in the table as well, but is {shown(written[key])} there; remove one"
        texts = [in_name(value) for value in values]
        if twice := sorted({text for text in texts if texts.count(text) > 1}):
            return f"{path} must list each value once, but {twice[0]} appears more than once"
    return ""


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


def _chosen(wanted: tuple[Any, ...], learners: Mapping[str, _Variant], path: str, source: str) -> tuple[str, ...]:
    """Return the learners that a strategy refers to: by name, by table, or by values of factors."""
    chosen = set()
    for entry in wanted:
        if isinstance(entry, dict):
            factors = {name: variant.origin.factors if variant.origin else {} for name, variant in learners.items()}
            fit = {name for name, of in factors.items() if all(k in of and of[k] == v for k, v in entry.items())}
        else:
            fit = {name for name, variant in learners.items() if entry in (name, variant.table)}
        if not fit:
            raise SpecError(
                f"{source}: `{path}` must name learners ({', '.join(learners)}) or values that `vary` gave them, but "
                f"got {shown(entry)}."
            )
        chosen |= fit
    return tuple(name for name in learners if name in chosen)
