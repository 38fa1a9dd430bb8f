"""Snapshots of all shards: each shard's own, then one manifest; by call, and in the background.

A folder holds ``replay.json``, which is written last, and names the folder ``run-*`` beside it that it is of: one for
each replay, so that those of two are never mixed, and an older one is there until the next is whole; and ``origin``,
the first of the replays that were each loaded from the one before. In the folder are ``shard-K`` for each shard and
``template``, an empty buffer of the same declaration, which says what the replay is.
"""

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from replaylab.arguments import POSITIVE, InvalidArgument, check, instance, place, whole
from replaylab.distributed.replay.shards.shard_pool import ShardPool, ShardSlot
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.errors import ReplayError, SnapshotError, StorageError
from replaylab.files.atomic import writing
from replaylab.files.bundle import COUNT, Bundle, Schema
from replaylab.replay import ReplayBuffer

log = logging.getLogger("replaylab.distributed")

TEMPLATE = "template"
RUN = re.compile(r"run-[0-9a-f]{32}")


def _run_name(value: Any) -> str:
    """The name of a replay's folder."""
    if not isinstance(value, str) or not RUN.fullmatch(value):
        raise InvalidArgument("the name of a run")
    return value


SCHEMA = Schema(
    noun="snapshot of a RemoteReplay",
    format="replaylab-remote-replay",
    version=2,
    manifest="replay.json",
    members={
        **dict.fromkeys(("capacity", "min_size", "inserted", "drawn", "epoch"), COUNT),
        "shards": whole(1),
        "count_replays": instance(bool, "true or false"),
        "run": _run_name,
        "origin": _run_name,
    },
)

SECONDS_TO_COME = 60.0
"""How long `Saver.save` waits for a shard in place of one that was lost."""

POLL = 0.02
"""Seconds between two looks whether it has come."""

SPARE = 8
"""Epochs beyond those in use that a manifest claims: a slot may lose so many shards before it is written again."""


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
        load_options: Arguments of `ReplayBuffer.load` for options that no snapshot holds.
    """

    folder: Path
    about: Mapping[str, Any]
    load_options: Mapping[str, Any]

    @property
    def epoch(self) -> int:
        """The first epoch of which no id was assigned."""
        return int(self.about["epoch"]) + 1

    @property
    def shard_folders(self) -> tuple[str, ...]:
        """The folder of each shard's snapshot."""
        return tuple(shard_folder(self.folder, self.about["run"], k) for k in range(self.about["shards"]))


class Saver:
    """Saves the shards: all at once, and, if so asked, one every period/S seconds.

    Args:
        snapshots: Where and how often; None: only when asked.
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
        self._saved, self._errors = set[int](), dict[int, str]()
        self._next, self._due = 0, monotonic()
        self._pending: tuple[ShardSlot, ShardClient, Pending] | None = None
        self._claims: dict[Path, tuple[str, int]] = {}  # manifests: whose they are, and up to which epoch
        if restored is not None:
            self._claims[restored.folder] = (restored.about["run"], restored.about["epoch"])
            self._claim(restored.epoch)

    @property
    def error(self) -> str | None:
        """Why shards could not be saved in the background when last tried; None: they could."""
        return "; ".join(f"shard {number}: {error}" for number, error in sorted(self._errors.items())) or None

    @contextmanager
    def probe(self) -> Iterator[str | None]:
        """Yield a file in the folder, which is there meanwhile; None if the folder is missing.

        Raises:
            StorageError: The folder cannot be written to.
        """
        if self._folder is None:
            yield None
            return
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = NamedTemporaryFile(dir=self._folder, prefix=".probe-")  # noqa: SIM115 - closed below
        with file:
            yield file.name

    def folder(self, number: int) -> str | None:
        """Return where a shard that is lost begins again, None: it begins empty."""
        if self._folder is None:
            return None
        saved = shard_folder(self._folder, self._run, number)  # perhaps by a save whose answer never came
        return saved if Path(saved, "manifest.json").exists() else self._begins.get(number)

    def tend(self, pool: ShardPool, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        """Ask the next shard to save itself, if it is time; see whether the last has; wait for neither."""
        self._claim(about["epoch"])
        if self._folder is None:
            return
        if self._pending is not None:
            slot, client, pending = self._pending
            if not pending.ready():
                return
            self._pending = None
            try:
                if pool.answer(slot, client, pending) is not None:
                    self._saved.add(slot.number)
                if slot.number == self._shards - 1 and len(self._saved) == self._shards:
                    self._write(self._folder, template, about)
                self._errors.pop(slot.number, None)
            except (ReplayError, OSError) as error:
                self._errors[slot.number] = str(error)
                log.warning("shard %d could not be saved: %s", slot.number, error)
        if monotonic() < self._due:
            return
        self._due = monotonic() + self._pause
        slot = pool.slots[self._next]
        self._next = (self._next + 1) % self._shards
        if slot.tally is None:
            return
        client, request = slot.client, pool.ask(slot, "save", shard_folder(self._folder, self._run, slot.number))
        if request is not None:
            self._pending = (slot, client, request)

    def save(self, folder: Path, pool: ShardPool, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        """Save all shards, and then the manifest.

        Raises:
            StorageError: A shard is lost and was not replaced in time, or the folder cannot be written to.
        """
        begun = monotonic()
        while not self._all_saved(folder, pool):
            if monotonic() - begun > SECONDS_TO_COME:
                raise StorageError(
                    f"a shard was lost while it was to be saved to {folder}, and none has come in its place within "
                    f"{SECONDS_TO_COME:.0f} seconds; save again once it is there"
                )
            sleep(POLL)
            pool.tend()
        if folder == self._folder:
            self._saved.update(range(self._shards))
            self._errors.clear()
        self._write(folder, template, about)

    def _all_saved(self, folder: Path, pool: ShardPool) -> bool:
        """Save all shards if none is lost; return whether that was done."""
        live = pool.live()
        if len(live) < self._shards:
            return False
        requests = [
            (slot, slot.client, pool.ask(slot, "save", shard_folder(folder, self._run, slot.number))) for slot in live
        ]
        done = [pending is not None and pool.answer(slot, client, pending) for slot, client, pending in requests]
        return all(done)

    def _write(self, folder: Path, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
        epoch = about["epoch"] + SPARE
        write(folder, self._run, template, {**about, "epoch": epoch, "origin": self._origin})
        self._claims[folder] = (self._run, epoch)
        for number, begins in self._begins.items():
            if Path(begins).parent.parent.resolve() == folder.resolve():  # what another replay saved there is gone
                self._begins[number] = shard_folder(folder, self._run, number)

    def _claim(self, epoch: int) -> None:
        """Write to all manifests that ids of this epoch may exist, so that a loaded replay begins above it."""
        for folder, (run, claimed) in list(self._claims.items()):
            if epoch <= claimed:
                continue
            if not Bundle(folder, SCHEMA).exists():
                del self._claims[folder]
                continue
            self._claims[folder] = (run, epoch + SPARE)
            try:
                about = read(folder)
                if about["run"] == run:
                    _write_manifest(folder, {**about, "epoch": epoch + SPARE})
            except (ReplayError, OSError) as error:
                log.warning("what is loaded from %s again may give out the same ids: %s", folder, error)


def write(folder: Path, run: str, template: ReplayBuffer, about: Mapping[str, Any]) -> None:
    """Write the manifest of the shards' snapshots, and remove the snapshots of other replays."""
    template.save(folder / run / TEMPLATE)
    _write_manifest(folder, {**about, "run": run})
    with writing(folder):
        for other in folder.iterdir():
            if RUN.fullmatch(other.name) and other.name != run:
                shutil.rmtree(other)


def _write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    with Bundle(folder, SCHEMA).replacing() as draft:
        draft.describe(**{name: about[name] for name in SCHEMA.members})


def read(folder: Path) -> dict[str, Any]:
    """Return the members that `write` wrote.

    Raises:
        SnapshotError: There is no complete snapshot of this version.
        StorageError: The folder cannot be read.
    """
    about = Bundle(folder, SCHEMA).read().members
    for number in range(about["shards"]):
        if not Path(shard_folder(folder, about["run"], number), "manifest.json").exists():
            raise SnapshotError(f"the snapshot in {folder} is not complete: it lacks shard {number}; use another copy")
    return about
