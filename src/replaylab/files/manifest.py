"""A folder of files, and the JSON file with a checksum that lists them and is checked member by member."""

import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from replaylab.errors import ConfigError, ReplayError, SnapshotError, StorageError
from replaylab.files import npy

BLOCK = 2**20
"""Bytes read or written at a time."""

PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)
"""Names of files that lie in the folder itself, on every system."""


def folder_of(path: Any, call: str) -> Path:
    """Return the folder that a caller names.

    Raises:
        ConfigError: It is no path.
        StorageError: It cannot be looked up.
    """
    try:
        name = os.fspath(path)
        os.fsencode(name)
        sound = isinstance(name, str) and name != "" and "\0" not in name
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise ConfigError(f"`path` of `{call}` must be the path of a folder, but got {path!r}")
    try:
        return Path(name).resolve()
    except (OSError, RuntimeError) as error:  # a circle of links
        raise StorageError(f"{path} cannot be looked up: {error}") from error


@contextmanager
def reading(path: Path, what: str = "snapshot") -> Iterator[None]:
    """Turn errors of reading a folder into `SnapshotError` (not as this library writes it) or `StorageError`."""
    try:
        yield
    except ReplayError:
        raise
    except OSError as error:
        raise StorageError(f"the {what} in {path} cannot be read: {error}") from error
    except (
        *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, EOFError, SyntaxError),
        *(RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise SnapshotError(f"{path} is not a {what} that this library wrote: {error!r}; use another copy") from error


def read(file: Path, kind: str, what: str) -> dict[str, Any]:
    """Return a manifest of this format; its checksum and its version are not checked yet.

    Raises:
        SnapshotError: There is none.
        StorageError: It cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else None
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error}") from error
    except ValueError as error:
        raise SnapshotError(f"{file} is damaged: {error}; use another copy") from None
    if text is None:
        raise SnapshotError(
            f"{file.parent} holds no {what}: there is no {file.name} in it; pass the folder save() wrote"
        )
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{file} is damaged: {error}; use another copy") from None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise SnapshotError(f"{file} is not part of a {kind}; pass the folder save() wrote")
    if type(manifest.get("version")) is not int:
        raise SnapshotError(f"{file} is damaged: it has no version; use another copy")
    return manifest


def check_seal(file: Path, manifest: dict[str, Any]) -> None:
    """Raise `SnapshotError` unless a manifest's checksum is its own."""
    if manifest.get("crc32") != seal(manifest):
        raise SnapshotError(f"{file} is damaged: it is not what was written; use another copy")


def seal(manifest: Mapping[str, Any]) -> int:
    """Return the CRC-32 of all members but itself, as JSON with sorted keys, no spaces and ASCII alone."""
    members = {name: value for name, value in manifest.items() if name != "crc32"}
    return zlib.crc32(json.dumps(members, sort_keys=True, separators=(",", ":")).encode())


def write(new: Path, manifest: dict[str, Any]) -> None:
    """Write a sealed manifest to a file that is not there yet."""
    # Sealed as it reads back: keys that are no strings become some, and then sort in another order.
    members = json.loads(json.dumps(manifest))
    with new.open("x", encoding="utf-8") as out:
        json.dump(members | {"crc32": seal(members)}, out, indent=1)


def mentions(file: Path, name: str) -> bool:
    """Whether there is a manifest that contains this name: so a write that was interrupted had already replaced it."""
    try:
        return name.encode() in file.read_bytes()
    except OSError:
        return False


def listed(file: Path) -> dict[str, Any]:
    """Return what a manifest says of a file."""
    crc, size = 0, 0
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return {"file": file.name, "bytes": size, "crc32": crc}


def check_listed(one: Any, suffix: str) -> None:
    """Raise unless this is what a manifest says of a file of this kind, and the file is in the folder itself.

    Raises:
        ValueError, TypeError, KeyError: It is something else.
    """
    if not PLAIN.fullmatch(one["file"]) or not one["file"].endswith(suffix):
        raise ValueError(f"a file is called {one['file']!r:.80}")
    whole(one["bytes"], 2**62)
    whole(one["crc32"], 2**32 - 1)


def whole(value: Any, most: int) -> int:
    """Return a whole number from 0 to `most`.

    Raises:
        ValueError: It is something else.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.80} where a whole number from 0 to {most} should be")
    return value


def read_arrays(path: Path, one: dict[str, Any], what: str = "snapshot") -> dict[str, npt.NDArray[Any]]:
    """Return all arrays of a listed ``.npz`` file, after checking it.

    Raises:
        SnapshotError: It is missing or damaged.
    """
    with opened(path, one, what) as source:
        content = source.read(one["bytes"] + 1)
    check_crc(path, one, zlib.crc32(content), len(content), what)
    return npy.read_arrays(BytesIO(content))


def opened(path: Path, one: dict[str, Any], what: str = "snapshot") -> IO[bytes]:
    """Return a listed file to be read, if it is there and has its length.

    Raises:
        SnapshotError: It is missing, or of another length.
    """
    file = path / one["file"]
    if not file.is_file():
        raise SnapshotError(f"the {what} is not complete: {file} is missing")
    source: IO[bytes] = file.open("rb")
    size = os.fstat(source.fileno()).st_size
    if size != one["bytes"]:
        source.close()
        check_crc(path, one, -1, size, what)
    return source


def check_crc(path: Path, one: dict[str, Any], crc: int, size: int, what: str = "snapshot") -> None:
    """Raise `SnapshotError` unless a listed file has this checksum and length."""
    if crc != one["crc32"] or size != one["bytes"]:
        raise SnapshotError(f"the {what} is damaged: {path / one['file']} is not what was written; use another copy")
