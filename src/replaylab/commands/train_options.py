"""Options ``key=value`` of ``replaylab train``, as the tables of a study file."""

import tomllib
from collections.abc import Iterable
from typing import Any

from replaylab.errors import SpecError
from replaylab.study.spec.components import Catalogue, Part, resolve


def part_of(kind: str, options: Iterable[str], catalogue: Catalogue, where: str) -> dict[str, Any]:
    """Return the table of a learner or a strategy.

    Args:
        kind: A type of the catalogue, or ``module:Class``.
        options: ``key=value``, values as in TOML.
        catalogue: Its types.
        where: The option of the command line that names it.

    Raises:
        SpecError: An option is unknown or breaks a rule.
    """
    part = Part.of(kind, options_of(options, f"{where}-options"))
    return resolve(part, catalogue, where, "train").model_dump()


def transform_of(text: str) -> dict[str, Any]:
    """Return the table of a transform: ``type`` or ``type:key=value,key=value``, values as in TOML."""
    kind, _, options = text.partition(":")
    return {"type": kind, **options_of([option for option in options.split(",") if option], "--transforms")}


def options_of(texts: Iterable[str], where: str) -> dict[str, Any]:
    """Return options ``key=value`` of a command line as a table; each name may be given once."""
    pairs = [_option(text, where) for text in texts]
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"train: {where} must give each name once, but got {twice[0]} {names.count(twice[0])} times")
    return dict(pairs)


def _option(text: str, where: str) -> tuple[str, Any]:
    """Split ``key=value``; a value that is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(f"train: {where} take KEY=VALUE, but got {text!r}.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
