"""Saving a buffer, loading it again, and opening it elsewhere."""

import os
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as ListOf
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.errors import ConfigError, SnapshotError, StorageError
from replaylab.files.manifest import folder_of, reading
from replaylab.replay import snapshot
from replaylab.replay.buffer_config import GIVEN, BufferConfig, Configured
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.config_json import config_from_json, is_custom
from replaylab.replay.data.arrays import picked
from replaylab.replay.data.seeding import PythonDraws
from replaylab.replay.samplers.custom.state import CustomState
from replaylab.replay.samplers.laber import Rescorer
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.tape import TapePlayer
from replaylab.replay.storage.retention import Reservoir
from replaylab.replay.storage.storage import Handle, Storage, handle_of
from replaylab.replay.transforms.transform import Transform

TRIES = 20
"""How often `load` begins again because a `save` has put another snapshot in its place meanwhile."""

COMPARED = (
    *("capacity", "fields", "num_envs", "replicas", "sampler", "transforms", "next_obs", "retention"),
    *("autoreset", "count_replays", "min_size"),
)
"""What must be equal for a buffer to continue from another's snapshot in place."""

PARTS = ("_config", "_layout", "_core", "_saved", "_custom", "_rescorer", "_player", "_drawer", "add", "extend")
"""The attributes that a buffer consists of; others are its holder's, or a subclass's."""

DEEP, OPEN = "copy.deepcopy", "handle().open()"


class Persistent(Configured):
    """The part of `ReplayBuffer` that outlives it."""

    _options: ClassVar[type[BufferConfig]] = BufferConfig
    _core: _core.Replay
    _layout: BufferLayout
    _custom: CustomState | None
    _rescorer: Rescorer | None
    _player: TapePlayer | None
    _saved: dict[Path, str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a folder: rows, priorities, ids and random streams; see `snapshot` for the format.

        A kill at any moment leaves the old snapshot or the new one, whole. Saving to the same folder again
        writes only the rows that changed. Rows of a `storage` are not written again: `load` opens it, and takes in what
        was added to it since.

        What is saved is one moment's. Other threads draw and feed back meanwhile; what they add waits. A signal handler
        that comes in between may do the same, and may save: to the same folder, then that snapshot stays.

        Raises:
            ConfigError: `path` is not a path.
            StorageError: The folder cannot be made or written to.
            SnapshotError: The folder holds something other than a whole snapshot of this version, or the buffer has
                options that cannot be written down. The snapshot that was there before stays. `add` raises it, too, in
                a signal handler that came in between.
        """
        folder = folder_of(path, "save")
        about = self._config.to_json() | {"storage_identity": self._core.storage_identity}
        with self._frozen() as (state, generators):
            if generators is not None:
                about["generators"] = generators
            before = self._saved.get(folder)
            known = None if isinstance(self.retention, Reservoir) else before
            rows = (self._row_bytes(), self._row_dtype())

            def check(manifest: dict[str, Any]) -> None:
                self._config.check_json(manifest)
                if self._saved.get(folder) != before:
                    raise SnapshotError("a signal handler has saved to the same folder meanwhile")

            try:
                self._saved[folder] = snapshot.write(folder, about, state, *rows, known, self._packed(), check)
            except (OSError, SnapshotError) as error:
                if self._saved.get(folder) != before:
                    return  # to a signal handler's save, which is whole, of the same rows, and later
                if isinstance(error, SnapshotError | StorageError):
                    raise
                raise StorageError(
                    f"the snapshot cannot be written to {folder}: {error}; pass a folder that can be written "
                    "to and has room"
                ) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        sampler: Sampler | None = None,
        transforms: ListOf[Transform] | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Return the buffer that `save` wrote; it continues exactly as the saved one would have.

        Args:
            path: The folder.
            sampler: The sampler it was saved with, if that is one of your own. Or the same with other options: stored
                priorities keep their meaning under another α (of α = 0 only whether they are positive is known).
            transforms: The transforms it was saved with, if `Hindsight` is among them (functions are not written down).
            storage: The storage it was saved with, if that lies elsewhere now.

        Raises:
            ConfigError: `path` is not a path.
            SnapshotError: The snapshot is damaged, not complete, or no snapshot, or the storage is another one.
            StorageError: The folder cannot be read, or the storage cannot be opened.
        """
        return cls._loaded(path, {"sampler": sampler, "transforms": transforms, "storage": storage})

    @classmethod
    def _loaded(cls, path: str | os.PathLike[str], given: Mapping[str, Any]) -> Self:
        """Return what `save` wrote, with these options, where they are not None, in place of those written down."""
        folder = folder_of(path, "load")
        manifest = snapshot.read_manifest(folder)
        for _ in range(TRIES):
            try:
                return cls._read(folder, manifest, given)
            except (SnapshotError, StorageError):
                before, manifest = manifest, snapshot.read_manifest(folder)
                if manifest["token"] == before["token"]:
                    raise
        return cls._read(folder, manifest, given)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any], given: Mapping[str, Any]) -> Self:
        """Return the buffer of a manifest; an error, too, where a `save` has replaced it meanwhile."""
        with reading(folder):
            about = manifest["about"]
            if (kind := about.get("kind", BufferConfig.kind)) != cls._options.kind:
                raise SnapshotError(f"the snapshot in {folder} is of {kind}; load it with {kind}.load(path)")
            arguments = cls._options.arguments_from_json(about, given)
            if (kept := arguments.get("storage")) is not None:
                arguments["storage"] = kept.opened()
            buffer = cls(**arguments)
        if buffer._core.storage_identity != about.get("storage_identity", ""):
            raise SnapshotError(
                f"the rows of this snapshot were in {about['storage']}, but {buffer.storage} was made anew since; "
                "the snapshot holds no rows itself and is of no use without them"
            )
        with reading(folder):
            snapshot.read_rows(folder, manifest, buffer._row_bytes(), buffer._row_dtype())
            state = snapshot.read_state(folder, manifest)
            buffer._core.restore(state)
            if buffer._rows_here and buffer._core.counts()[1] != manifest["next_ids"]:
                raise SnapshotError(
                    f"the snapshot in {folder} has rows that do not belong to its state; use another copy"
                )
            snapshot.read_packed(folder, manifest, buffer._packed())
            buffer._core.settle()
            if buffer._draws is not None and "generators" not in about:
                raise SnapshotError(
                    f"the snapshot was saved with {config_from_json(about['sampler'])}, and has no records for "
                    f"{type(buffer.sampler).__name__}; load it as it was saved"
                )
            if buffer._draws is not None:
                buffer._draws.restore(state, about["generators"])
        buffer._saved[folder] = manifest["token"]
        return buffer

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take over, in place, what a buffer of the same declaration wrote with `save`.

        The buffer stays the same object, so that its holders continue with it, also those of its methods.
        Samplers and functions of the user's own are kept, as no snapshot holds them; so is where the rows lie, if the
        snapshot's are in a `storage`.

        Args:
            path: The folder.

        Raises:
            ConfigError: Batches are being drawn ahead from the buffer.
            SnapshotError: The snapshot is of a buffer that was declared otherwise; or as for `load`.
            StorageError: As for `load`.
        """
        if "_drawer" in self.__dict__:
            raise ConfigError("batches are being drawn ahead from the buffer; close the iterators, then restore")
        mine = self._config.to_json()
        given = {name: getattr(self, name) for name in GIVEN if is_custom(mine.get(name))}
        loaded = type(self).load(path, **given)
        theirs = loaded._config.to_json()
        for name in COMPARED:
            if theirs.get(name) != mine.get(name):
                raise SnapshotError(
                    f"the snapshot is of a buffer with {name}={getattr(loaded._config, name)}, but this one has "
                    f"{getattr(self._config, name)}; make the buffer as the saved one was made"
                )
        parts = {name: part for name, part in vars(loaded).items() if name in PARTS}
        before = self._core
        self.__dict__.update(parts)  # in one step: other threads and signal handlers may use the buffer
        before.hand_over(self._core)  # its `add` and `extend` may have been taken before

    def part(self, replicas: npt.ArrayLike) -> Self:
        """Return a new buffer of some of the replicas, each of which continues exactly as it would have here.

        Args:
            replicas: Their numbers, or bool (R,); at least one.

        Raises:
            ConfigError: There is no replica axis, none is picked, or one that is not there, or the rows are in a
                `storage`.
        """
        kept = [] if self.replicas is None else picked("replicas", replicas, self.replicas)
        if not kept or self.storage is not None:
            raise ConfigError(f"`part` needs replicas whose rows are in this process's memory, but got {replicas!r}")
        buffer = type(self)(**self._config.arguments() | {"replicas": len(kept)})

        with self._frozen() as (state, generators):
            for new, old in zip(buffer._row_bytes(), [self._row_bytes()[r] for r in kept], strict=True):
                new[...] = old
            packed = dict(self._packed())
            renamed: dict[str, Any] = {}
            for r, old_r in enumerate(kept):
                for kind in ("replica", "custom"):
                    before = f"{kind}{old_r}."
                    own = {name: array for name, array in state.items() if name.startswith(before)}
                    renamed |= {f"{kind}{r}.{name.removeprefix(before)}": own[name].copy() for name in own}
            buffer._core.restore(renamed)
            for (r, field, serial), memory in buffer._packed():
                memory[...] = packed[kept[r], field, serial]
            buffer._core.settle()
            if buffer._draws is not None and generators is not None:
                buffer._draws.restore(renamed, [generators[r] for r in kept])
        return buffer

    def handle(self) -> Handle:
        """Return what another process needs to open the rows of this buffer's `storage`.

        Pickling such a buffer does the same: what comes out elsewhere is a buffer on the same rows, with priorities
        and a random stream of its own. One whose rows are in this process's memory is pickled whole, as a snapshot.

        Raises:
            ConfigError: The rows are in this process's memory.
        """
        return handle_of(type(self), self.storage, self._config.arguments())

    def __reduce__(self) -> Any:
        if self.storage is not None:
            return Handle.open, (self.handle(),)
        return _from_files, self._files(), self._own() or None

    def __copy__(self) -> Any:
        raise ConfigError(
            "a buffer cannot be copied in part: its copy would share its rows, priorities and random stream; "
            f"{DEEP if self.storage is None else OPEN} makes another buffer"
        )

    def __deepcopy__(self, memo: Any) -> Self:
        if self.storage is not None:
            raise ConfigError(
                "a copy of this buffer would be another buffer on the same rows, to which both add; if that is meant, "
                f"{OPEN} makes it"
            )
        copied: Self = _from_files(*self._files())
        memo[id(self)] = copied
        vars(copied).update(deepcopy(self._own(), memo))
        return copied

    def flush(self) -> None:
        """Bring all that was added to a `MemoryMap` so far to disk; it outlives a power cut until more is added."""
        self._core.flush()

    def close(self) -> None:
        """Flush and release the `storage`; the buffer cannot be used afterwards.

        The rows stay until ``buffer.storage.unlink()``.
        """
        self._core.flush()
        self._core.close()

    @contextmanager
    def _frozen(self) -> Iterator[tuple[dict[str, Any], list[Any] | None]]:
        """Yield everything but the rows as of one moment (state, generators), while the rows stay unchanged."""
        draws = self._draws
        if draws is None:
            self._core.await_draws()
        frozen = generators = None
        while frozen is None:
            self._core.await_thaw()
            with nullcontext() if draws is None else draws.lock.held(whole=True):
                frozen = self._core.freeze()
                if frozen is not None and draws is not None:
                    frozen.state.update(draws.arrays())
                    generators = draws.generators()
        try:
            yield frozen.state, generators
        finally:
            frozen.end()

    def _own(self) -> dict[str, Any]:
        """Return the attributes that are not the buffer's, but its holder's or a subclass's."""
        return {name: value for name, value in vars(self).items() if name not in PARTS}

    def _files(self) -> tuple[type[Self], dict[str, bytes], dict[str, Any]]:
        """Return what `_from_files` takes: a snapshot as the contents of its files, and what no snapshot holds."""
        with TemporaryDirectory() as place:
            try:
                self.save(place)
            finally:
                self._saved.pop(folder_of(place, "save"), None)
            files = {file.name: file.read_bytes() for file in Path(place).iterdir()}
        written = self._config.to_json()
        return type(self), files, {name: getattr(self, name) for name in GIVEN if is_custom(written.get(name))}

    @property
    def _draws(self) -> PythonDraws | None:
        """What draws in Python, if anything does."""
        return self._custom or self._rescorer or self._player

    @property
    def _rows_here(self) -> bool:
        """Whether the rows are in this process's memory, and so in snapshots."""
        return self.storage is None and not self._options.rows_elsewhere

    def _row_bytes(self) -> list[npt.NDArray[np.uint8]]:
        if not self._rows_here:
            return []
        return [self._core.bytes(r) for r in range(self.replicas or 1)]

    def _packed(self) -> list[snapshot.Packed]:
        """Return the segments of compressed fields."""
        return [
            ((r, field, serial), memory)
            for r in range(self.replicas or 1)
            for field, serial, memory in self._core.packed(r)
        ]

    def _row_dtype(self) -> np.dtype[Any]:
        placed = sorted(zip(self._core.offsets(), self._config.kept.items(), strict=True), key=lambda one: one[0])
        placed = [one for one in placed if one[0] >= 0]
        return np.dtype(
            {
                "names": [name for _, (name, _) in placed],
                "formats": [np.uint64 if field.compressed else (field.dtype, field.shape) for _, (_, field) in placed],
                "offsets": [offset for offset, _ in placed],
                "itemsize": self._core.row_stride,
            }
        )


def _from_files(kind: type[Persistent], files: Mapping[str, bytes], given: Mapping[str, Any]) -> Any:
    """Return the buffer whose snapshot has these files, with the options of its maker's own."""
    with TemporaryDirectory() as place:
        for name, content in files.items():
            (Path(place) / name).write_bytes(content)
        buffer = kind.load(place, **given)
        buffer._saved.clear()  # the folder goes
        return buffer
