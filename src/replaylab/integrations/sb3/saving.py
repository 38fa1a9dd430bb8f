"""Pickles of a buffer that contain either its data or the folder of its snapshot, and the reading of pickles."""

from pathlib import Path
from typing import Any

from stable_baselines3.common.save_util import load_from_pkl

from replaylab.arguments import checked, optional, place
from replaylab.errors import SnapshotError
from replaylab.files.folder import digest_of
from replaylab.replay import ReplayBuffer


class Snapshots:
    """An optional folder of snapshots for pickles."""

    def __init__(self, folder: str | Path | None) -> None:
        path = checked("snapshots", folder, optional(place("a folder")))
        self._folder = None if path is None else Path(path).absolute()

    def packed(self, replay: ReplayBuffer) -> Any:
        """Return the content of a pickle; with a folder, save the buffer in it."""
        if self._folder is None:
            return replay
        replay.save(self._folder)
        options = {"sampler": replay.sampler, "transforms": replay.transforms}
        return {"folder": self._folder, "digest": digest_of(self._folder), "given": options}

    def unpacked(self, packed: Any) -> ReplayBuffer:
        """Return the buffer.

        Raises:
            SnapshotError: The folder has been saved to since.
        """
        if isinstance(packed, ReplayBuffer):
            return packed
        folder = packed["folder"]
        if digest_of(folder) != packed["digest"]:
            raise SnapshotError(
                f"{folder} holds another snapshot than the one that was pickled; load the latest pickle"
            )
        # Where an environment was reset since, ReplayLabBuffer sees it by its next observation, and ends the episode.
        return ReplayBuffer.load(folder, continue_episodes=True, **packed["given"])


def unpickled(path: Any, verbose: int = 0) -> Any:
    """Return what the library's `save_replay_buffer` wrote.

    Args:
        path: A path, to which the library adds ".pkl" if nothing is there; or an open file.
        verbose: The algorithm's.

    Raises:
        SnapshotError: `path` is a folder.
    """
    if isinstance(path, str | Path) and Path(path).is_dir():
        raise SnapshotError(
            f"{path} is a folder, but save_replay_buffer writes a file; pass the file, such as {path}.pkl, or load the "
            f'folder of a snapshot with replaylab.ReplayBuffer.load("{path}")'
        )
    return load_from_pkl(path, verbose)
