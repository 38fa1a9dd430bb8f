"""Storages hold rows outside the process's own memory: their protocol, their form for the core, and the library's.

The library's own are a file on disk, and memory that several processes share.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from replaylab import _core
from replaylab.arguments import InvalidArgument, Rule, check, checked, encodable, flag, option, optional, place, whole
from replaylab.errors import ConfigError, StorageError
from replaylab.machine import machine_memory
from replaylab.replay.data.fields import Field, core_fields
from replaylab.replay.protocols import missing_of
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage.retention import Reservoir, Retention

MEMBERS: dict[str, Rule[Any]] = {
    "file": place("the file that holds the rows"),
    "on_disk": flag,
    "writers": whole(most=4_000),
    "create": optional(flag),
}
"""Rules of each member of a storage, except its methods."""


@runtime_checkable
class Storage(Protocol):
    """A place for rows outside a process's own memory; pass one to `ReplayBuffer(storage=...)`.

    A class that has these members is a storage; `MappedStorage` is a base that needs only `file`. It is a description,
    not an open file: the compiled core creates or opens the file when a buffer is created, maps it into memory, locks
    parts of it and never lets it grow. So the file must be on a file system of this machine, on disk or in memory, that
    can create files in full length, map them in several processes, and lock them. Make it immutable, such as a frozen
    dataclass, and picklable: `ReplayBuffer.handle` sends it to other processes.

    Any number of processes may have the same rows open, add to them and draw from them, at the same time. An id means
    the same step in each of them. Each process has a separate sampler: steps that others have added enter it, with the
    largest priority, whenever this process samples, updates or inspects. `add` never waits for another process, alive,
    stopped or killed. A process killed during `add` has added its step completely, or not at all.

    A snapshot (`ReplayBuffer.save`) holds no rows of a storage. Of a custom class it holds only the name; pass the
    storage to `ReplayBuffer.load` again.

    Attributes:
        file: The file that holds the rows.
        on_disk: Whether the rows need none of the machine's memory.
        writers: Processes that may add at the same time, up to 4,000. The file has room for 16 steps of each on top of
            the capacity, and for at least 1,024 and a 64th of the capacity; each takes the room of one more row. If
            more steps are added while one batch is read, the batch is drawn again.
        create: True: create the file, and refuse an existing one; False: open an existing file; None: either.
    """

    @property
    def file(self) -> Path: ...  # noqa: D102 - the attributes are documented above

    @property
    def on_disk(self) -> bool: ...  # noqa: D102

    @property
    def writers(self) -> int: ...  # noqa: D102

    @property
    def create(self) -> bool | None: ...  # noqa: D102

    def opened(self) -> "Storage":
        """Return the same storage with `create` False."""

    def unlink(self) -> None:
        """Remove the file if it exists; processes that have it open continue to use it until they end."""


def core_storage(
    storage: Storage, fields: Mapping[str, Field], capacity: int, *, num_envs: int | None, replicas: int | None
) -> _core.StorageConfig:
    """Return a storage in the form of the compiled core.

    Raises:
        StorageError: The file is damaged, or holds rows of another declaration.
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
    config.headroom = headroom(capacity, storage.writers)
    config.writers = storage.writers
    config.memory = machine_memory()
    config.may_create = storage.create is not False
    config.may_open = storage.create is not True
    written = _core.storage_declaration(config.path)
    if written not in (b"", config.declaration.encode()) and config.may_open:
        try:
            reasons = differences(json.loads(written), declared)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"{config.path} is damaged: its declaration is not as written ({error!r}); remove it"
            ) from None
        raise StorageError(
            f"{config.path} holds rows declared otherwise: {'; '.join(reasons)}; declare the buffer as it was, or use "
            "another name"
        )
    return config


def headroom(capacity: int, writers: int) -> int:
    """Return how many steps may be added while a batch is read; if more are added, the batch is drawn again."""
    return max(1024, capacity // 64, 16 * writers)


@dataclass(frozen=True)
class Handle:
    """Description from which another process opens the same rows; it can be pickled."""

    kind: type[Any]
    options: Mapping[str, Any]

    def open(self, **changes: Any) -> Any:
        """Return a buffer on the same rows; `changes` are options of `ReplayBuffer`, such as `sampler` or `seed`."""
        return self.kind(**{**self.options, **changes})


def checked_storage(
    storage: Storage | None, next_obs: str, retention: Retention, sampler: Sampler, fields: Mapping[str, Field]
) -> Storage | None:
    """Return the storage if it is valid and fits the other options.

    Raises:
        ConfigError: The storage is invalid, or conflicts with another option.
    """
    if storage is None:
        return None
    if isinstance(storage, type) or not isinstance(storage, Storage):
        missing = missing_of(storage, Storage)
        more = f", which has no {', '.join(f'`{name}`' for name in missing)}" if missing else ""
        raise ConfigError(
            f"`storage` must be a SharedMemory, a MemoryMap, your own Storage or None, but got {storage!r}{more}"
        )
    for name, rule in MEMBERS.items():
        checked(name, getattr(storage, name), rule, type(storage).__name__)
    for conflicts, reason in (
        (next_obs == "derived", 'next_obs="derived" keeps separate rows in each process; use next_obs="stored"'),
        (isinstance(retention, Reservoir), "a Reservoir picks the slots of its steps itself; use Fifo()"),
        (
            any(field.compressed for field in fields.values()),
            "compressed values are outside the rows; store them uncompressed",
        ),
        (
            not sampler.in_core,
            "a sampler written in Python sees only what its own process adds; use one of the core, such as Prioritized",
        ),
    ):
        if conflicts:
            raise ConfigError(f"a {type(storage).__name__} takes steps from many processes, but {reason}")
    return storage


def differences(written: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """Return texts on how a file's declaration differs from the declaration of a buffer."""
    texts = [
        f"`{name}` is {written.get(name)} there and {declared[name]} here"
        for name in ("capacity", "num_envs", "replicas")
        if written.get(name) != declared[name]
    ]
    written_fields, declared_fields = written.get("fields", {}), declared["fields"]
    texts += [f"field `{path}` is only there" for path in written_fields if path not in declared_fields]
    texts += [f"field `{path}` is only here" for path in declared_fields if path not in written_fields]
    for path in declared_fields:
        if path in written_fields and written_fields[path] != declared_fields[path]:
            written_text, declared_text = (
                f"{field['dtype']} {tuple(field['shape'])}" for field in (written_fields[path], declared_fields[path])
            )
            texts.append(f"field `{path}` is {written_text} there and {declared_text} here")
    return texts or ["the order of the fields differs"]


SHARED_FOLDER = Path("/dev/shm")


@dataclass(frozen=True, kw_only=True)
class MappedStorage(ABC):
    """Base of storages: `Storage` except for its `file`, with options that are checked.

    Attributes:
        writers, create: As in `Storage`.

    Example:
        One for each run, in a separate folder:

        >>> import tempfile
        >>> from dataclasses import dataclass
        >>> from pathlib import Path
        >>> from replaylab.replay import Field, MappedStorage, ReplayBuffer
        >>> @dataclass(frozen=True)
        ... class RunStorage(MappedStorage):
        ...     run: str
        ...     folder: str = tempfile.gettempdir()
        ...     @property
        ...     def file(self):
        ...         return Path(self.folder) / f"{self.run}.rows"
        >>> storage = RunStorage("an-example", create=True)
        >>> buffer = ReplayBuffer(1000, {"x": Field()}, storage=storage)
        >>> buffer.add(x=1.0), storage.unlink()
        (0, None)
    """

    writers: int = option(MEMBERS["writers"], 64)
    create: bool | None = option(MEMBERS["create"], None)

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def file(self) -> Path:
        """The file that holds the rows."""

    @property
    def on_disk(self) -> bool:
        """Whether the rows need none of the machine's memory."""
        return True

    def opened(self) -> Self:
        """Return the same storage, but only to be opened."""
        return replace(self, create=False)

    def unlink(self) -> None:
        """Remove the file if it is there; processes that have it open continue with it until they end."""
        self.file.unlink(missing_ok=True)


@dataclass(frozen=True)
class MemoryMap(MappedStorage):
    """Rows in a file on disk: for more steps than fit into memory, which are kept when the process ends.

    The machine keeps in its memory what is used and writes the rest to disk. However a process ends, all
    it has added is in the file; a buffer made with the same path has the steps again, their ids and their episodes.
    (Priorities and random streams are kept by `ReplayBuffer.save`.) When the machine itself stops, steps added
    since the last `flush` may be damaged, and the first buffer that opens the file warns of it.

    Attributes:
        path: The file.
        writers, create: As in `Storage`.

    Example:
        >>> import tempfile
        >>> from replaylab.replay import Field, MemoryMap, ReplayBuffer
        >>> path = tempfile.mkdtemp() + "/rows"
        >>> buffer = ReplayBuffer(1000, {"x": Field()}, storage=MemoryMap(path))
        >>> ids = buffer.extend(x=[1.0, 2.0, 3.0])
        >>> buffer.close()
        >>> again = ReplayBuffer(1000, {"x": Field()}, storage=MemoryMap(path))
        >>> again.get(ids)["x"].tolist()
        [1.0, 2.0, 3.0]
    """

    path: str | Path

    def __post_init__(self) -> None:
        check(self, path=place("a file"))
        object.__setattr__(self, "path", str(Path(self.path).absolute()))

    @property
    def file(self) -> Path:
        """The file that holds the rows."""
        return Path(self.path)


@dataclass(frozen=True)
class SharedMemory(MappedStorage):
    """Rows in memory that processes of one machine share, by name.

    They stay until `unlink`, or until the machine stops, also when no process has them open.

    Attributes:
        name: A name without slashes.
        writers, create: As in `Storage`.

    Example:
        >>> from replaylab.replay import Field, ReplayBuffer, SharedMemory
        >>> learner = ReplayBuffer(1000, {"x": Field()}, storage=SharedMemory("replaylab-example", create=True))
        >>> actor = learner.handle().open()  # the handle can be sent to another process
        >>> actor.add(x=1.0)
        0
        >>> learner.sample(2).x.tolist()
        [1.0, 1.0]
        >>> learner.storage.unlink()
    """

    name: str

    def __post_init__(self) -> None:
        check(self, name=_file_name)

    @property
    def file(self) -> Path:
        """The file that holds the rows, in the machine's file system of shared memory."""
        if not SHARED_FOLDER.is_dir():
            raise StorageError(
                f"SharedMemory needs {SHARED_FOLDER}, which this machine does not have; use MemoryMap(path)"
            )
        return SHARED_FOLDER / self.name

    @property
    def on_disk(self) -> bool:
        """Whether the rows need none of the machine's memory."""
        return False


def _file_name(value: object) -> str:
    """The name of a file in a folder."""
    if not isinstance(value, str) or not encodable(value) or set(value) & {"/", "\0"} or value in ("", ".", ".."):
        raise InvalidArgument("a file name without slashes")
    return str(value)
