"""The user's own modules, on their way to machines that lack them: found, packed into bytes, and unpacked there.

A study names them as ``"module:Class"`` or ``"module:Environment-v0"``. What lies neither in the standard library nor
among the installed packages travels: the file of a module, the folder of a package (of one without ``__init__.py``,
which any folder is, its modules alone), and whatever these import of the same kind. The files are the same bytes there,
so is their hash in the ids of the runs (`study.spec.custom_components`).
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from replaylab.errors import ConfigError

LARGEST = 100 * 2**20
"""Bytes that may travel, before they are packed."""

_NAMED = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*:[^:]")
_INSTALLED = ("site-packages", "dist-packages")
_LEFT = ("__pycache__", *_INSTALLED)


def modules_named(value: Any) -> set[str]:
    """Return the first parts of all module names in plain data: ``"lab.parts:Mine"``, or that class, names lab."""
    if isinstance(value, str):
        found = _NAMED.match(value)
        return {found[1]} if found else set()
    if isinstance(value, type | FunctionType):
        return {value.__module__.partition(".")[0]}
    if isinstance(value, partial):
        return modules_named([value.func, value.args, value.keywords])
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return {name for one in inside for name in modules_named(one)}


def packed(names: set[str]) -> bytes:
    """Return the user's own modules among these, and what they import of the same kind; b"" where there are none.

    The same files give the same bytes.

    Args:
        names: of modules and packages, without dots.

    Raises:
        ConfigError: they are too large.
    """
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    waiting = sorted(names, reverse=True)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for path, content in _files_of(name):
            files[path] = content
            if sum(map(len, files.values())) > LARGEST:
                raise ConfigError(
                    f"The modules of your own that travel to Ray's workers must have at most {LARGEST:,} bytes, but "
                    f"{name} has more; move its data elsewhere, or install it on every node"
                )
            if path.endswith(".py"):
                waiting += sorted(_imported(content) - seen, reverse=True)
    if not files:
        return b""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            archive.writestr(zipfile.ZipInfo(path), files[path], zipfile.ZIP_DEFLATED)
    return target.getvalue()


def unpacked(digest: str, content: Callable[[], bytes]) -> Path:
    """Return a folder with the modules, which is made where this machine has none yet.

    Args:
        digest: SHA-256 of what was packed.
        content: returns what was packed.
    """
    user = str(os.getuid()) if hasattr(os, "getuid") else ""
    ours = Path(tempfile.gettempdir(), f"replaylab-code-{user}")
    ours.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and ours.stat().st_uid != os.getuid():
        raise ConfigError(f"{ours} must belong to this user, since code is run from there; remove it, or set TMPDIR")
    target = ours / digest
    if not target.is_dir():
        made = Path(tempfile.mkdtemp(dir=ours))
        try:
            with zipfile.ZipFile(io.BytesIO(content())) as archive:
                archive.extractall(made)
            made.rename(target)
        except BaseException as error:
            shutil.rmtree(made, ignore_errors=True)
            if not (isinstance(error, OSError) and target.is_dir()):  # or another worker was first
                raise
    return target


def digest_of(content: bytes) -> str:
    """Return what packed modules are known by."""
    return hashlib.sha256(content).hexdigest()


def _files_of(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a module of the user's own, by their paths from where it is imported; of others none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return
    if name == "replaylab" or spec is None or name in sys.stdlib_module_names:
        return
    if spec.submodule_search_locations is None:
        if spec.origin and spec.has_location and _is_own(Path(spec.origin)):
            yield Path(spec.origin).name, Path(spec.origin).read_bytes()
        return
    for place in map(Path, spec.submodule_search_locations):
        for folder, inner, found in os.walk(place) if _is_own(place) else ():
            inner[:] = sorted(one for one in inner if not one.startswith((".", *_LEFT)))
            for file in sorted(found):
                path = Path(folder, file)
                if path.is_file() and (spec.origin or path.suffix == ".py"):
                    yield str(Path(name, path.relative_to(place)).as_posix()), path.read_bytes()


def _is_own(path: Path) -> bool:
    """Whether a file or folder is the user's, rather than Python's or an installed package's."""
    resolved = path.resolve()
    if any(part in _INSTALLED for part in resolved.parts):
        return False
    return not any(resolved.is_relative_to(sysconfig.get_path(place)) for place in ("stdlib", "platstdlib"))


def _imported(source: bytes) -> set[str]:
    """Return the first parts of the names of all modules that a module imports; none of what is not Python."""
    try:
        parts = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found = {alias.name for part in parts if isinstance(part, ast.Import) for alias in part.names}
    found |= {part.module for part in parts if isinstance(part, ast.ImportFrom) and part.module and not part.level}
    return {name.partition(".")[0] for name in found}
