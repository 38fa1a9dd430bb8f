"""Custom modules for machines that lack them: collected, packed into bytes, and unpacked there.

A study names them as ``"module:Class"`` or ``"module:Environment-v0"``. Modules that are neither in the standard
library nor installed are sent: the file of a module, the folder of a package (without ``__init__.py`` only its
modules), and such modules that these import. The files have the same bytes there, so their hashes in the ids of the
runs are the same (`study.spec.custom_components`).

Ray's own ``runtime_env`` cannot replace this (measured with Ray 2.60). It accepts local modules only in ``ray.init``,
but tasks with different modules run in one connection, which the caller may have opened. It also leaves out files that
``.gitignore`` names.
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
"""The most bytes of modules that are sent, before packing."""

_NAMED = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*:[^:]")
_INSTALLED = ("site-packages", "dist-packages")


def modules_named(value: Any) -> set[str]:
    """Return the first parts of all module names in plain data: ``"lab.parts:Mine"``, or that class, names lab."""
    if isinstance(value, str):
        match = _NAMED.match(value)
        return {match[1]} if match else set()
    if isinstance(value, type | FunctionType):
        return {value.__module__.partition(".")[0]}
    if isinstance(value, partial):
        return modules_named([value.func, value.args, value.keywords])
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return {name for part in inside for name in modules_named(part)}


def packed(names: set[str]) -> bytes:
    """Return the custom modules among these, and the custom modules they import, packed; b"" without any.

    The same files give the same bytes.

    Args:
        names: Names of modules and packages, without dots.

    Raises:
        ConfigError: The modules are too large.
    """
    files, visited, waiting = dict[str, bytes](), set[str](), {*names}
    while waiting:
        visited.add(name := waiting.pop())
        for path, content in _files_of(name):
            files[path] = content
            if sum(map(len, files.values())) > LARGEST:
                raise ConfigError(
                    f"the custom modules that travel to Ray's workers must have at most {LARGEST:,} bytes, but "
                    f"{name} has more; move its data elsewhere, or install it on every node"
                )
            if path.endswith(".py"):
                waiting |= _imported(content) - visited
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            archive.writestr(zipfile.ZipInfo(path), files[path], zipfile.ZIP_DEFLATED)
    return target.getvalue() if files else b""


def unpacked(digest: str, content: Callable[[], bytes]) -> Path:
    """Return a folder with the modules, which is created if this machine has none yet.

    Args:
        digest: SHA-256 of the packed modules.
        content: Returns the packed modules.
    """
    user = str(os.getuid()) if hasattr(os, "getuid") else ""
    user_folder = Path(tempfile.gettempdir(), f"replaylab-code-{user}")
    user_folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and user_folder.stat().st_uid != os.getuid():
        raise ConfigError(
            f"{user_folder} must belong to this user, since code is run from there; remove it, or set TMPDIR"
        )
    target = user_folder / digest
    if not target.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=user_folder))
        try:
            with zipfile.ZipFile(io.BytesIO(content())) as archive:
                archive.extractall(temporary)
            temporary.rename(target)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if not (isinstance(error, OSError) and target.is_dir()):  # or another worker was first
                raise
    return target


def digest_of(content: bytes) -> str:
    """Return the SHA-256 that identifies packed modules."""
    return hashlib.sha256(content).hexdigest()


def _files_of(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a user's module by their paths relative to its import location; nothing for other modules."""
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
    hidden = (".", "__pycache__", *_INSTALLED)
    for slot in map(Path, spec.submodule_search_locations):
        for folder, subfolders, files in os.walk(slot) if _is_own(slot) else ():
            subfolders[:] = sorted(name for name in subfolders if not name.startswith(hidden))
            for file in sorted(files):
                path = Path(folder, file)
                if path.is_file() and (spec.origin or path.suffix == ".py"):
                    yield str(Path(name, path.relative_to(slot)).as_posix()), path.read_bytes()


def _is_own(path: Path) -> bool:
    """Whether a file or folder is the user's, rather than Python's or an installed package's."""
    resolved = path.resolve()
    if any(part in _INSTALLED for part in resolved.parts):
        return False
    return not any(resolved.is_relative_to(sysconfig.get_path(slot)) for slot in ("stdlib", "platstdlib"))


def _imported(source: bytes) -> set[str]:
    """Return the top-level names of all modules that a source imports; an empty set if it is not valid Python."""
    try:
        parts = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = {alias.name for part in parts if isinstance(part, ast.Import) for alias in part.names}
    names |= {part.module for part in parts if isinstance(part, ast.ImportFrom) and part.module and not part.level}
    return {name.partition(".")[0] for name in names}
