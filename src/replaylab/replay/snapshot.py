"""Saving a buffer and loading it again: an open format, written so that a kill at any moment loses nothing.

A snapshot is a folder:

* ``manifest.json`` says what the buffer is and lists every other file with its length and CRC-32, and its own;
* ``rows-….npy``: stretches of rows, each a NumPy array of a structured dtype with one entry a slot;
* ``packed-….npy``: a segment of a compressed field, whose rows hold references into it (see `docs/compression.md`);
* ``state-….npz``: everything else as plain one-dimensional arrays: next ids, random streams, priorities.

Files are never changed, only replaced: `save` writes new ones under new names, makes them durable, and then
puts a new manifest in place of the old by one atomic rename. Whatever moment a kill picks, the manifest there
is whole and all files it lists are. A second save to the same folder writes only the stretches that changed.
"""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.errors import ReplayError, SnapshotError

FORMAT, VERSION = "replaylab-snapshot", 2
Packed = tuple[tuple[int, int, int], npt.NDArray[np.uint8]]
"""A segment of a compressed field: its (replica, field, serial) and its bytes."""

STRETCH = 32 * 2**20
"""About how many bytes of rows go into one file."""


def write(
    path: Path,
    about: dict[str, Any],
    state: dict[str, npt.NDArray[Any]],
    rows: list[npt.NDArray[np.uint8]],
    row_dtype: np.dtype[Any],
    known: str | None,
    packed: list[Packed],
) -> str:
    """Write a snapshot and return its token.

    Args:
        path: The folder; made if it is not there.
        about: What the buffer is, as JSON values.
        state: All arrays but the rows.
        rows: The rows of each replica as bytes (C, stride).
        row_dtype: What one row is.
        known: Token of the snapshot this buffer last wrote to or read from this folder: if it is still the one
            there, stretches of rows that did not change since are left as they are.
        packed: The segments of compressed fields.
    """
    path.mkdir(parents=True, exist_ok=True)
    old = _manifest(path) if (path / "manifest.json").exists() else None
    before = old if old is not None and known is not None and old["token"] == known else None
    # Compressed values put together anew changed rows whose steps did not change.
    moves = sum(int(array[2]) for name, array in state.items() if ".packed." in name and name.endswith(".segments"))
    if before is not None and before.get("moves", 0) != moves:
        before = None
    token = uuid4().hex
    next_ids = [int(state[f"replica{r}.next_id"][0]) for r in range(len(rows))]
    width = max(1, STRETCH // row_dtype.itemsize)
    stretches = []
    for r, (memory, next_id) in enumerate(zip(rows, next_ids, strict=True)):
        kept = {tuple(one["slots"]): one for one in before["rows"] if one["replica"] == r} if before else {}
        first_new = before["next_ids"][r] if before else 0
        for start in range(0, min(next_id, len(memory)), width):
            slots = (start, min(start + width, next_id, len(memory)))
            if slots in kept and not _touched(slots, first_new, next_id, len(memory)):
                stretches.append(kept[slots])
                continue
            name = f"rows-{r}-{start}-{token}.npy"
            stretches.append(
                {"replica": r, "slots": list(slots), **_write_rows(path / name, memory[slice(*slots)], row_dtype)}
            )
    segments = _write_packed(path, packed, before.get("packed", []) if before else [], token)
    name = f"state-{token}.npz"
    with (path / name).open("wb") as file:
        np.savez(file, allow_pickle=False, **state)
        _settle(file)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "token": token,
        "about": about,
        "next_ids": next_ids,
        "rows": stretches,
        "packed": segments,
        "moves": moves,
        "state": _listed(path / name),
    }
    _settle_folder(path)
    with (path / "manifest.json.new").open("w") as file:
        json.dump(manifest | {"crc32": _seal(manifest)}, file, indent=1)
        _settle(file)
    (path / "manifest.json.new").replace(path / "manifest.json")
    _settle_folder(path)
    files = {one["file"] for one in [*stretches, *segments, manifest["state"]]}
    for other in [*path.glob("rows-*.npy"), *path.glob("packed-*.npy"), *path.glob("state-*.npz")]:
        if other.name not in files:
            other.unlink()
    return token


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a snapshot's manifest.

    Raises:
        SnapshotError: There is none, or it is of another format.
    """
    if not (path / "manifest.json").is_file():
        raise SnapshotError(f"{path} holds no snapshot: there is no manifest.json in it; pass the folder save() wrote")
    return _manifest(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Call what a snapshot holds damaged, where it is not made as `write` makes it."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ReplayError):
            raise
        raise SnapshotError(f"{path} is no snapshot that this library wrote: {error!r}; use another copy") from error


def read_state(path: Path, manifest: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays but the rows, after checking the file."""
    _check(path, manifest["state"])
    with np.load(path / manifest["state"]["file"], allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def read_rows(
    path: Path, manifest: dict[str, Any], rows: list[npt.NDArray[np.uint8]], row_dtype: np.dtype[Any]
) -> None:
    """Read all rows into a buffer's own memory, checking every file."""
    for one in manifest["rows"]:
        _check(path, one)
        stored = np.load(path / one["file"], mmap_mode="r", allow_pickle=False)
        into = rows[one["replica"]][slice(*one["slots"])]
        if stored.dtype != row_dtype or len(stored) != len(into):
            raise SnapshotError(
                f"{path / one['file']} holds rows of another layout than this buffer's; it cannot be read"
            )
        into[...] = stored.view(np.uint8).reshape(into.shape)


def read_packed(path: Path, manifest: dict[str, Any], packed: list[Packed]) -> None:
    """Read the segments of compressed fields into a buffer's own memory, checking every file."""
    listed = {tuple(one["segment"]): one for one in manifest.get("packed", [])}
    for number, memory in packed:
        if number not in listed or listed[number]["used"] != memory.size:
            raise SnapshotError(f"the snapshot is not complete: it lists no file for segment {number}")
        _check(path, listed[number])
        stored = np.load(path / listed[number]["file"], mmap_mode="r", allow_pickle=False)
        if stored.dtype != np.uint8 or stored.size != memory.size:
            raise SnapshotError(f"{path / listed[number]['file']} does not hold the bytes of a segment")
        memory[...] = stored.reshape(memory.shape)


def _write_rows(file: Path, memory: npt.NDArray[np.uint8], row_dtype: np.dtype[Any]) -> dict[str, Any]:
    with file.open("wb") as out:
        header = {"descr": np.lib.format.dtype_to_descr(row_dtype), "fortran_order": False, "shape": (len(memory),)}
        np.lib.format.write_array_header_1_0(out, header)
        out.write(memory.data)
        _settle(out)
    return _listed(file)


def _write_packed(path: Path, packed: list[Packed], before: list[dict[str, Any]], token: str) -> list[dict[str, Any]]:
    """Write the segments that are new or have grown since; none ever changes otherwise."""
    written = {tuple(one["segment"]): one for one in before}
    segments = []
    for number, memory in packed:
        if number in written and written[number]["used"] == memory.size:
            segments.append(written[number])
            continue
        name = f"packed-{'-'.join(map(str, number))}-{token}.npy"
        listed = _write_rows(path / name, memory.reshape(-1), memory.dtype)
        segments.append({"segment": list(number), "used": memory.size, **listed})
    return segments


def _listed(file: Path) -> dict[str, Any]:
    return {"file": file.name, "bytes": file.stat().st_size, "crc32": _crc(file)}


def _check(path: Path, listed: dict[str, Any]) -> None:
    file = path / listed["file"]
    if not file.is_file():
        raise SnapshotError(f"the snapshot is not complete: {file} is missing")
    if file.stat().st_size != listed["bytes"] or _crc(file) != listed["crc32"]:
        raise SnapshotError(f"the snapshot is damaged: {file} is not what was written; use another copy")


def _crc(file: Path) -> int:
    crc = 0
    with file.open("rb") as source:
        while block := source.read(2**17):
            crc = zlib.crc32(block, crc)
    return crc


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except ValueError as error:
        raise SnapshotError(f"{path / 'manifest.json'} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise SnapshotError(f"{path / 'manifest.json'} does not belong to a {FORMAT}")
    if not isinstance(manifest.get("version"), int):
        raise SnapshotError(f"{path / 'manifest.json'} is damaged: it states no version")
    if manifest["version"] > VERSION:
        raise SnapshotError(
            f"the snapshot has version {manifest['version']}, but this release reads up to {VERSION}; "
            "install a newer one"
        )
    if manifest["version"] < VERSION:
        raise SnapshotError(
            f"the snapshot has version {manifest['version']}, which only development releases wrote; this one reads "
            f"version {VERSION}"
        )
    if manifest.get("crc32") != _seal(manifest):
        raise SnapshotError(f"{path / 'manifest.json'} is damaged: it is not what was written; use another copy")
    return manifest


def _seal(manifest: dict[str, Any]) -> int:
    """Return the CRC-32 of all members but itself, as JSON with sorted keys, no spaces and ASCII alone."""
    members = {name: value for name, value in manifest.items() if name != "crc32"}
    return zlib.crc32(json.dumps(members, sort_keys=True, separators=(",", ":")).encode())


def _touched(slots: tuple[int, int], old: int, new: int, capacity: int) -> bool:
    """Whether ids old .. new − 1 went into any of these slots."""
    if new - old >= capacity:
        return True
    start, end = old % capacity, old % capacity + (new - old)
    return any(start < slots[1] + lap and slots[0] + lap < end for lap in (0, capacity))


def _settle(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _settle_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
