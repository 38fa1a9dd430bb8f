"""Checks of the paths that a command writes to, made before the command starts its work."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

from replaylab.arguments import checked, place
from replaylab.errors import SpecError

Command = TypeVar("Command")


def with_local_paths(command: Command) -> Command:
    """Return a command with its paths expanded, such as ``--out=~/runs``, which a shell leaves as it is.

    Raises:
        ConfigError: One is a URL.
    """
    if not is_dataclass(command) or isinstance(command, type):
        return command
    values = {option.name: getattr(command, option.name) for option in fields(command)}
    paths = {name: value for name, value in values.items() if isinstance(value, Path)}
    checked_paths = {name: checked(name, path, place("a file or folder")) for name, path in paths.items()}
    return replace(command, **checked_paths)


def check_place(command: str, option: str, path: Path | None, *, is_file: bool) -> None:
    """Raise SpecError if nothing can be written there, by writing something; folders are made."""
    if path is None:
        return
    folder = path.parent if is_file else path
    if is_file and path.is_dir():
        raise SpecError(f"{command}: --{option} must be a file, but {path} is a folder; name a file in it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
        if path.is_file():
            path.open("ab").close()
    except (OSError, ValueError) as error:
        raise SpecError(f"{command}: --{option} {path} cannot be written: {error}") from error
