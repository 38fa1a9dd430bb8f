"""Saving a buffer and loading it again: an open format, written so that a kill at any moment loses nothing.

A snapshot is a `Bundle`: a folder with ``manifest.json``, which describes the buffer, and these files:

* ``rows-R-S``, an ``.npy`` file: the rows of replica R in a stretch of slots that begins with S, as a NumPy array of a
  structured dtype with one entry a slot;
* ``packed-R-F-N``, an ``.npy`` file: segment N of the compressed field F of replica R, whose rows hold references into
  it (see `docs/reference/formats.md`);
* ``state``, an ``.npz`` file: everything else as plain arrays: next ids, random streams, priorities; and the batches
  that were drawn ahead and not delivered, ``ahead{q}.{i}.{c}`` being column c of batch i of queue q, which the manifest
  names.

A second save to the same folder writes only the stretches that changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from inspect import isabstract
from pathlib import Path
from typing import Any, get_origin

import numpy as np
import numpy.typing as npt

from replaylab.arguments import instance, tuple_of, whole
from replaylab.errors import SnapshotError
from replaylab.files.bundle import COUNT, Bundle, Contents, Schema
from replaylab.replay.data.fields import Field, Tree
from replaylab.replay.data.schedules import Schedule
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage import MappedStorage, Retention
from replaylab.replay.transforms import Transform

SCHEMA = Schema(
    noun="snapshot",
    format="replaylab-snapshot",
    version=3,
    members={
        "about": instance(dict, "an object"),
        "next_ids": tuple_of(COUNT, "an array of counts"),
        "stretch": whole(1),
        "moves": COUNT,
    },
    files=r"rows-\d+-\d+|packed-\d+-\d+-\d+|state",
)

Rows = list[npt.NDArray[np.uint8]]
"""The rows of each replica as bytes (C, stride)."""

Packed = tuple[tuple[int, int, int], npt.NDArray[np.uint8]]
"""A segment of a compressed field: its (replica, field, serial) and its bytes."""

BYTE = np.dtype(np.uint8)

STRETCH = 32 * 2**20
"""About how many bytes of rows go into one file."""

BASES: tuple[type, ...] = (Sampler, Schedule, Transform, Retention, MappedStorage)
"""Base classes of the configurations that are saved by name."""


def write(
    path: Path,
    about: dict[str, Any],
    state: dict[str, npt.NDArray[Any]],
    rows: Rows,
    row_dtype: np.dtype[Any],
    last_token: str | None,
    packed: list[Packed],
    check: Callable[[dict[str, Any]], None],
) -> str:
    """Write a snapshot and return its token.

    A write that fails leaves the previous snapshot unchanged, and removes its own files. Writers to one folder wait for
    each other.

    Args:
        path: The folder; created if it does not exist.
        about: The buffer's options, as JSON values.
        state: All arrays except the rows.
        rows: The rows of each replica.
        row_dtype: Structured dtype of a row.
        last_token: Token of the snapshot that this buffer last wrote to or read from this folder. If the folder still
            holds it, stretches of rows that have not changed since are not written again.
        packed: The segments of compressed fields.
        check: Raises if the buffer cannot be loaded from this manifest.
    """
    with Bundle(path, SCHEMA).replacing() as draft:
        # Compaction of compressed values changes references in rows whose steps have not changed; `write`, values.
        moves = sum(int(array[2]) for name, array in state.items() if ".packed." in name and name.endswith(".segments"))
        moves += sum(int(array[0]) for name, array in state.items() if name.endswith(".writes"))
        width, before = max(1, STRETCH // max(1, row_dtype.itemsize)), draft.before
        if before is not None and (
            (before["token"], before["moves"], before["stretch"], len(before["next_ids"]))
            != (last_token, moves, width, len(rows))
        ):
            before = None
        next_ids = [int(state[f"replica{r}.next_id"][0]) for r in range(len(rows))]
        for r, (memory, next_id) in enumerate(zip(rows, next_ids, strict=True)):
            for name, slots in _stretches(r, width, next_id, len(memory)):
                same = before is not None and not _touched(slots, before["next_ids"][r], next_id, len(memory))
                draft.array(name, row_dtype, memory[slice(*slots)], unchanged=same)
        for number, memory in packed:  # segments only grow
            draft.array(_segment(number), BYTE, memory.reshape(-1, 1), unchanged=before is not None)
        draft.arrays("state", state)
        check(draft.describe(next_ids=next_ids, stretch=width, moves=moves, about=about))
    return draft.token


def read_manifest(path: Path) -> Contents:
    """Return the manifest of a snapshot and the names of its files.

    Raises:
        SnapshotError: There is no snapshot, or it is damaged or of another format.
        StorageError: The folder cannot be read.
    """
    return Bundle(path, SCHEMA).read()


def read_rows(saved: Contents, rows: Rows, row_dtype: np.dtype[Any]) -> None:
    """Read all rows into a buffer's own memory, checking every file."""
    next_ids, folder = saved["next_ids"], saved.folder.path
    if len(next_ids) != len(rows):
        raise SnapshotError(f"the snapshot in {folder} has rows of {len(next_ids)} replicas, but is of {len(rows)}")
    for r, (memory, next_id) in enumerate(zip(rows, next_ids, strict=True)):
        for name, slots in _stretches(r, saved["stretch"], next_id, len(memory)):
            saved.array(name, row_dtype, memory[slice(*slots)])


def read_packed(saved: Contents, packed: list[Packed]) -> None:
    """Read the segments of compressed fields into a buffer's own memory, checking every file."""
    for number, memory in packed:
        saved.array(_segment(number), BYTE, memory.reshape(-1, 1))


def _stretches(replica: int, width: int, next_id: int, capacity: int) -> list[tuple[str, tuple[int, int]]]:
    """Return the name and the slots of each file of a replica's rows."""
    used = min(next_id, capacity)
    return [(f"rows-{replica}-{start}", (start, min(start + width, used))) for start in range(0, used, width)]


def _segment(number: tuple[int, int, int]) -> str:
    return f"packed-{'-'.join(map(str, number))}"


def _touched(slots: tuple[int, int], old: int, new: int, capacity: int) -> bool:
    """Whether ids old .. new − 1 went into any of these slots."""
    if new - old >= capacity:
        return True
    start, end = old % capacity, old % capacity + (new - old)
    return any(start < slots[1] + lap and slots[0] + lap < end for lap in (0, capacity))


def fields_to_json(tree: Tree) -> Any:
    """Return nested fields as ``{"shape", "dtype"}``, ``{"mapping": {...}}`` or ``{"tuple": [...]}``.

    A compressed field also has ``"compressed": true``. A mapping with other keys than strings, which JSON has not, is
    ``{"items": [[key, field], ...]}``.
    """
    if isinstance(tree, Mapping) and not all(isinstance(key, str) for key in tree):
        return {
            "items": [
                [key.item() if isinstance(key, np.generic) else key, fields_to_json(child)]
                for key, child in tree.items()
            ]
        }
    if isinstance(tree, Mapping):
        return {"mapping": {key: fields_to_json(child) for key, child in tree.items()}}
    if isinstance(tree, tuple):
        return {"tuple": [fields_to_json(child) for child in tree]}
    return {"shape": list(tree.shape), "dtype": tree.dtype.str} | ({"compressed": True} if tree.compressed else {})


def fields_from_json(value: Any) -> Tree:
    """Return the fields that `fields_to_json` converted."""
    if "items" in value:
        return {key: fields_from_json(child) for key, child in value["items"]}
    if "mapping" in value:
        return {key: fields_from_json(child) for key, child in value["mapping"].items()}
    if "tuple" in value:
        return tuple(fields_from_json(child) for child in value["tuple"])
    return Field(tuple(value["shape"]), np.dtype(value["dtype"]), compressed=value.get("compressed", False))


def config_to_json(config: Any) -> Any:
    """Return a configuration of this library by name and options; of a custom class, only its name."""
    if isinstance(config, np.ndarray | np.generic):
        config = config.tolist()
    if isinstance(config, (tuple, list)):
        return [config_to_json(entry) for entry in config]
    if config is None or isinstance(config, (str, int, float)):
        return config
    name, kind = type(config).__name__, type(config)
    if _kinds().get(name) is not kind:
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    return {"type": name} | {
        field.name: config_to_json(getattr(config, field.name)) for field in dataclass_fields(config)
    }


def is_custom(value: Any) -> bool:
    """Whether a result of `config_to_json` contains a custom class, of which it holds only the name."""
    if isinstance(value, list):
        return any(is_custom(entry) for entry in value)
    return isinstance(value, dict) and ("custom" in value or any(is_custom(entry) for entry in value.values()))


def config_from_json(value: Any) -> Any:
    """Return the configuration that `config_to_json` converted.

    Raises:
        SnapshotError: It contains a custom class.
    """
    if isinstance(value, list):
        return tuple(config_from_json(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    options = {name: config_from_json(option) for name, option in value.items() if name not in ("type", "custom")}
    if (kind := _kinds().get(value.get("type", ""))) is not None:
        return kind(**options)
    raise SnapshotError(
        f"snapshots cannot store {value.get('custom', value.get('type'))}, which is not a replaylab class or holds "
        "functions; pass it again: ReplayBuffer.load(path, sampler=...), load(path, transforms=...) or "
        "load(path, storage=...)"
    )


def _kinds() -> dict[str, type]:
    """Return this library's configuration classes that can be saved, by name: those that hold no functions."""
    by_name: dict[str, type] = {}
    waiting = list(BASES)
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        in_library = kind.__module__.startswith(("replaylab.replay.", "replaylab.research."))
        is_saved = in_library and is_dataclass(kind) and not isabstract(kind)
        if is_saved and not any(get_origin(field.type) is Callable for field in dataclass_fields(kind)):
            by_name[kind.__name__] = kind
    return by_name
