"""Messages for a wrong study file: the file, the key's path, the rule, the value, the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from replaylab.arguments import did_you_mean as did_you_mean

_RULES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "too_short": "must have at least one entry",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "string_pattern_mismatch": "must be made of letters, digits and _ . + -, and start with a letter or digit",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} letters",
    "too_long": "must have at most {max_length} letters",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt:g}",
    "less_than": "must be below {lt:g}",
}
"""Pydantic's error types whose own words are about Python rather than about the file."""


_EXAMPLES = {
    "name": 'name = "mine"',
    "environments": 'environments = ["CartPole-v1"]',
    "seeds": "seeds = 10",
    "budget": "[budget] with steps = 50_000, or episodes = 300",
    "evaluation": "[evaluation] with every = 1_000 (steps, or episodes with a budget in episodes)",
    "evaluation.every": "every = 1_000 (steps, or episodes with a budget in episodes)",
    "learners": '[learners.dqn] with type = "dqn"',
    "strategies": '[strategies.uniform] with type = "uniform"',
    "type": 'type = "uniform", or another name',
}
"""Lines to add if a key is missing, by its path or by its last part."""

_MISSPELT = re.compile(r"unknown key `((?:.*\.)?)[^.`]*`; did you mean `(.*?)`")
"""The table, with a dot behind it, and the suggested key of a message by `unknown_key`."""

SCHEDULE = 'such as {type = "linear", start = 0.4, end = 1.0}'
"""An example of a schedule."""


def shown(value: object) -> str:
    """Return a value in the form of the message: one line, not too long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key(source: str, path: str, allowed: Iterable[str]) -> str:
    """Return the message for a key that does not exist at this place."""
    keys = list(allowed)
    listed = f"Allowed here: {', '.join(keys)}." if keys else "No options are allowed here."
    return f"{source}: unknown key `{path}`{did_you_mean(path.rpartition('.')[2], keys)} {listed}"


def sentence(source: str, rule: str) -> str:
    """Return the message for a rule between several keys."""
    return f"{source}: {rule}" if rule.endswith("?") else f"{source}: {rule}."


def unknown_name(source: str, path: str, value: object, allowed: Iterable[str]) -> str:
    """Return the message for a value that is not one of the known names."""
    names = list(allowed)
    return (
        f"{source}: `{path}` must be one of {', '.join(names)}, but got {shown(value)}{did_you_mean(str(value), names)}"
    )


def first_fault(error: Exception) -> str:
    """Return in one line what is wrong with a record that a program wrote: where, and the rule."""
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        return f"{where}: {fault['msg']}" if where else fault["msg"]
    return str(error).partition("\n")[0]


def explain(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """Return one message for everything pydantic found, a line each."""
    faults = (dict(fault) for fault in error.errors(include_url=False))
    lines = list(dict.fromkeys(_line(fault, model, source) for fault in faults if not _follows(fault)))
    misspelt = {f"{table}{key}" for line in lines for table, key in _MISSPELT.findall(line)}
    return "\n".join(line for line in lines if line not in {_missing(source, key) for key in misspelt})


def _follows(fault: dict[str, Any]) -> bool:
    """Whether an error only follows from another: a list is too short, since an entry of it is wrong."""
    value = fault["input"]
    return fault["type"] == "too_short" and isinstance(value, list | tuple | dict) and len(value) > 0


def _line(fault: dict[str, Any], model: type[BaseModel], source: str) -> str:
    keys = [str(part) for part in fault["loc"] if part != "[key]"]
    if keys[:1] == ["titles"] and len(keys) > 1:  # a title with values of `vary` is too long
        keys = [*keys[1:], "title"]
    path = ".".join(keys)
    if fault["type"] == "extra_forbidden":
        return unknown_key(source, path, _allowed(model, keys[:-1]))
    if fault["type"] == "missing":
        return _missing(source, path)
    rule = rule_of(fault)
    if not path:
        return sentence(source, rule)
    return f"{source}: `{path}` {rule}, but got {shown(fault['input'])}."


def rule_of(fault: Mapping[str, Any]) -> str:
    """Return the rule that an error of pydantic is about, in the words of a study file: ``must be a whole number``."""
    if fault["type"] in _RULES:
        return _RULES[fault["type"]].format(**fault.get("ctx", {}))
    rule = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return rule if rule.startswith("must") or rule[0] == "`" or rule[0].isupper() else f"must be {rule}"


def _missing(source: str, path: str) -> str:
    example = _EXAMPLES.get(path) or _EXAMPLES.get(path.rpartition(".")[2])
    return f"{source}: `{path}` is missing. Add it{f': {example}' if example else ''}."


def _allowed(model: type[BaseModel], path: list[str]) -> list[str]:
    """Keys of the table at ``path`` below the model; lists and tables of tables are walked through."""
    at: Any = model
    for key in path:
        at = at.model_fields[key].annotation if _is_table(at) else next(filter(_is_table, get_args(at)), None)
    at = at if _is_table(at) else next(filter(_is_table, get_args(at)), None)
    return [] if at is None else list(at.model_fields)


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
