"""What a pickle holds of a buffer: all of it, or where its snapshot is."""

from hashlib import sha256
from pathlib import Path
from typing import Any

from replaylab.arguments import checked, optional, place
from replaylab.errors import SnapshotError
from replaylab.replay import ReplayBuffer


class Snapshots:
    """A folder of snapshots, or none."""

    def __init__(self, folder: str | Path | None) -> None:
        given = checked("snapshots", folder, optional(place("a folder")))
        self._folder = None if given is None else Path(given).absolute()

    def packed(self, replay: ReplayBuffer) -> Any:
        """Return what goes into a pickle; with a folder, save there."""
        if self._folder is None:
            return replay
        replay.save(self._folder)
        given = {"sampler": replay.sampler, "transforms": replay.transforms}
        return {"folder": self._folder, "manifest": _digest(self._folder), "given": given}

    def unpacked(self, packed: Any) -> ReplayBuffer:
        """Return the buffer.

        Raises:
            SnapshotError: The folder has been saved to since.
        """
        if isinstance(packed, ReplayBuffer):
            return packed
        folder = packed["folder"]
        if _digest(folder) != packed["manifest"]:
            raise SnapshotError(
                f"{folder} holds another snapshot than the one that was pickled; load the latest pickle"
            )
        return ReplayBuffer.load(folder, **packed["given"])


def _digest(folder: Path) -> str:
    """Return what distinguishes a snapshot from later ones in the same folder; "" where none is."""
    manifest = folder / "manifest.json"
    return sha256(manifest.read_bytes()).hexdigest() if manifest.exists() else ""
