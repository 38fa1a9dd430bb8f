"""Snapshots of all shards: each shard's own, then one manifest; by call, and in the background.

A folder holds ``replay.json``, which is written last, and names the folder ``run-*`` beside it that it is of: one for
each replay, so that those of two are never mixed, and an older one is there until the next is whole; and ``origin``,
the first of the replays that were each loaded from the one before. In the folder are ``shard-K`` for each shard and
``template``, an empty buffer of the same declaration, which says what the replay is.
"""

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

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
RUN = re.compile(r"run-[0-9a-f]{32}")
COUNTS = ("shards", "capacity", "min_size", "inserted", "drawn", "epoch")

SECONDS_TO_COME = 60.0
"""How long `Saver.save` waits for a shard in place of one that was lost."""

POLL = 0.02
"""Seconds between two looks whether it has come."""

SPARE = 8
"""Epochs beyond those in use that a manifest claims: a place may lose so many shards before it is written anew."""


@dataclass(frozen=True)
class Snapshots:
    """Saves every shard in the background, one after the other, so that a lost one begins again from there.

    On several machines the folder is one that all of them see.

    Attributes:
        folder: Where to. `RemoteReplay.load` reads it, too. What another replay saved there is removed once all shards
            are saved.
        period: Seconds between two snapshots of a shard: what it stored since the last one is lost with it.
            Default: 60.0.
    """

    folder: str | PathLike[str]
    period: float = 60.0

    def __post_init__(self) -> None:
        check(self, folder=place("a folder"), period=POSITIVE)


def shard_folder(folder: Path, run: str, number: int) -> str:
    """Return where a shard's snapshot is."""
    return str(folder / run / f"shard-{number}")


@dataclass(frozen=True)
class Restored:
    """A snapshot to begin from.

    Attributes:
        folder: Where it is.
        about: Its manifest.
        given: Arguments of `ReplayBuffer.load`, for what no snapshot holds.
    """

    folder: Path
    about: Mapping[str, Any]
    given: Mapping[str, Any]

    @property
    def epoch(self) -> int:
        """The first that no id was given out of."""
        return int(self.about["epoch"]) + 1

    @property
    def shard_folders(self) -> tuple[str, ...]:
        """Where each shard's is."""
        return tuple(shard_folder(self.folder, self.about["run"], k) for k in range(self.about["shards"]))


class Saver:
    """Saves the shards: all at once, and, if so asked, one every period/S seconds.

    Args:
        snapshots: Where and how often; None: only when it is told to.
        shards: S.
        restored: What they begin with, None: with nothing.
    """

    def __init__(self, snapshots: Snapshots | None, shards: int, restored: Restored | None) -> None:
        self._folder = None if snapshots is None else Path(snapshots.folder).resolve()
        self._pause = 0.0 if snapshots is None else snapshots.period / shards
        self._shards, self._run = shards, f"run-{uuid4().hex}"
        self._origin = self._run if restored is None else restored.about["origin"]
        begun = () if restored is None else restored.shard_folders
        self._begins = dict(enumerate(begun)) if len(begun) == shards else {}
        self._saved = set[int]()
        self._next, self._due = 0, monotonic()
        self._pending: tuple[Place, ShardClient, Pending] | None = None
        self._claims: dict[Path, tuple[str, int]] = {}  # manifests: whose they are, and up to which epoch
        if restored is not None:
            self._claims[restored.folder] = (restored.about["run"], restored.about["epoch"])
            self._claim(restored.epoch)

    def folder(self, number: int) -> str | None:
        """Return where a shard that is lost begins again, None: it begins empty."""
        return None if self._folder is None else self._begins.get(number)

    def tend(self, fleet: Fleet, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        """Ask the next shard to save itself, if it is time; see whether the last has; wait for neither."""
        self._claim(about["epoch"])
        if self._folder is None:
            return
        if self._pending is not None:
            place, client, pending = self._pending
            if not pending.ready():
                return
            self._pending = None
            try:
                if fleet.answer(place, client, pending) is not None:
                    self._has_saved(place.number)
                if place.number == self._shards - 1 and len(self._saved) == self._shards:
                    self._write(self._folder, template, about)
            except (ReplayError, OSError) as error:
                log.warning("shard %d could not be saved: %s", place.number, error)
        if monotonic() < self._due:
            return
        self._due = monotonic() + self._pause
        place = fleet.places[self._next]
        self._next = (self._next + 1) % self._shards
        if place.tally is None:
            return
        client, asked = place.client, fleet.ask(place, "save", shard_folder(self._folder, self._run, place.number))
        if asked is not None:
            self._pending = (place, client, asked)

    def save(self, folder: Path, fleet: Fleet, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        """Save all shards, and then what they are.

        Raises:
            StorageError: A shard is lost, and none has come in its place, or the folder cannot be written to.
        """
        begun = monotonic()
        while not self._all_saved(folder, fleet):
            if monotonic() - begun > SECONDS_TO_COME:
                raise StorageError(
                    f"a shard was lost while it was to be saved to {folder}, and none has come in its place within "
                    f"{SECONDS_TO_COME:.0f} seconds; save again once it is there"
                )
            sleep(POLL)
            fleet.tend()
        if folder == self._folder:
            for number in range(self._shards):
                self._has_saved(number)
        self._write(folder, template, about)

    def _all_saved(self, folder: Path, fleet: Fleet) -> bool:
        """Save all shards, if all are there; return whether that was done."""
        live = fleet.live()
        if len(live) < self._shards:
            return False
        asked = [
            (place, place.client, fleet.ask(place, "save", shard_folder(folder, self._run, place.number)))
            for place in live
        ]
        done = [pending is not None and fleet.answer(place, client, pending) for place, client, pending in asked]
        return all(done)

    def _write(self, folder: Path, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        epoch = about["epoch"] + SPARE
        write(folder, self._run, template, {**about, "epoch": epoch, "origin": self._origin})
        self._claims[folder] = (self._run, epoch)
        for number, begins in self._begins.items():
            if Path(begins).parent.parent.resolve() == folder.resolve():  # what another replay saved there is gone
                self._begins[number] = shard_folder(folder, self._run, number)

    def _claim(self, epoch: int) -> None:
        """Write into all manifests that there may be ids of this epoch, so that what is loaded begins above it."""
        for folder, (run, claimed) in list(self._claims.items()):
            if epoch <= claimed:
                continue
            if not (folder / MANIFEST).exists():
                del self._claims[folder]
                continue
            self._claims[folder] = (run, epoch + SPARE)
            try:
                about = read(folder)
                if about["run"] == run:
                    _write_manifest(folder, {**about, "epoch": epoch + SPARE})
            except (ReplayError, OSError) as error:
                log.warning("what is loaded from %s again may give out the same ids: %s", folder, error)

    def _has_saved(self, number: int) -> None:
        assert self._folder is not None  # or nobody asks where a shard begins
        self._saved.add(number)
        self._begins[number] = shard_folder(self._folder, self._run, number)


def write(folder: Path, run: str, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
    """Write what the shards are, whose snapshots are there; remove those of other replays."""
    template.save(folder / run / TEMPLATE)
    _write_manifest(folder, {"format": FORMAT, "version": VERSION, "run": run, **about})
    with writing(folder):
        for other in folder.iterdir():
            if RUN.fullmatch(other.name) and other.name != run:
                shutil.rmtree(other)


def _write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    with whole_file(folder / MANIFEST) as temporary:
        manifest.write(temporary, dict(about))


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
        if not isinstance(about["count_replays"], bool) or about["shards"] < 1:
            raise ValueError("whether replays are counted, and one shard at least")
        about.setdefault("origin", about["run"])
        for name in ("run", "origin"):
            if not RUN.fullmatch(about[name]):
                raise ValueError(f"a run is called {about[name]!r:.80}")
    for number in range(about["shards"]):
        if not Path(shard_folder(folder, about["run"], number), "manifest.json").exists():
            raise SnapshotError(f"the snapshot in {folder} is not complete: it lacks shard {number}; use another copy")
    return about
