"""Snapshots of all shards: each shard's own, then one manifest; by call, and in the background.

A folder holds ``shard-K-of-S`` for each shard, ``template`` (an empty buffer of the same declaration, which says what
the replay is) and ``replay.json``, which is written last.
"""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

from replaylab.arguments import POSITIVE, check, place
from replaylab.distributed.replay.shards.fleet import Fleet, Place
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.errors import ReplayError, SnapshotError, StorageError
from replaylab.files import manifest
from replaylab.files.atomic import whole_file, writing
from replaylab.replay import ReplayBuffer

log = logging.getLogger("replaylab.distributed")

FORMAT, VERSION = "replaylab-remote-replay", 1
MANIFEST, TEMPLATE = "replay.json", "template"
COUNTS = ("shards", "capacity", "min_size", "inserted", "drawn")


@dataclass(frozen=True)
class Snapshots:
    """Saves every shard in the background, one after the other, so that a lost one begins again from there.

    On several machines the folder is one that all of them see.

    Attributes:
        folder: Where to. `RemoteReplay.load` reads it, too.
        period: Seconds between two snapshots of a shard: what it stored since the last one is lost with it.
            Default: 60.0.
    """

    folder: str | PathLike[str]
    period: float = 60.0

    def __post_init__(self) -> None:
        check(self, folder=place("a folder"), period=POSITIVE)


def shard_folder(folder: Path, number: int, shards: int) -> str:
    """Return where a shard's snapshot is."""
    return str(folder / f"shard-{number}-of-{shards}")


class Saver:
    """Saves the shards, one every period/S seconds.

    Args:
        snapshots: Where and how often; None: never.
        shards: S.
        saved: Whether the folder holds this replay's snapshots already.
    """

    def __init__(self, snapshots: Snapshots | None, shards: int, saved: bool) -> None:
        self._snapshots, self._shards = snapshots, shards
        self._saved = set(range(shards)) if saved else set()
        self._next, self._due = 0, monotonic()
        self._pending: tuple[Place, ShardClient, Pending] | None = None

    def folder(self, number: int) -> str | None:
        """Return where a shard that is lost begins again, None: it begins empty."""
        if self._snapshots is None or number not in self._saved:
            return None
        return shard_folder(Path(self._snapshots.folder).resolve(), number, self._shards)

    def tend(self, fleet: Fleet, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        """Ask the next shard to save itself, if it is time; see whether the last has; wait for neither."""
        if self._snapshots is None:
            return
        folder = Path(self._snapshots.folder).resolve()
        if self._pending is not None:
            place, client, pending = self._pending
            if not pending.ready():
                return
            self._pending = None
            try:
                if fleet.answer(place, client, pending) is not None:
                    self._saved.add(place.number)
                if place.number == self._shards - 1 and len(self._saved) == self._shards:
                    write(folder, template, about)
            except (ReplayError, OSError) as error:
                log.warning("shard %d could not be saved: %s", place.number, error)
        if monotonic() < self._due:
            return
        self._due = monotonic() + self._snapshots.period / self._shards
        place = fleet.places[self._next]
        self._next = (self._next + 1) % self._shards
        if place.tally is None:
            return
        client, asked = place.client, fleet.ask(place, "save", shard_folder(folder, place.number, self._shards))
        if asked is not None:
            self._pending = (place, client, asked)


def save(folder: Path, fleet: Fleet, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
    """Save all shards, and then what they are.

    Raises:
        StorageError: A shard is lost, or the folder cannot be written to.
    """
    shards = len(fleet.places)
    asked = [
        (place, place.client, fleet.ask(place, "save", shard_folder(folder, place.number, shards)))
        for place in fleet.live()
    ]
    done = [pending is not None and fleet.answer(place, client, pending) for place, client, pending in asked]
    if len(done) < shards or not all(done):
        raise StorageError(f"a shard was lost while it was to be saved to {folder}; save again once it is there")
    write(folder, template, about)


def write(folder: Path, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
    """Write what the shards are, whose snapshots are there; remove those of another number of shards."""
    template.save(folder / TEMPLATE)
    with whole_file(folder / MANIFEST) as temporary:
        manifest.write(temporary, {"format": FORMAT, "version": VERSION, **about})
    with writing(folder):
        for old in folder.glob("shard-*-of-*"):
            if not old.name.endswith(f"-of-{about['shards']}"):
                shutil.rmtree(old)


def read(folder: Path) -> dict[str, Any]:
    """Return what `write` was given.

    Raises:
        SnapshotError: There is no whole snapshot of this version.
        StorageError: It cannot be read.
    """
    file = folder / MANIFEST
    about = manifest.read(file, FORMAT, "snapshot of a RemoteReplay")
    if about["version"] != VERSION:
        raise SnapshotError(f"the snapshot has version {about['version']}, but this release reads version {VERSION}")
    with manifest.reading(folder):
        manifest.check_seal(file, about)
        for name in COUNTS:
            manifest.whole(about[name], 2**62)
        if not isinstance(about["count_replays"], bool) or not all(type(one) is int for one in about["epochs"]):
            raise TypeError("epochs, and whether replays are counted")
        if len(about["epochs"]) != about["shards"] or about["shards"] < 1:
            raise ValueError("one epoch for each shard")
    return about
