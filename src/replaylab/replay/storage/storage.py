"""The protocol of storages, which hold rows outside the process's own memory, and their form for the compiled core."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from replaylab import _core
from replaylab.arguments import Rule, checked, flag, optional, place, whole
from replaylab.errors import ConfigError, StorageError
from replaylab.replay.data.fields import Field
from replaylab.replay.data.memory import core_fields, machine_memory
from replaylab.replay.protocols import missing_of
from replaylab.replay.samplers.custom.sampler import CustomSampler
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage.retention import Reservoir, Retention

MEMBERS: dict[str, Rule[Any]] = {
    "file": place("the file that holds the rows"),
    "on_disk": flag,
    "headroom": optional(whole(most=2**31)),
    "writers": whole(most=4_000),
    "create": optional(flag),
    "after_crash": flag,
}
"""What each member of a storage must be, but for its methods."""


@runtime_checkable
class Storage(Protocol):
    """Where rows lie outside a process's own memory; give one to `ReplayBuffer(storage=...)`.

    A class that has these members is a storage; `MappedStorage` is a base that needs `file` alone. It is a description,
    not an open file: the compiled core makes or opens the file when a buffer is made, maps it into memory, locks parts
    of it and never lets it grow. So the file must lie where a file can be made in full length, mapped by several
    processes at once, and locked: a file system of this machine, on disk or in memory. Make it immutable, such as a
    frozen dataclass, and picklable: `ReplayBuffer.handle` sends it to other processes.

    Any number of processes may have the same rows open, add to them and draw from them, at the same time. An id means
    the same step in each of them. The sampler's state is each process's own: steps that others have added come in,
    with the largest priority, whenever this process samples, updates or asks. `add` never waits: not for another
    process, alive, stopped or killed. A process killed while it adds has added its step whole, or not at all.

    A snapshot (`ReplayBuffer.save`) holds no rows of a storage. Of your own class it holds only the name; pass the
    storage to `ReplayBuffer.load` again.

    Attributes:
        file: The file that holds the rows.
        on_disk: Whether the rows need none of the machine's memory.
        headroom: H, steps that others may add while one batch is read, before it is drawn anew. The file has room for
            them on top of the capacity. None: a 64th of the capacity, at least 1,024.
        writers: Processes that may add at the same time, up to 4,000; each takes the room of one row.
        create: True: make it, and refuse one that is there; False: open it, and refuse to make one; None: either.
        after_crash: Whether to open it though the machine stopped with steps in it that no `flush` had followed.
    """

    @property
    def file(self) -> Path: ...  # noqa: D102 - the attributes are documented above

    @property
    def on_disk(self) -> bool: ...  # noqa: D102

    @property
    def headroom(self) -> int | None: ...  # noqa: D102

    @property
    def writers(self) -> int: ...  # noqa: D102

    @property
    def create(self) -> bool | None: ...  # noqa: D102

    @property
    def after_crash(self) -> bool: ...  # noqa: D102

    def opened(self) -> "Storage":
        """Return the same storage, but only to be opened: with `create` False."""
        ...

    def unlink(self) -> None:
        """Remove the file if it is there; processes that have it open continue with it until they end."""
        ...


def core_storage(
    storage: Storage, fields: Mapping[str, Field], capacity: int, *, num_envs: int | None, replicas: int | None
) -> _core.StorageConfig:
    """Return what the compiled core needs to know of a storage.

    Raises:
        StorageError: The file holds rows declared otherwise.
    """
    offsets = _core.row_offsets(core_fields(fields))
    declared = {
        "capacity": capacity,
        "num_envs": num_envs,
        "replicas": replicas,
        "fields": {
            path: {"shape": list(field.shape), "dtype": field.dtype.str, "offset": offset}
            for (path, field), offset in zip(fields.items(), offsets, strict=True)
        },
    }
    config = _core.StorageConfig()
    config.path = str(storage.file)
    config.declaration = json.dumps(declared)
    config.headroom = max(1024, capacity // 64) if storage.headroom is None else storage.headroom
    config.writers = storage.writers
    config.memory = machine_memory()
    config.may_create = storage.create is not False
    config.may_open = storage.create is not True
    config.after_crash = storage.after_crash
    found = _core.storage_declaration(config.path)
    if found not in (b"", config.declaration.encode()) and config.may_open:
        try:
            said = differences(json.loads(found), declared)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"{config.path} is damaged: its declaration is not as written ({error!r}); remove it"
            ) from None
        raise StorageError(
            f"{config.path} holds rows declared otherwise: {'; '.join(said)}; declare the buffer as it was, or use "
            "another name"
        )
    return config


@dataclass(frozen=True)
class Handle:
    """What another process needs to open the same rows; it can be pickled."""

    kind: type[Any]
    options: Mapping[str, Any]

    def open(self, **changes: Any) -> Any:
        """Return a buffer on the same rows; `changes` are options of `ReplayBuffer`, such as `sampler` or `seed`."""
        return self.kind(**{**self.options, **changes})


def checked_storage(
    storage: Storage | None, next_obs: str, retention: Retention, sampler: Sampler, fields: Mapping[str, Field]
) -> Storage | None:
    """Return the storage if a buffer of these parts can have it.

    Raises:
        ConfigError: It cannot.
    """
    if storage is None:
        return None
    if isinstance(storage, type) or not isinstance(storage, Storage):
        missing = missing_of(storage, Storage)
        more = f", which has no {', '.join(f'`{name}`' for name in missing)}" if missing else ""
        raise ConfigError(
            f"`storage` must be a SharedMemory, a MemoryMap, your own Storage or None, but got {storage!r}{more}"
        )
    _check_members(storage)
    for given, why in (
        (next_obs == "derived", 'next_obs="derived" keeps separate rows in each process; use next_obs="stored"'),
        (isinstance(retention, Reservoir), "a Reservoir picks the slots of its steps itself; use Fifo()"),
        (
            any(one.compressed for one in fields.values()),
            "compressed values are outside the rows; store them uncompressed",
        ),
        (isinstance(sampler, CustomSampler), "a sampler written in Python sees only what its own process adds"),
    ):
        if given:
            raise ConfigError(f"a {type(storage).__name__} takes steps from many processes, but {why}")
    return storage


def _check_members(storage: Storage) -> None:
    """Check the members of a storage; one of your own may have anything there."""
    for name, rule in MEMBERS.items():
        checked(name, getattr(storage, name), rule, type(storage).__name__)


def handle_of(kind: type[Any], storage: Storage | None, options: Mapping[str, Any]) -> Handle:
    """Return the handle of a buffer of this class, made with these arguments.

    Raises:
        ConfigError: Its rows are in its own process's memory.
    """
    if storage is None:
        raise ConfigError(
            "the rows of this buffer are in its own process's memory, where no other can see them; make it with "
            "storage=SharedMemory(name) or storage=MemoryMap(path)"
        )
    return Handle(kind, {**options, "storage": storage.opened()})


def differences(found: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """Return how a declaration that was found differs from the one asked for."""
    said = [
        f"`{name}` is {found.get(name)} there and {declared[name]} here"
        for name in ("capacity", "num_envs", "replicas")
        if found.get(name) != declared[name]
    ]
    theirs, ours = found.get("fields", {}), declared["fields"]
    said += [f"field `{path}` is only there" for path in theirs if path not in ours]
    said += [f"field `{path}` is only here" for path in ours if path not in theirs]
    for path in ours:
        if path in theirs and theirs[path] != ours[path]:
            there, here = (f"{one['dtype']} {tuple(one['shape'])}" for one in (theirs[path], ours[path]))
            said.append(f"field `{path}` is {there} there and {here} here")
    return said or ["the order of the fields differs"]
