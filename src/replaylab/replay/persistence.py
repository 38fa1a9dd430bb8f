"""Saving, loading, pickling and sharing of a `ReplayBuffer` or `Priorities`."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, flag, optional
from replaylab.errors import ConfigError, SnapshotError, StorageError
from replaylab.files.bundle import Contents, reading
from replaylab.files.folder import contents_of, folder_of, folder_with
from replaylab.replay import snapshot
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_parts import Buffer, BufferParts
from replaylab.replay.data import loop_state, undelivered
from replaylab.replay.data.arrays import picked
from replaylab.replay.snapshot import config_from_json, is_custom
from replaylab.replay.storage import Fifo, Handle, Reservoir

TRIES = 20
"""Number of times that `load` starts again because a concurrent `save` has replaced the snapshot."""

DEEP, OPEN = "copy.deepcopy", "handle().open()"

Kind = TypeVar("Kind", bound=Buffer)


def save(
    parts: BufferParts,
    path: str | os.PathLike[str],
    state: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Write a snapshot; see `ReplayBuffer.save`.

    Args:
        parts: The parts to save.
        path: The folder.
        state: The state of the training loop; None: none is stored.
        about: Further members of the manifest's `about`.
        arrays: Further arrays of the state, or replacements of the buffer's.
    """
    folder, thread = folder_of(path, "save"), get_ident()
    loop, loop_arrays = (None, {}) if state is None else loop_state.written(state)
    if thread in parts.savers:
        raise SnapshotError(
            "a signal handler or a callback has interrupted save() of the same buffer; have it set a flag, and "
            "save after save() has returned"
        )
    try:
        parts.savers.add(thread)
        _save(parts, folder, {"loop": loop, **(about or {})}, {**loop_arrays, **(arrays or {})})
    finally:
        parts.savers.discard(thread)


def _save(
    parts: BufferParts, folder: Path, more: Mapping[str, Any], more_arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    config, core = parts.config, parts.core
    about = config.to_json() | {"storage_identity": core.storage_identity, **more}
    with _frozen(parts) as (state, generators, ahead):
        if generators is not None:
            about["generators"] = generators
        about["ahead"], arrays = undelivered.written(ahead)
        state |= {**arrays, **more_arrays}
        last_token = None if isinstance(config.retention, Reservoir) else parts.saved.get(folder)
        rows, packed = (_row_bytes(parts), _row_dtype(parts)), _packed(parts)
        parts.saved[folder] = snapshot.write(folder, about, state, *rows, last_token, packed, config.check_json)


def load(
    kind: type[Kind],
    options: type[BufferConfig],
    path: str | os.PathLike[str],
    overrides: Mapping[str, Any],
    continue_episodes: bool | None,
) -> Kind:
    """Return the buffer that `save` wrote, with the overrides that are not None in place of the saved options.

    Args:
        kind: The class of the buffer.
        options: The class of its configuration.
        path: The folder.
        overrides: Options by name; None: as saved.
        continue_episodes: As for `ReplayBuffer.load`.
    """
    continues, folder = checked("continue_episodes", continue_episodes, optional(flag)), folder_of(path, "load")
    saved = snapshot.read_manifest(folder)
    for tries_left in reversed(range(TRIES)):
        try:
            buffer = _read(kind, options, folder, saved, overrides)
            break
        except (SnapshotError, StorageError):
            before, saved = saved, snapshot.read_manifest(folder)
            if saved["token"] == before["token"] or not tries_left:
                raise
    _decide(buffer, continues)
    return buffer


def _read(
    kind: type[Kind], options: type[BufferConfig], folder: Path, saved: Contents, overrides: Mapping[str, Any]
) -> Kind:
    """Return the buffer of a snapshot; raise also if a concurrent `save` has replaced it."""
    with reading(folder):
        about = saved["about"]
        if (saved_kind := about.get("kind", BufferConfig.kind)) != options.kind:
            raise SnapshotError(f"the snapshot in {folder} is of {saved_kind}; load it with {saved_kind}.load(path)")
        arguments = options.arguments_from_json(about, overrides)
        if (storage := arguments.get("storage")) is not None:
            arguments["storage"] = storage.opened()
        buffer = kind(**arguments)
    parts, core = buffer._parts, buffer._parts.core
    if core.storage_identity != about.get("storage_identity", ""):
        raise SnapshotError(
            f"the rows of this snapshot were in {about['storage']}, but {parts.config.storage} was made again since; "
            "the snapshot holds no rows itself and is of no use without them"
        )
    with reading(folder):
        snapshot.read_rows(saved, _row_bytes(parts), _row_dtype(parts))
        state = saved.arrays("state")
        try:
            core.restore(state)
        except SnapshotError as error:
            _check_as_saved(parts.config, about, error)
            raise
        if _rows_here(parts.config) and core.counts()[1] != saved["next_ids"]:
            raise SnapshotError(f"the snapshot in {folder} has rows that do not belong to its state; use another copy")
        snapshot.read_packed(saved, _packed(parts))
        core.settle()
        if (draws := parts.engine.in_python) is not None:
            if "generators" not in about:
                missing = SnapshotError("it has no records for samplers written in Python")
                _check_as_saved(parts.config, about, missing)
            draws.restore(state, about["generators"])
        parts.ahead = undelivered.read(about["ahead"], state, parts.layout.batch)
        parts.loop_state = loop_state.read(about.get("loop"), state)
    parts.saved[folder] = saved["token"]
    return buffer


def _decide(buffer: Buffer, continues: bool | None) -> None:
    """Continue the open episodes, or end them; None: let the first `add` raise if there are any."""
    parts, config = buffer._parts, buffer._parts.config
    truncated = config.stored_fields.get("truncated")
    marks_ends = (
        _rows_here(config) and isinstance(config.retention, Fifo) and truncated is not None and truncated.shape == ()
    )
    if continues is None:
        by_episodes = bool(config.transforms) or config.sampler.needs_episodes
        parts.core.ask_to_continue(marks_ends or (by_episodes and config.storage is None))
    if continues is None or continues:
        return
    for rows, ids in zip(_row_bytes(parts), parts.core.open_steps(), strict=True) if marks_ends else ():
        if ids:
            rows.reshape(-1).view(_row_dtype(parts))["truncated"][np.array(ids) % config.capacity] = True
            parts.saved.clear()  # the rows in its snapshot differ
    buffer.end_episode()


def restore(buffer: Buffer, path: str | os.PathLike[str], continue_episodes: bool | None) -> None:
    """Restore the state that `save` wrote; see `ReplayBuffer.restore`."""
    before = buffer._parts
    if before.drawer is not None:
        raise ConfigError("batches are being drawn ahead from the buffer; close the iterators, then restore")
    kind: Any = type(buffer)  # `load` may be overridden in a subclass
    loaded: BufferParts = kind.load(path, continue_episodes=continue_episodes, **before.config.unwritten())._parts
    own_options, saved_options = before.config.to_json(), loaded.config.to_json()
    for name in own_options:
        if name != "storage" and saved_options.get(name) != own_options[name]:
            advice = "make the buffer as the saved one was made"
            if name == "capacity" and before.config.stored_fields:
                advice += f", or {_remade(str(before.config.capacity))}"
            raise SnapshotError(
                f"the snapshot is of a buffer with {name}={getattr(loaded.config, name)}, but this one has "
                f"{getattr(before.config, name)}; {advice}"
            )
    for queue in before.ahead:
        queue.requests.clear()
    before.core.hand_over(loaded.core)  # references to `add` and `extend` must stay valid
    buffer._parts = loaded  # in one step: other threads and signal handlers may use the buffer


def part(buffer: Kind, replicas: npt.ArrayLike) -> Kind:
    """Return a buffer of some of the replicas; see `ReplayBuffer.part`."""
    old, config = buffer._parts, buffer._parts.config
    chosen = [] if config.replicas is None else picked("replicas", replicas, config.replicas)
    if not chosen or config.storage is not None:
        raise ConfigError(f"`part` needs replicas whose rows are in this process's memory, but got {replicas!r}")
    buffer_part = type(buffer)(**config.arguments() | {"replicas": len(chosen)})
    new = buffer_part._parts
    with _frozen(old) as (state, generators, ahead):
        for into, rows in zip(_row_bytes(new), [_row_bytes(old)[r] for r in chosen], strict=True):
            into[...] = rows
        packed = dict(_packed(old))
        renamed: dict[str, Any] = {}
        for r, old_r in enumerate(chosen):
            for prefix in ("replica", "custom"):
                before = f"{prefix}{old_r}."
                arrays = {name: array for name, array in state.items() if name.startswith(before)}
                renamed |= {f"{prefix}{r}.{name.removeprefix(before)}": arrays[name].copy() for name in arrays}
        new.core.restore(renamed)
        for (r, field, serial), memory in _packed(new):
            memory[...] = packed[chosen[r], field, serial]
        new.core.settle()
        if new.engine.in_python is not None and generators is not None:
            new.engine.in_python.restore(renamed, [generators[r] for r in chosen])
        new.ahead = [queue.of_replicas(chosen) for queue in ahead]
    _mark_streams(buffer_part, old.core.streams_copied)
    _decide(buffer_part, None if old.core.asks_to_continue() else True)
    return buffer_part


def handle(buffer: Buffer) -> Handle:
    """Return a handle that opens the rows in another process; see `ReplayBuffer.handle`."""
    config = buffer._parts.config
    if config.storage is None:
        raise ConfigError(
            "the rows of this buffer are in its own process's memory, where no other can see them; make it with "
            "storage=SharedMemory(name) or storage=MemoryMap(path)"
        )
    return Handle(type(buffer), config.arguments() | {"storage": config.storage.opened()})


def reduced(buffer: Buffer) -> Any:
    """Return the function and arguments from which pickle restores the buffer."""
    if buffer._parts.config.storage is not None:
        return Handle.open, (handle(buffer),)
    streams_copied = buffer._parts.core.streams_copied or _spawns_process()
    return _from_files, (*_files(buffer), streams_copied), _attributes(buffer) or None


def copied(buffer: Kind, memo: Any) -> Kind:
    """Return a deep copy."""
    if buffer._parts.config.storage is not None:
        raise ConfigError(
            "a copy of this buffer would be another buffer on the same rows, to which both add; if that is meant, "
            f"{OPEN} makes it"
        )
    copy: Kind = _from_files(*_files(buffer), buffer._parts.core.streams_copied)
    memo[id(buffer)] = copy
    vars(copy).update(deepcopy(_attributes(buffer), memo))
    return copy


def refuse_copy(buffer: Buffer) -> NoReturn:
    """Raise the error of a shallow copy."""
    raise ConfigError(
        "a buffer cannot be copied in part: its copy would share its rows, priorities and random stream; "
        f"{DEEP if buffer._parts.config.storage is None else OPEN} makes another buffer"
    )


@contextmanager
def _frozen(parts: BufferParts) -> Iterator[tuple[dict[str, Any], list[Any] | None, list[undelivered.BatchQueue]]]:
    """Yield a consistent copy of everything except the rows, which stay unchanged within the block.

    It consists of the state, the generators, and the batches that were drawn ahead and not delivered.
    """
    draws = parts.engine.in_python
    generators: list[Any] | None = None
    with parts.engine.lock.held("save"):
        frozen = parts.core.freeze()
        assert frozen is not None  # no other thread saves
        ahead = [drawn for queue in list(parts.ahead) if (drawn := queue.drawn()).requests]
        if draws is not None:
            frozen.state.update(draws.arrays())
            generators = draws.generators()
    try:
        yield frozen.state, generators, ahead
    finally:
        frozen.end()


def _check_as_saved(config: BufferConfig, about: Mapping[str, Any], error: SnapshotError) -> None:
    """Raise `SnapshotError` if it was caused by other options than those that the buffer was saved with."""
    options = config.to_json()
    for name in ("transforms", "sampler"):
        if options.get(name) != about.get(name):
            current, saved = getattr(config, name), about[name]
            saved = saved if is_custom(saved) else config_from_json(saved)
            advice = f"leave `{name}` out" if not is_custom(about[name]) else "pass those it was saved with"
            verb = "needs" if name == "sampler" else "need"
            raise SnapshotError(
                f"the snapshot was saved with {name}={saved}, but {name}={current} {verb} data that it does not hold "
                f"({error}); {advice}, or {_remade(f'{name}=...')}"
            ) from None


def _attributes(buffer: Buffer) -> dict[str, Any]:
    """Return the attributes that users or subclasses have set."""
    return {name: value for name, value in vars(buffer).items() if name not in ("_parts", "add", "extend")}


def _files(buffer: Buffer) -> tuple[type[Buffer], dict[str, bytes], dict[str, Any]]:
    """Return the arguments of `_from_files`: class, contents of the snapshot's files, options that it cannot store."""
    parts = buffer._parts

    def save(folder: str) -> None:
        try:
            buffer.save(folder)
        finally:
            parts.saved.pop(folder_of(folder, "save"), None)  # the folder is temporary

    continues = None if parts.core.asks_to_continue() else True
    return type(buffer), contents_of(save), {"continue_episodes": continues, **parts.config.unwritten()}


def _from_files(kind: Any, files: Mapping[str, bytes], options: Mapping[str, Any], streams_copied: bool = False) -> Any:
    """Return the buffer whose snapshot consists of these files.

    Args:
        kind: Its class.
        files: The files' contents by name.
        options: Its options of custom classes.
        streams_copied: Whether another process continues to draw from its random streams.
    """
    with folder_with(files) as folder:
        buffer = kind.load(folder, **options)
        buffer._parts.saved.clear()  # the folder is temporary
    _mark_streams(buffer, streams_copied)
    return buffer


def _mark_streams(buffer: Buffer, copied: bool) -> None:
    """Let draws raise until `reseed` if the random streams are copies of another process's."""
    if copied:
        buffer._parts.core.set_streams_copied()


def _spawns_process() -> bool:
    """Whether this thread pickles the arguments of a process that it spawns."""
    context = sys.modules.get("multiprocessing.context")  # imported by whoever spawns
    return context is not None and context.get_spawning_popen() is not None


def _rows_here(config: BufferConfig) -> bool:
    """Whether the rows are in this process's memory, and so in snapshots."""
    return config.storage is None and not config.rows_elsewhere


def _row_bytes(parts: BufferParts) -> list[npt.NDArray[np.uint8]]:
    if not _rows_here(parts.config):
        return []
    return [parts.core.bytes(r) for r in range(parts.config.replicas or 1)]


def _packed(parts: BufferParts) -> list[snapshot.Packed]:
    """Return the segments of compressed fields."""
    return [
        ((r, field, serial), memory)
        for r in range(parts.config.replicas or 1)
        for field, serial, memory in parts.core.packed(r)
    ]


def _row_dtype(parts: BufferParts) -> np.dtype[Any]:
    columns = sorted(
        zip(parts.core.offsets(), parts.config.stored_fields.items(), strict=True), key=lambda column: column[0]
    )
    columns = [column for column in columns if column[0] >= 0]
    return np.dtype(
        {
            "names": [name for _, (name, _) in columns],
            "formats": [np.uint64 if field.compressed else (field.dtype, field.shape) for _, (_, field) in columns],
            "offsets": [offset for offset, _ in columns],
            "itemsize": parts.core.row_stride,
        }
    )


def _remade(options: str) -> str:
    """Return advice, for messages, on storing a snapshot's steps in a buffer with other options."""
    return (
        "store its episodes in a new buffer: ReplayBuffer.from_episodes(ReplayBuffer.load(path).episodes(), "
        f"{options}), which starts with new ids, priorities and random streams"
    )
