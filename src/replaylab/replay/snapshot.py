"""Saving a buffer and loading it again: an open format, written so that a kill at any moment loses nothing.

A snapshot is a folder:

* ``manifest.json`` says what the buffer is and lists every other file with its length and CRC-32, and its own;
* ``rows-….npy``: stretches of rows, each a NumPy array of a structured dtype with one entry a slot;
* ``packed-….npy``: a segment of a compressed field, whose rows hold references into it
  (see `docs/guides/compression.md`);
* ``state-….npz``: everything else as plain one-dimensional arrays: next ids, random streams, priorities.

Files are never changed, only replaced: `save` writes new ones under new names, makes them durable, and then
puts a new manifest in place of the old by one atomic rename. After a kill at any moment, the manifest and all
files that it lists are whole. A second save to the same folder writes only the stretches that changed.
"""

import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.errors import SnapshotError
from replaylab.files import npy
from replaylab.files.atomic import discard, make_folder, replacing, settle, settle_folder
from replaylab.files.manifest import (
    BLOCK,
    check_crc,
    check_listed,
    check_seal,
    listed,
    mentions,
    opened,
    read_arrays,
    reading,
    whole,
)
from replaylab.files.manifest import read as read_sealed
from replaylab.files.manifest import write as write_sealed
from replaylab.files.one_writer import one_writer

FORMAT, VERSION = "replaylab-snapshot", 2
MOST = 2**62
Packed = tuple[tuple[int, int, int], npt.NDArray[np.uint8]]
"""A segment of a compressed field: its (replica, field, serial) and its bytes."""

STRETCH = 32 * 2**20
"""About how many bytes of rows go into one file."""

OURS = re.compile(r"(rows-\d+-\d+|packed-\d+-\d+-\d+)-[0-9a-f]{32}\.npy|state-[0-9a-f]{32}\.npz")
"""Names of the files that `write` makes."""

_writing: set[str] = set()
"""Tokens of the snapshots that this process is writing now."""


def write(
    path: Path,
    about: dict[str, Any],
    state: dict[str, npt.NDArray[Any]],
    rows: list[npt.NDArray[np.uint8]],
    row_dtype: np.dtype[Any],
    known: str | None,
    packed: list[Packed],
    check: Callable[[dict[str, Any]], None],
) -> str:
    """Write a snapshot and return its token.

    What was written is read back by what `load` reads it with, all but the rows themselves, before it takes the place
    of the snapshot before. A write that fails leaves that one as it was, and removes its own files. Writers to one
    folder wait for each other.

    Args:
        path: The folder; made if it is not there.
        about: What the buffer is, as JSON values.
        state: All arrays but the rows.
        rows: The rows of each replica as bytes (C, stride).
        row_dtype: What one row is.
        known: Token of the snapshot this buffer last wrote to or read from this folder: if it is still the one
            there, stretches of rows that did not change since are left as they are.
        packed: The segments of compressed fields.
        check: Raises if this is no manifest to load the buffer from.
    """
    made, token = make_folder(path), uuid4().hex
    with one_writer(path):
        file, found = path / "manifest.json", _files(path)
        old = read_manifest(path) if file.exists() else None
        before = old if old is not None and known is not None and old["token"] == known else None
        _tidy(found, old)
        _writing.add(token)
        try:
            manifest = _write_files(path, token, state, rows, row_dtype, before, packed) | {"about": about}
            settle_folder(path)
            with replacing(file, file.with_name("manifest.json.new")) as new:
                write_sealed(new, manifest)
                manifest = _checked(new)
                _check_written(path, manifest, token, state, row_dtype)
                found = _files(path)
                check(manifest)
        except BaseException:
            if not mentions(file, token):  # Ctrl-C may come right after the rename
                discard([*path.glob(f"*-{token}.np[yz]")], made)
            raise
        finally:
            _writing.discard(token)
        settle_folder(path)
        _tidy(found, manifest)
        return token


def _write_files(
    path: Path,
    token: str,
    state: dict[str, npt.NDArray[Any]],
    rows: list[npt.NDArray[np.uint8]],
    row_dtype: np.dtype[Any],
    before: dict[str, Any] | None,
    packed: list[Packed],
) -> dict[str, Any]:
    """Write what is not there yet, and return the manifest that lists it, but for what the buffer is."""
    # Compressed values put together anew changed rows whose steps did not change.
    moves = sum(int(array[2]) for name, array in state.items() if ".packed." in name and name.endswith(".segments"))
    if before is not None and before["moves"] != moves:
        before = None
    next_ids = [int(state[f"replica{r}.next_id"][0]) for r in range(len(rows))]
    width = max(1, STRETCH // max(1, row_dtype.itemsize))
    stretches = []
    for r, (memory, next_id) in enumerate(zip(rows, next_ids, strict=True)):
        kept = {tuple(one["slots"]): one for one in before["rows"] if one["replica"] == r} if before else {}
        first_new = before["next_ids"][r] if before else 0
        for start in range(0, min(next_id, len(memory)), width):
            slots = (start, min(start + width, next_id, len(memory)))
            one = kept.get(slots)
            if one is None or _touched(slots, first_new, next_id, len(memory)) or not _there(path, one, row_dtype):
                one = {"replica": r, "slots": list(slots)} | _write_array(
                    path / f"rows-{r}-{start}-{token}.npy", memory[slice(*slots)], row_dtype
                )
            stretches.append(one)
    written = {tuple(one["segment"]): one for one in before["packed"]} if before else {}
    segments = []
    for number, memory in packed:  # one that is full never changes
        one = written.get(number)
        if one is None or one["used"] != memory.size or not _there(path, one, memory.dtype):
            name = f"packed-{'-'.join(map(str, number))}-{token}.npy"
            one = {"segment": list(number), "used": memory.size} | _write_array(
                path / name, memory.reshape(-1, 1), memory.dtype
            )
        segments.append(one)
    return {
        "format": FORMAT,
        "version": VERSION,
        "token": token,
        "next_ids": next_ids,
        "rows": stretches,
        "packed": segments,
        "moves": moves,
        "state": _write_state(path / f"state-{token}.npz", state),
    }


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a snapshot's manifest.

    Raises:
        SnapshotError: There is none, or it is of another format, or not as `write` makes it.
        StorageError: It cannot be read.
    """
    return _checked(path / "manifest.json")


def read_state(path: Path, manifest: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays but the rows, after checking the file."""
    return read_arrays(path, manifest["state"])


def read_rows(
    path: Path, manifest: dict[str, Any], rows: list[npt.NDArray[np.uint8]], row_dtype: np.dtype[Any]
) -> None:
    """Read all rows into a buffer's own memory, checking every file, and that every slot in use is in one of them."""
    next_ids = manifest["next_ids"]
    if len(next_ids) != len(rows):
        raise SnapshotError(f"the snapshot in {path} has rows of {len(next_ids)} replicas, but is of {len(rows)}")
    read = [0] * len(rows)
    for one in sorted(manifest["rows"], key=lambda one: one["slots"][0]):
        r, (start, end) = one["replica"], one["slots"]
        if r >= len(rows) or start != read[r] or end > min(next_ids[r], len(rows[r])):
            raise SnapshotError(f"the snapshot in {path} lists slots {start} to {end} of replica {r} out of place")
        _read_array(path, one, rows[r][start:end], row_dtype)
        read[r] = end
    if read != [min(n, len(memory)) for n, memory in zip(next_ids, rows, strict=True)]:
        raise SnapshotError(f"the snapshot is not complete: {path} lists rows up to slots {read} alone")


def read_packed(path: Path, manifest: dict[str, Any], packed: list[Packed]) -> None:
    """Read the segments of compressed fields into a buffer's own memory, checking every file."""
    known = {tuple(one["segment"]): one for one in manifest["packed"]}
    for number, memory in packed:
        if number not in known or known[number]["used"] != memory.size:
            raise SnapshotError(f"the snapshot is not complete: it lists no file for segment {number}")
        _read_array(path, known[number], memory.reshape(-1, 1), memory.dtype)


def _write_array(file: Path, memory: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Write entries, given as bytes (n, itemsize), and return what a manifest lists of the file."""
    head = npy.head_of(dtype, len(memory))
    crc, content = zlib.crc32(head), memory.data.cast("B") if memory.size else memoryview(b"")
    with file.open("xb") as out:
        out.write(head)
        for start in range(0, len(content), BLOCK):
            block = content[start : start + BLOCK]
            out.write(block)
            crc = zlib.crc32(block, crc)
        settle(out)
    return {"file": file.name, "bytes": len(head) + len(content), "crc32": crc}


def _write_state(file: Path, state: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    with file.open("xb") as out:
        np.savez(out, allow_pickle=False, **state)
        settle(out)
    return listed(file)


def _read_array(path: Path, one: dict[str, Any], into: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> None:
    """Read a file's entries into memory of bytes (n, itemsize)."""
    with opened(path, one) as source:
        _check_head(path, one, source, dtype, len(into))
        size = source.tell()
        source.seek(0)
        crc = zlib.crc32(source.read(size))
        content = into.data.cast("B") if into.size else memoryview(bytearray())
        for start in range(0, len(content), BLOCK):
            block = content[start : start + BLOCK]
            size += source.readinto(block)  # type: ignore[attr-defined]  # a file has it
            crc = zlib.crc32(block, crc)
        check_crc(path, one, crc, size)


def _check_head(path: Path, one: dict[str, Any], source: IO[bytes], dtype: np.dtype[Any], count: int) -> None:
    """Raise unless an open file's head states so many entries of this dtype, and no more follow than it states."""
    with reading(path / one["file"]):
        shape, stored = npy.read_head(source, npy.MOST + 2 * len(npy.head_of(dtype, count)))
    if stored != dtype or shape != (count,) or one["bytes"] != source.tell() + count * dtype.itemsize:
        raise SnapshotError(f"{path / one['file']} holds rows of another layout than this buffer's; it cannot be read")


def _check_written(
    path: Path, manifest: dict[str, Any], token: str, state: dict[str, npt.NDArray[Any]], row_dtype: np.dtype[Any]
) -> None:
    """Raise unless the files just written have their full length, and begin as they should."""
    expected = [(one, row_dtype, one["slots"][1] - one["slots"][0]) for one in manifest["rows"]]
    expected += [(one, np.dtype(np.uint8), one["used"]) for one in manifest["packed"]]
    for one, dtype, count in expected:
        if token in one["file"]:
            with opened(path, one) as source:
                _check_head(path, one, source, dtype, count)
    with opened(path, manifest["state"]) as source, reading(path):
        if npy.read_arrays(source, heads_alone=True).keys() != state.keys():
            raise SnapshotError(f"{path / manifest['state']['file']} does not hold the arrays that were written")


def _there(path: Path, one: dict[str, Any], dtype: np.dtype[Any]) -> bool:
    """Whether a listed file is as it was written, as far as can be checked without reading it."""
    count = one["used"] if "used" in one else one["slots"][1] - one["slots"][0]
    try:
        with opened(path, one) as source:
            _check_head(path, one, source, dtype, count)
            return os.fstat(source.fileno()).st_mtime_ns <= (path / "manifest.json").stat().st_mtime_ns
    except (OSError, SnapshotError):
        return False


def _checked(file: Path) -> dict[str, Any]:
    """Return a manifest if its members are what `write` makes them."""
    manifest = read_sealed(file, FORMAT, "snapshot")
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
    with reading(file.parent):
        check_seal(file, manifest)
        if not isinstance(manifest["token"], str) or not isinstance(manifest["about"], dict):
            raise TypeError("a token and what the buffer is")
        whole(manifest["moves"], MOST)
        for n in manifest["next_ids"]:
            whole(n, MOST)
        for one in manifest["rows"]:
            check_listed(one, ".npy")
            start, end = one["slots"]
            whole(one["replica"], MOST), whole(start, whole(end, MOST))
        for one in manifest.setdefault("packed", []):
            check_listed(one, ".npy")
            replica, field, serial = one["segment"]
            whole(replica, MOST), whole(field, MOST), whole(serial, MOST), whole(one["used"], MOST)
        check_listed(manifest["state"], ".npz")
    return manifest


def _files(path: Path) -> list[Path]:
    """Return the files in a folder that writes have made, except those of writes still in progress.

    Looked for before the manifest is read, or replaced: what comes later belongs to the save of a signal handler, which
    may write to the same folder in between.
    """
    ours = [one for one in path.glob("*-*.np[yz]") if OURS.fullmatch(one.name)]
    return [one for one in ours if not any(token in one.name for token in list(_writing))]


def _tidy(found: list[Path], manifest: dict[str, Any] | None) -> None:
    """Remove files of interrupted writes, and those that are no longer listed."""
    kept = {one["file"] for one in [*manifest["rows"], *manifest["packed"], manifest["state"]]} if manifest else set()
    discard([one for one in found if one.name not in kept], [])


def _touched(slots: tuple[int, int], old: int, new: int, capacity: int) -> bool:
    """Whether ids old .. new − 1 went into any of these slots."""
    if new - old >= capacity:
        return True
    start, end = old % capacity, old % capacity + (new - old)
    return any(start < slots[1] + lap and slots[0] + lap < end for lap in (0, capacity))
