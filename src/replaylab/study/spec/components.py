"""Named parts of a study file, such as ``{type = "prioritized", alpha = 0.7}``, as objects.

A part's options are the fields of a frozen dataclass (a sampler, a learner, a schedule): the dataclass is
the only place that knows their names, types, defaults and rules. Short names are those of the classes that
`replaylab.replay` and `replaylab.research` export, so a new sampler or transform has one; a new learner needs a line in
the table here.
Custom samplers and learners need no line: ``type = "my_module:MySampler"`` (`custom_components`).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from typing import Any, Self, get_args, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from replaylab import replay, research
from replaylab.arguments import unchanged_since
from replaylab.errors import ConfigError, SpecError
from replaylab.extras import needs
from replaylab.learners.dqn.optimizers import Optimizer
from replaylab.study.spec import custom_components as custom
from replaylab.study.spec.display_text import Table
from replaylab.study.spec.errors import SCHEDULE, rule_of, shown, unknown_key, unknown_name

Catalogue = Mapping[str, str]

NONE = "none"
"""The text for None in study files and on command lines, because TOML has no None."""


def short_name(name: str) -> str:
    """Return what study files call a class: ByStepsToEnd is by_steps_to_end; LAP, ReLo and LaBER stay one word."""
    return re.sub("(?<=[A-Za-z])(?=[A-Z][a-z]{2})|(?<=[a-z]{2})(?=[A-Z])", "_", name).lower()


def _public(base: type) -> dict[str, str]:
    """Return the configurations of a kind that the replay library and its research package export, by short name."""
    configurations = {
        short_name(name): f"{package.__name__}:{name}"
        for package in (replay, research)
        for name in package.__all__
        if isinstance(kind := getattr(package, name), type)
        and issubclass(kind, base)
        and dataclasses.is_dataclass(kind)
    }
    return dict(sorted(configurations.items()))


SAMPLERS: Catalogue = _public(replay.Sampler)
WHOLE = (replay.Mixture, replay.FreshFirst)
"""Samplers that are no parts of another."""

PARTS: Catalogue = {
    name: path
    for name, path in SAMPLERS.items()
    if (kind := pkgutil.resolve_name(path)).in_core and not kind.no_closed_form and kind not in WHOLE
}
"""Sampler types of the ``parts`` of a mixture."""

TAPES: Mapping[str, type[research.Tape]] = {"tape": research.Tape, "by_steps_to_end": research.ByStepsToEnd}
"""Types of strategies that learn from the draws of another strategy, each with its sampler."""

SHIFT = 1
"""A seed replays the draws of the seed this many places further in its chunk."""

STRATEGIES: Catalogue = {
    **SAMPLERS,
    "none": "replaylab.replay:Online",
    **dict.fromkeys(TAPES, "replaylab.study.spec.components:TapeOf"),
    "laber": "replaylab.learners.api.agent_laber:AgentLaBER",
    "oracle": "replaylab.learners.tabular.oracle:EnvOracle",
}
"""Sampler types of ``[strategies.*]``: every sampler of the library; "none" is learning without replay, another word
for "online". `LaBER` asks the agents for TD errors, the oracle the environment for its exact values; a tape is of
another strategy's draws, and so are the bins of "by_steps_to_end"."""

LEARNERS: Catalogue = {
    "dqn": "replaylab.learners:DQN",
    "dqn_as_published": "replaylab.learners:DQNAsPublished",
    "q_learning": "replaylab.learners:QLearning",
    "sarsa": "replaylab.learners:Sarsa",
    "expected_sarsa": "replaylab.learners:ExpectedSarsa",
    "sb3": "replaylab.learners:SB3",
}
"""Learner types of ``[learners.*]``."""

ALONE = ("sb3",)
"""Those that train each seed in its own run."""

TRANSFORMS: Catalogue = {
    **_public(replay.Transform),
    "hindsight": "replaylab.learners.training.env_hindsight:EnvHindsight",
}
"""Transform types, in a strategy's ``transforms``; hindsight asks the environment what a goal is worth."""

SCHEDULES: Catalogue = _public(replay.Schedule)
"""Schedule types, wherever an option takes a schedule; a bare number is a constant one."""

OPTIMIZERS: Catalogue = {
    "adam": "replaylab.learners:Adam",
    "rmsprop": "replaylab.learners:RMSprop",
    "sgd": "replaylab.learners:SGD",
}
"""Optimizer types, of learners with networks; a bare name is one with its defaults."""


@dataclasses.dataclass(frozen=True)
class TapeOf:
    """A strategy that replays the draws of another one, as a study file declares it.

    Attributes:
        of: The strategy whose draws are replayed.
    """

    of: str = ""


class Part(Table, extra="allow"):
    """A type with its options, as plain data. After `resolve` it holds every option, defaults included."""

    type: str

    @property
    def options(self) -> dict[str, Any]:
        """The table's other keys."""
        return self.model_extra or {}

    @classmethod
    def of(cls, kind: str, options: Mapping[str, Any]) -> Self:
        """Make a part from its type and options."""
        return cls.model_validate({**options, "type": kind})


def resolve(part: Part, catalogue: Catalogue, where: str, source: str) -> Part:
    """Check a part by building it, and return it with every option spelled out.

    Args:
        part: as written in the file.
        catalogue: the types allowed here.
        where: key path in the file, for messages.
        source: the file, for messages.

    Raises:
        SpecError: the type or an option is unknown, or a value breaks a rule.
    """
    if not custom.is_custom(part.type):
        return Part.of(part.type, _plain(_build(part.type, part.options, catalogue, where, source)))
    if custom.changed(part.type, part.options):  # results of other code than is here: they can be read, not trained
        return part
    options = {key: value for key, value in part.options.items() if key != custom.CODE}
    plain = _plain(_build(part.type, options, catalogue, where, source))
    try:
        json.dumps(plain)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"{source}: `{where}`: every field of {part.type} must be plain data (numbers, texts, lists, tables), so "
            f"that it identifies a run: {error}."
        ) from error
    return Part.of(part.type, plain | {custom.CODE: custom.code_of(part.type)})


def build(part: Part, catalogue: Catalogue) -> Any:
    """Return the object a resolved part stands for: a sampler or a learner.

    Raises:
        SpecError: it is custom, and its code has changed since the part was resolved.
    """
    if not custom.is_custom(part.type):
        return _build(part.type, part.options, catalogue, part.type, "study")
    if change := custom.changed(part.type, part.options):
        raise SpecError(change)
    options = {key: value for key, value in part.options.items() if key != custom.CODE}
    return _build(part.type, options, catalogue, part.type, "study")


def with_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a learner's options, and among them the arguments of an algorithm of another library, if it is one."""
    arguments = options.get("arguments")
    return {**options, **arguments} if isinstance(arguments, Mapping) else dict(options)


def option_names(kind: object, catalogue: Catalogue) -> list[str] | None:
    """Return the options of a type of the catalogue, or None where it has no such type."""
    if not isinstance(kind, str) or kind not in catalogue:
        return None
    return [f.name for f in dataclasses.fields(_load(kind, catalogue, kind, "study")) if f.init]


def _load(kind: str, catalogue: Catalogue, where: str, source: str) -> type:
    if custom.is_custom(kind) and catalogue in (STRATEGIES, LEARNERS):
        return custom.load(kind, "sampler" if catalogue is STRATEGIES else "learner", where, source)
    if kind not in catalogue:
        raise SpecError(unknown_name(source, f"{where}.type", kind, catalogue))
    module, _, name = catalogue[kind].partition(":")
    with needs(f"`{where}`", "lab"):
        loaded: type = getattr(importlib.import_module(module), name)
    return loaded


def _build(kind: str, options: Mapping[str, Any], catalogue: Catalogue, where: str, source: str) -> Any:
    cls = _load(kind, catalogue, where, source)
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    try:
        hints = get_type_hints(cls)
    except Exception as error:  # of a custom class
        raise SpecError(f"{source}: the types of the fields of {kind} cannot be read: {error}.") from error
    values = {}
    for key, value in options.items():
        if key not in fields:
            raise SpecError(unknown_key(source, f"{where}.{key}", fields))
        values[key] = _option(value, hints[key], f"{where}.{key}", source)
    try:
        return cls(**values)
    except ConfigError as error:
        raise SpecError(f"{source}: `{where}`: {error}") from error
    except TypeError as error:
        missing = [f.name for f in dataclasses.fields(cls) if _required(f) and f.name not in values]
        raise SpecError(f"{source}: `{where}` needs {', '.join(f'`{m}`' for m in missing) or error}.") from error
    except (Exception, SystemExit) as error:
        if not custom.is_custom(kind):
            raise
        raise SpecError(f"{source}: `{where}` cannot be made: {custom.last_words(error)}") from error


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _option(value: Any, hint: Any, where: str, source: str) -> Any:
    """Check one option against its field's type; a table with a ``type`` is a schedule."""
    optional = type(None) in get_args(hint)
    if optional and value == NONE:
        return None
    if hint == tuple[replay.Sampler, ...]:
        return _parts(value, where, source)
    if hint is replay.Sampler:
        if not isinstance(value, Mapping):
            raise SpecError(f"{source}: `{where}` must be a table with a `type`, but got {shown(value)}.")
        return _typed(value, PARTS, where, source)
    if hint is Optimizer:
        return _optimizer(value, where, source)
    if _takes_schedule(hint):
        if isinstance(value, Mapping):
            if "type" not in value:
                raise SpecError(f"{source}: `{where}` must have a `type`, {SCHEDULE}, but got {shown(dict(value))}.")
            return _typed(value, SCHEDULES, where, source)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"{source}: `{where}` must be a number or a schedule, {SCHEDULE}, but got {shown(value)}.")
        try:
            number = float(value)
        except OverflowError:
            raise SpecError(f"{source}: `{where}` must be within a float's range, but got {shown(value)}.") from None
        return number if float in get_args(hint) else _build("constant", {"value": number}, SCHEDULES, where, source)
    try:  # as JSON, where a list may be a tuple, but true is not a number, nor is "3"
        return TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except PydanticUserError as error:  # a custom class
        raise SpecError(f"{source}: `{where}` has a type that no study file can give, {hint}.") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        rule = rule_of(fault) + (f' or "{NONE}"' if optional else "")
        path = ".".join([where, *(str(index) for index in fault["loc"] if isinstance(index, int))])
        raise SpecError(f"{source}: `{path}` {rule}, but got {shown(fault['input'])}.") from error


def _typed(table: Mapping[str, Any], catalogue: Catalogue, where: str, source: str) -> Any:
    options = {k: v for k, v in table.items() if k != "type"}
    return _build(str(table.get("type")), options, catalogue, where, source)


def _optimizer(value: Any, where: str, source: str) -> Any:
    table = {"type": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        names = ", ".join(f'"{name}"' for name in OPTIMIZERS)
        raise SpecError(f"{source}: `{where}` must be {names} or a table with a `type`, but got {shown(value)}.")
    return _typed(table, OPTIMIZERS, where, source)


def _parts(value: Any, where: str, source: str) -> tuple[Any, ...]:
    """Return the samplers of a mixture."""
    if not isinstance(value, list | tuple) or not all(isinstance(table, Mapping) for table in value):
        raise SpecError(f"{source}: `{where}` must be a list of tables with a `type` each, but got {shown(value)}.")
    return tuple(_typed(table, PARTS, f"{where}[{i}]", source) for i, table in enumerate(value))


def _takes_schedule(hint: Any) -> bool:
    return any(isinstance(t, type) and issubclass(t, replay.Schedule) for t in (hint, *get_args(hint)))


def _plain(part: Any) -> dict[str, Any]:
    """Options of a frozen dataclass as plain data; schedules become tables with a ``type``."""
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if unchanged_since(field, value):
            continue
        plain[field.name] = (
            [_plain_value(element) for element in value] if isinstance(value, tuple) else _plain_value(value)
        )
    return plain


def _plain_value(value: Any) -> Any:
    return {"type": _type_of(value), **_plain(value)} if dataclasses.is_dataclass(value) else value


def _type_of(value: object) -> str:
    """Return the short name of a schedule, an optimizer or a mixture's part; of a custom class its module and name."""
    kind = type(value)
    if isinstance(value, Optimizer):
        return kind.__name__.lower()
    in_library = kind.__module__.startswith("replaylab.")
    return short_name(kind.__name__) if in_library else f"{kind.__module__}:{kind.__name__}"


def json_data(table: BaseModel) -> dict[str, Any]:
    """Return a table as it comes back from JSON: lists for tuples, but infinities and NaN as they are.

    Pydantic's ``mode="json"`` makes None of numbers that are not finite; Python's JSON writes ``Infinity`` and ``NaN``,
    and reads them.

    Examples:
        >>> json_data(Part.of("uniform", {"limits": (0.0, float("inf"))}))
        {'type': 'uniform', 'limits': [0.0, inf]}
    """
    read: dict[str, Any] = json.loads(json.dumps(table.model_dump()))
    return read
