"""Options ``key=value`` of ``replaylab train``, as the tables of a study file."""

import tomllib
from collections.abc import Iterable
from typing import Any

from replaylab.errors import SpecError
from replaylab.study.spec.components import Catalogue, Part, resolve

GAMES = 64
"""Copies of an Atari game that a learner on a device steps together."""


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


def on_device(
    device: str,
    env_id: str,
    learner_options: Iterable[str],
    transforms: list[dict[str, Any]],
    env_options: dict[str, Any],
) -> tuple[str, ...]:
    """Return further options of a learner that learns on a device.

    Of an Atari game that has no backend, it also adds to the options of the environment, and, without a stack of
    frames, to the transforms.

    Args:
        device: PyTorch's name of it.
        env_id: The environment.
        learner_options: The learner's options ``key=value``.
        transforms: Tables of transforms.
        env_options: Options of the environment.
    """
    from replaylab.envs.atari import is_atari

    options = [f'device="{device}"', 'replay="device"']
    if is_atari(env_id.rpartition(":")[2]) and env_options.setdefault("backend", "ale") == "ale":
        if not any(option.startswith("envs=") for option in learner_options):
            options.append(f"envs={GAMES}")
        frames = env_options.get("frame_stack", 4)
        if frames != 1 and not any(transform["type"] == "frame_stack" for transform in transforms):
            transforms.append({"type": "frame_stack", "length": frames, "padding": "zero", "stacked_input": True})
    return tuple(options)


def _option(text: str, where: str) -> tuple[str, Any]:
    """Split ``key=value``; a value that is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(f"train: {where} take KEY=VALUE, but got {text!r}.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
