"""Custom samplers and learners in a study file: ``type = "my_module:MySampler"``; environments' modules.

The study and each of its workers import the module from the current folder or from installed packages. The
class is a frozen dataclass, whose fields are the options of the study file. The bytes of the module's file are part of
what identifies a run, so changed code never mixes with old results; modules that it imports are not looked into. A file
that was changed after this process imported it is imported again, so that the code is that of the bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from replaylab.errors import SpecError

CODE = "code_sha256"
"""The option that a resolved custom part has besides its fields: the first digits of its module's SHA-256."""

_TAKEN_BY_BOTH = {"type", "title", "vary", "factors", "environments", CODE}
TAKEN = {
    "sampler": _TAKEN_BY_BOTH | {"transforms", "learner", "budget", "learners"},
    "learner": _TAKEN_BY_BOTH,
}
"""Keys in tables of strategies and learners that are no options of the class."""


def is_custom(kind: str) -> bool:
    """Return whether a part's type names a class in a module."""
    return ":" in kind


def load(kind: str, role: Literal["sampler", "learner"], where: str, source: str) -> type:
    """Return the class that a type names.

    Raises:
        SpecError: there is no such module or class, or it is not a sampler or learner.
    """
    module_name, _, name = kind.partition(":")
    rule = f'{source}: `{where}.type` must name a {role} as "module:Class", but got {kind!r}'
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise SpecError(f"{rule}.")
    try:
        module = _imported(module_name)
    except (Exception, SystemExit) as error:
        if _is_absent(module_name, error):
            raise SpecError(f"{rule}: {_missing(module_name)}") from error
        raise SpecError(f"{rule}: {module_name} cannot be imported: {last_words(error)}") from error
    if module_name == "__main__":
        raise SpecError(f"{rule}: workers cannot import __main__. Write the class into its own file.")
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        raise SpecError(f"{rule}: {module_name} has no class {name!r}.")
    _check(cls, role, rule)
    return cls


def _imported(name: str) -> ModuleType:
    """Import a module; if its file has changed since the import, its code is run again, from the bytes."""
    before = sys.modules.get(name)
    module = importlib.import_module(name)
    file = Path(getattr(module, "__file__", None) or "")
    if name == "__main__" or file.suffix != ".py":
        _IMPORTED[name] = module, _digest(file.read_bytes() if file.is_file() else b"")
        return module
    source = file.read_bytes()
    known, imported = _IMPORTED.get(name, (None, ""))
    changed = imported != _digest(source) if known is module else before is module and file.stat().st_mtime >= _BEGAN
    if changed:
        # not importlib.reload: Python's cache takes a file of the same second and length for the one before
        exec(compile(source, file, "exec"), vars(module))
    _IMPORTED[name] = module, _digest(source)
    return module


_IMPORTED: dict[str, tuple[ModuleType, str]] = {}
"""Imported modules, and the digests of their files at import."""


def _began() -> float:
    """Return when this process began, or, if the system does not report it, when this module was imported."""
    try:
        return Path(f"/proc/{os.getpid()}").stat().st_mtime
    except OSError:
        return time.time()


_BEGAN = _began()
"""A file that was written later may differ from what was imported before."""


def _digest(source: bytes) -> str:
    """Return the first digits of the SHA-256."""
    return hashlib.sha256(source).hexdigest()[:16]


def _is_absent(module: str, error: BaseException) -> bool:
    """Return whether the module itself is missing, not something that it imports."""
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    return absent is not None and f"{module}.".startswith(f"{absent}.")


def _missing(module: str) -> str:
    """Return that a module was not found, where it was looked for, and the fix."""
    return (
        f"no module {module!r} was found in {Path.cwd()} or among the installed packages. Run the command where "
        f"{module.replace('.', '/')}.py is, or install it."
    )


def last_words(error: BaseException) -> str:
    """Return the error of a user's code in one line, with its file and line number."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    message = str(error).partition("\n")[0]
    return f"{at}{type(error).__name__}: {message}" if message else f"{at}{type(error).__name__}"


def _check(cls: type, role: str, rule: str) -> None:
    if role == "sampler":
        from replaylab.replay import Sampler

        if not issubclass(cls, Sampler):
            raise SpecError(f"{rule}: {cls.__name__} is not derived from replaylab.replay.CustomSampler.")
    elif not hasattr(cls, "agents") and not (hasattr(cls, "train") and hasattr(cls, "early")):
        raise SpecError(
            f"{rule}: {cls.__name__} has no method `agents` (see replaylab.learners.Learner), nor `train` and "
            f"`early` (see replaylab.learners.WholeAlgorithm)."
        )
    if "__dataclass_fields__" not in vars(cls):
        raise SpecError(f"{rule}: {cls.__name__} is not a dataclass. Write @dataclass(frozen=True) above it.")
    taken = TAKEN[role] & set(vars(cls)["__dataclass_fields__"])
    if taken:
        raise SpecError(
            f"{rule}: its field `{min(taken)}` has a name that study files use for something else. Rename the field."
        )


def code_of(kind: str) -> str:
    """Return the first digits of the SHA-256 of the module's file, as `load` has imported it."""
    return _IMPORTED[kind.partition(":")[0]][1]


def code_of_file(module: str) -> str:
    """Return the first digits of the SHA-256 of a module's file, without importing it; "" if the file is missing."""
    try:
        module_spec = importlib.util.find_spec(module)
    except Exception:  # of a package that it is in, or of a name that is invalid: making the environment raises
        return ""
    file = Path((module_spec and module_spec.origin) or "")
    return _digest(file.read_bytes()) if file.is_file() else ""


def changed(kind: str, options: Mapping[str, Any]) -> str:
    """Return the error message if the code of resolved options is missing or differs now; "" otherwise."""
    module = kind.partition(":")[0]
    if CODE not in options:
        return ""
    try:
        _imported(module)
    except (Exception, SystemExit) as error:
        return _missing(module) if _is_absent(module, error) else f"{module} cannot be imported: {last_words(error)}"
    return "" if code_of(kind) == options[CODE] else _other_code(module)


def check_file(module: str, code: str) -> None:
    """Raise if a module's file is missing, or is not the one that a run was defined with.

    Args:
        module: Its name; it is not imported.
        code: `code_of_file` when the run was defined.

    Raises:
        SpecError: It is missing, or differs.
    """
    code_now = code_of_file(module)
    if code_now != code:
        raise SpecError(_other_code(module) if code_now else _missing(module))


def _other_code(module: str) -> str:
    """Return a message that a module's file differs from the one that a run was defined with, and the fix."""
    module_spec = importlib.util.find_spec(module)
    return (
        f"the module {module} ({module_spec and module_spec.origin}) has changed since this run was defined. Restore "
        f"it, or define the run again: `replaylab study run` with the study file, `replaylab train` without --resume."
    )
