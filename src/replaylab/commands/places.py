"""Places that a command is to write to, looked at before anything else is done."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile

from replaylab.errors import SpecError


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
