"""What a shard remembers beside its buffer, and its file: which adds were applied, and whose episode each step is of.

The file's name holds the buffer's next id at that moment, which says to which of the buffer's snapshots it belongs: it
is written before that snapshot, and those of earlier ones are removed after the next.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from replaylab.errors import SnapshotError
from replaylab.files.atomic import discard, whole_file
from replaylab.files.manifest import reading
from replaylab.files.npy import read_arrays

Ids = npt.NDArray[np.int64]


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

    @classmethod
    def empty(cls, capacity: int) -> "ShardNotes":
        """Return those of a shard that holds nothing."""
        return cls(np.zeros(capacity, np.int64))


def write_notes(folder: Path, next_id: int, notes: ShardNotes) -> None:
    """Write the notes that belong to the buffer's snapshot of this next id, which is to be written next."""
    old = list(folder.glob("notes-*.npz"))
    given = [(writer, number, ids) for writer, own in notes.applied.items() for number, ids in own.items()]
    counts = json.dumps([notes.added, [[writer, number] for writer, number, _ in given]])
    arrays = {"episodes": notes.episodes, "counts": np.frombuffer(counts.encode(), np.uint8)}
    for i, (_, _, found) in enumerate(given):
        content = np.frombuffer(found.encode(), np.uint8) if isinstance(found, str) else found
        arrays[f"ids{i}"] = np.ascontiguousarray(content)
    file = folder / f"notes-{next_id}.npz"
    with whole_file(file) as temporary, temporary.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)  # type: ignore[arg-type]  # arrays by name
    # Of the two newest ones the buffer's snapshot has the other, until the next is there.
    discard(sorted((one for one in old if one != file), key=lambda one: one.stat().st_mtime_ns)[:-1], [])


def read_notes(folder: Path, next_id: int) -> ShardNotes:
    """Return the notes that belong to a buffer's snapshot.

    Raises:
        SnapshotError: They are not there, or damaged.
    """
    file = folder / f"notes-{next_id}.npz"
    if not file.exists():
        raise SnapshotError(f"the snapshot of a shard is not complete: {file} is missing; use another copy")
    with reading(file), file.open("rb") as source:
        arrays = read_arrays(source)
        added, given = json.loads(arrays["counts"].tobytes())
        applied: dict[str, dict[int, Ids | str]] = {}
        for i, (writer, number) in enumerate(given):
            found = arrays[f"ids{i}"]
            applied.setdefault(writer, {})[number] = found.tobytes().decode() if found.dtype == np.uint8 else found
        return ShardNotes(arrays["episodes"], added, applied)
