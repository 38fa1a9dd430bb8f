"""What a shard remembers beside its buffer, and its file: which adds were applied, and whose episode each step is of.

The file's name holds the buffer's next id at that moment, which says to which of the buffer's snapshots it belongs: it
is written before that snapshot, and those of earlier ones are removed after the next.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import instance
from replaylab.errors import SnapshotError
from replaylab.files.atomic import write_bytes
from replaylab.files.bundle import COUNT, Schema, reading
from replaylab.files.folder import Folder

Ids = npt.NDArray[np.int64]

SCHEMA = Schema("notes", "replaylab-notes", 1, {"added": COUNT, "applied": instance(list, "an array of calls")})


@dataclass
class ShardNotes:
    """What a shard remembers beside its buffer.

    Attributes:
        episodes: int64 (C,): by the slot of a `Fifo`, the id of its episode's first step here.
        added: Steps that writers have stored.
        applied: Of each writer, by number, the ids of the last call that was applied, and of those before it that the
            writer did not know to be acknowledged then; of one that was refused, why.
    """

    episodes: Ids
    added: int = 0
    applied: dict[str, dict[int, Ids | str]] = field(default_factory=dict)


def write_notes(folder: Path, next_id: int, notes: ShardNotes) -> None:
    """Write the notes that belong to the buffer's snapshot of this next id, which is to be written next."""
    entries = [
        (writer, number, ids) for writer, by_number in notes.applied.items() for number, ids in by_number.items()
    ]
    arrays: dict[str, npt.NDArray[Any]] = {"episodes": notes.episodes}
    for i, (_, _, ids) in enumerate(entries):
        content = np.frombuffer(ids.encode(), np.uint8) if isinstance(ids, str) else ids
        arrays[f"ids{i}"] = np.ascontiguousarray(content)
    file = folder / f"notes-{next_id}.npz"
    applied = [[writer, number] for writer, number, _ in entries]
    write_bytes(file, SCHEMA.file(arrays, added=notes.added, applied=applied))
    # Of the two newest ones the buffer's snapshot has the other, until the next is there.
    old = sorted(
        (old_file for old_file in folder.glob("notes-*.npz") if old_file != file),
        key=lambda old_file: old_file.stat().st_mtime_ns,
    )
    Folder(folder).delete(old_file.name for old_file in old[:-1])


def read_notes(folder: Path, next_id: int) -> ShardNotes:
    """Return the notes that belong to a buffer's snapshot.

    Raises:
        SnapshotError: The notes are missing or damaged.
    """
    file = folder / f"notes-{next_id}.npz"
    if not file.exists():
        raise SnapshotError(f"the snapshot of a shard is not complete: {file} is missing; use another copy")
    with reading(file, SCHEMA.noun):
        about, arrays = SCHEMA.read_file(file)
        applied: dict[str, dict[int, Ids | str]] = {}
        for i, (writer, number) in enumerate(about["applied"]):
            ids = arrays[f"ids{i}"]
            applied.setdefault(writer, {})[number] = ids.tobytes().decode() if ids.dtype == np.uint8 else ids
        return ShardNotes(arrays["episodes"], about["added"], applied)
