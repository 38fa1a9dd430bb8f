"""Snapshots of all shards: each shard's own, then one manifest; by call, and in the background.

The manifest ``replay.json`` names the folder ``run-*`` beside it that belongs to it. Each `RemoteReplay` has its own
such folder, so that snapshots of two are never mixed and the old one stays until the new one is complete. It holds
``shard-K`` for each shard, and ``template``: an empty buffer with the options of the replay.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from replaylab.arguments import POSITIVE, InvalidArgument, check, place, whole
from replaylab.errors import SnapshotError
from replaylab.files.atomic import writing
from replaylab.files.bundle import COUNT, Bundle, Schema
from replaylab.files.folder import folder_of

RUN = re.compile(r"run-[0-9a-f]{32}")


def _run_name(value: Any) -> str:
    """The name of a replay's folder."""
    if not isinstance(value, str) or not RUN.fullmatch(value):
        raise InvalidArgument("the name of a run")
    return value


SCHEMA = Schema(
    noun="snapshot of a RemoteReplay",
    format="replaylab-remote-replay",
    version=3,
    manifest="replay.json",
    members={"capacity": COUNT, "min_size": COUNT, "epoch": COUNT, "shards": whole(1), "run": _run_name},
)


@dataclass(frozen=True)
class Snapshots:
    """Saves every shard in the background, so that a lost one restarts from there.

    Draws and feedback continue meanwhile; writers wait while rows are written. On several machines the folder must be
    one that all of them see.

    Attributes:
        folder: The folder; `RemoteReplay.load` reads it, too. The snapshot of another replay in it is removed once all
            shards are saved.
        period: Seconds between two snapshots of a shard: steps stored since the last one are lost with the shard.
            Default: 60.0.
    """

    folder: str | PathLike[str]
    period: float = 60.0

    def __post_init__(self) -> None:
        check(self, folder=place("a folder"), period=POSITIVE)


@dataclass(frozen=True)
class Saving:
    """Snapshots of one replay in one folder.

    Attributes:
        folder: The folder.
        about: Members of the manifest.
        period: Seconds between two snapshots of a shard.
    """

    folder: Path
    about: Mapping[str, Any]
    period: float = 0.0

    def folder_of(self, number: int) -> str:
        """Return the folder of a shard's snapshot."""
        return str(self.folder / self.about["run"] / f"shard-{number}")

    @property
    def template(self) -> Path:
        """The folder of the empty buffer."""
        return Path(self.folder, self.about["run"], "template")

    @property
    def complete(self) -> bool:
        """Whether all shards have been saved."""
        shards = range(self.about["shards"])
        return all(Path(self.folder_of(number), "manifest.json").exists() for number in shards)


def seal(saving: Saving) -> None:
    """Write the manifest of the shards' snapshots, and remove the snapshots of other replays."""
    claim(saving, saving.about["epoch"])
    with writing(saving.folder):
        for other in saving.folder.iterdir():
            if RUN.fullmatch(other.name) and other.name != saving.about["run"]:
                shutil.rmtree(other)


def seal_if_complete(saving: Saving) -> None:
    """Write the manifest once all shards are saved, unless it is written."""
    bundle = Bundle(saving.folder, SCHEMA)
    sealed = bundle.exists() and bundle.read().members["run"] == saving.about["run"]
    if not sealed and saving.complete:
        seal(saving)


def saving_in(path: str | PathLike[str], about: Mapping[str, Any]) -> Saving:
    """Return snapshots that are to be written to a folder once."""
    return Saving(folder_of(path, "save"), about)


def read(path: str | PathLike[str]) -> Saving:
    """Return the snapshots in a folder.

    Raises:
        SnapshotError: There is no complete snapshot of this version.
        StorageError: The folder cannot be read.
    """
    folder = folder_of(path, "load")
    members = Bundle(folder, SCHEMA).read().members
    saving = Saving(folder, {name: members[name] for name in SCHEMA.members})
    if not saving.complete:
        raise SnapshotError(f"the snapshot in {folder} is not complete: it lacks a shard; use another copy")
    return saving


def claim(saving: Saving, epoch: int) -> None:
    """Write the manifest: ids up to this epoch may exist, and the next replay that is loaded starts above."""
    with Bundle(saving.folder, SCHEMA).replacing() as draft:
        draft.describe(**{**saving.about, "epoch": epoch})
