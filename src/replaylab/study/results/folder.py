"""A study's folder: its files, its lock, its records, and damaged files in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaylab.errors import ConfigError, SpecError, StorageError
from replaylab.files import atomic
from replaylab.files.atomic import writing
from replaylab.study.plan import Chunk, plan
from replaylab.study.results import records
from replaylab.study.results.provenance import Machine, this_machine
from replaylab.study.spec.components import json_data
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb


PUBLISHED = "rows.parquet"
"""The file that `replaylab.study.results.published_rows` reads, in place of everything that a run writes."""

_SECONDS_TO_DIE = 1.0
"""A worker that was being started when its run was killed holds the lock until it is its own program."""

_FOLDERS = ("", "runs", "timing", "failures", "figures", "tables", "tapes")
"""Folders below a study's folder that it writes to."""


def is_published(folder: Path) -> bool:
    """Return whether a folder holds the published rows of a study, not a run."""
    return (folder / PUBLISHED).is_file() and not (folder / "study.json").is_file()


@dataclass(frozen=True)
class Damaged:
    """A file of results that was not what had been written, and where it is now; its runs are missing ones."""

    file: Path
    why: str
    moved_to: Path


@dataclass(frozen=True)
class StudyFolder:
    """The folder that a study's results live in; only its owner (`owned`) writes there."""

    spec: Spec
    path: Path
    toml: str = ""
    """Text of the study file, which runs keep as ``study.toml``; empty: the study was not read from a file."""

    @property
    def chunks(self) -> list[Chunk]:
        """Every chunk of the study, there or not; those that are there are kept, however they were chunked."""
        regular = plan(self.spec)
        present = [p for p in regular if self.file_of(p).is_file()]
        if len(present) == len(regular):
            return regular
        return plan(self.spec, [p.identity for p in present] + self._chunked_otherwise(regular))

    @property
    def present(self) -> list[Chunk]:
        """The chunks whose rows are there."""
        return [p for p in self.chunks if self.file_of(p).is_file()]

    def file_of(self, chunk: Chunk) -> Path:
        """Return the path of the chunk's rows."""
        return self.path / "runs" / f"{chunk.id}.parquet"

    def rows(self) -> duckdb.DuckDBPyRelation:
        """Return the rows of all stored chunks as a DuckDB relation.

        Raises:
            StorageError: a file is damaged.
        """
        from replaylab.study.results.store import open_rows

        return open_rows([self.file_of(p) for p in self.present])

    def versions(self) -> list[dict[str, str]]:
        """Return the library versions that each chunk was trained with.

        Raises:
            StorageError: a file is damaged.
        """
        from replaylab.study.results.store import read_metadata

        return [read_metadata(self.file_of(p))["versions"] for p in self.present]

    def record(self, name: str) -> dict[str, Any]:
        """Return a JSON record of the folder, such as ``machine``; empty if there is none.

        Raises:
            StorageError: it is damaged.
        """
        return records.read(self.path / f"{name}.json", records.SHAPES.get(name, records.Timing))

    def tape_file(self, chunk: Chunk) -> Path:
        """Return the path of the chunk's draws, which exists while others are to learn from them."""
        return self.path / "tapes" / f"{chunk.id}.tape"

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder's lock; the system takes it back from an owner that dies.

        Folders that are made here are removed at the end if no study is recorded.

        Raises:
            ConfigError: another run is at work in the folder.
            SpecError: it holds published rows, which are only read.
            StorageError: the folder cannot be written.
        """
        self.refuse_published()
        from filelock import FileLock, Timeout  # with asyncio, which a worker would wait for

        lock = FileLock(self.path / ".lock", timeout=_SECONDS_TO_DIE)
        parts = [self.path / name for name in ("runs", "timing", "failures")]
        new_folders = [folder for folder in (*parts, self.path, *self.path.parents) if not folder.exists()]
        with writing(self.path):
            for part in parts:
                part.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except Timeout:
                raise ConfigError(
                    f"Another `replaylab study run` is at work in {self.path}. Wait until it ends, or give "
                    f"this one another folder (--out)."
                ) from None
        try:
            sweep(self.path)
            yield
        finally:
            if new_folders and not self.has_records:
                _remove_unused(Path(lock.lock_file), new_folders)
            lock.release()

    def refuse_published(self) -> None:
        """Raise if the folder holds published rows.

        Raises:
            SpecError: it does.
        """
        if is_published(self.path):
            raise SpecError(
                f"{self.path} holds the published rows of a finished study, which cannot be continued. Give another "
                f"folder (--out)."
            )

    def refuse_another(self) -> None:
        """Raise if the folder holds another study.

        Raises:
            SpecError: it is, or its record is damaged.
        """
        if not self.has_records:
            return
        record = self.path / "study.json"
        try:
            name = records.opened(record.read_bytes())["name"]
        except (OSError, ValueError, KeyError) as error:
            raise SpecError(
                f"{record}: is damaged, so it does not tell whether {self.path} holds the study {self.spec.name!r}. "
                f"If it does, remove study.json: the same command writes it again."
            ) from error
        if name != self.spec.name:
            raise SpecError(
                f"{self.path} holds the study {name!r}, not {self.spec.name!r}. Give another folder (--out)."
            )

    @property
    def has_records(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "study.json").is_file()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record a new study, so that a killed run leaves it, and remove the records if the block raises.

        Raises:
            StorageError: they cannot be written.
        """
        is_new = not self.has_records
        try:
            if is_new:
                self.write_records()
            yield
        except BaseException:
            if is_new:
                for name in ("study.json", "study.toml", "machine.json"):
                    (self.path / name).unlink(missing_ok=True)
            raise

    def write_records(self) -> None:
        """Write the study's settings and file, and the machine that runs it.

        Raises:
            StorageError: it cannot be written.
        """
        records.write(self.path / "study.json", json_data(self.spec))
        if self.toml:
            atomic.write_text(self.path / "study.toml", self.toml)
        else:  # one of an earlier run may have other settings
            (self.path / "study.toml").unlink(missing_ok=True)
        self._write_machines(this_machine(), self._machines())

    def write_machine(self, machine: Machine) -> None:
        """Record a machine that has run a chunk, unless it is recorded already.

        Raises:
            StorageError: it cannot be written.
        """
        known = self._machines()
        if machine.digest not in known:
            self._write_machines(this_machine(), {**known, machine.digest: machine})

    def clear_failures(self) -> None:
        """Remove what failed chunks have left to read, files named by their ids; the caller holds the lock."""
        with writing(self.path):
            for file in (self.path / "failures").glob(f"*.{'[0-9a-f]' * 16}.txt"):
                file.unlink(missing_ok=True)

    def set_aside_damaged(self) -> tuple[Damaged, ...]:
        """Move damaged files of results into ``damaged/``, so that their runs are missing."""
        from replaylab.study.results.store import damage

        damaged = [(file, why) for file in self._files() if (why := damage(file)) is not None]
        return tuple(Damaged(file, why, _set_aside(file, self.path / "damaged")) for file, why in damaged)

    def _chunked_otherwise(self, regular: Sequence[Chunk]) -> list[dict[str, Any]]:
        """Return the identities of what earlier, smaller studies left in the folder."""
        from replaylab.study.results.store import read_metadata

        known = {p.id for p in regular}
        return [read_metadata(file)["identity"] for file in self._files() if file.stem not in known]

    def _files(self) -> list[Path]:
        """Return the files of the study's chunks, of whatever settings and seeds, in their order."""
        prefixes = {p.prefix for p in plan(self.spec)}
        files = sorted((self.path / "runs").glob("*.parquet"))
        return [file for file in files if f"{file.stem.rpartition('.')[0]}." in prefixes]

    def _machines(self) -> dict[str, Machine]:
        """Return the machines that are written down, by digest; none where the record is damaged."""
        try:
            return records.machines_of(records.read(self.path / "machine.json", records.Machines))
        except StorageError:
            return {}

    def _write_machines(self, current: Machine, known: dict[str, Machine]) -> None:
        others = {digest: asdict(machine) for digest, machine in known.items() if digest != current.digest}
        records.write(self.path / "machine.json", {**asdict(current), **({"others": others} if others else {})})


def _set_aside(path: Path, folder: Path) -> Path:
    """Move a file, or what is in its place, into a folder where nothing is replaced, and return its new name.

    Raises:
        StorageError: it cannot be moved.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        names = (f"{path.stem}{f'.{i}' if i else ''}{path.suffix}" for i in range(10**6))
        free = next(folder / name for name in names if not (folder / name).exists())
        return path.rename(free)


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind; the caller holds the folder's lock. Reports hold none."""
    with writing(folder):
        for place in _FOLDERS:
            atomic.sweep(folder / place)


def _remove_unused(lock: Path, folders: Sequence[Path]) -> None:
    """Remove the lock's file, and folders from the first to the last as long as they are empty."""
    with suppress(OSError):  # someone has put something there
        lock.unlink(missing_ok=True)
        for folder in folders:
            folder.rmdir()
