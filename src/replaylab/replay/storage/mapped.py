"""Where the rows lie: in a file on disk, or in memory that several processes share."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replaylab import _core
from replaylab.arguments import Unfit, check, encodable, flag, optional, place, whole
from replaylab.errors import ConfigError, StorageError
from replaylab.replay.data.fields import Field
from replaylab.replay.data.memory import core_fields, machine_memory
from replaylab.replay.samplers.custom.sampler import CustomSampler
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage.retention import Reservoir, Retention

SHARED_FOLDER = Path("/dev/shm")
MOST_WRITERS = 4_000


@dataclass(frozen=True, kw_only=True)
class Storage(ABC):
    """Base of the places for rows outside a process's own memory; give one to `ReplayBuffer(storage=...)`.

    Any number of processes may have the same rows open, add to them and draw from them, at the same time. An id means
    the same step in each of them. The sampler's state is each process's own: steps that others have added come in,
    with the largest priority, whenever this process samples, updates or asks. `add` never waits: not for another
    process, alive, stopped or killed. A process killed while it adds has added its step whole, or not at all.

    Attributes:
        headroom: H, steps that others may add while one batch is read, before it is drawn anew. The file has room for
            them on top of the capacity. None: a 64th of the capacity, at least 1,024.
        writers: Processes that may add at the same time; each takes the room of one row.
        create: True: make it, and refuse one that is there; False: open it, and refuse to make one; None: either.
    """

    headroom: int | None = None
    writers: int = 64
    create: bool | None = None

    def __post_init__(self) -> None:
        check(self, headroom=optional(whole(most=2**31)), writers=whole(most=MOST_WRITERS), create=optional(flag))

    @property
    @abstractmethod
    def file(self) -> Path:
        """The file that holds the rows."""

    @property
    def on_disk(self) -> bool:
        """Whether the rows need no memory of the machine's."""
        return True

    def unlink(self) -> None:
        """Remove the file if it is there; processes that have it open go on with it until they end."""
        self.file.unlink(missing_ok=True)

    def core_config(
        self,
        fields: Mapping[str, Field],
        capacity: int,
        *,
        num_envs: int | None,
        replicas: int | None,
    ) -> _core.StorageConfig:
        """Return what the compiled core needs to know.

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
        config.path = str(self.file)
        config.declaration = json.dumps(declared)
        config.headroom = max(1024, capacity // 64) if self.headroom is None else self.headroom
        config.writers = self.writers
        config.memory = machine_memory()
        config.may_create = self.create is not False
        config.may_open = self.create is not True
        found = _core.storage_declaration(config.path)
        if found not in (b"", config.declaration.encode()) and config.may_open:
            try:
                said = differences(json.loads(found), declared)
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise StorageError(
                    f"{self.file} is damaged: its declaration is not as written ({error!r}); remove it"
                ) from None
            raise StorageError(
                f"{self.file} holds rows declared otherwise: {'; '.join(said)}; declare the buffer as it was, or use "
                "another name"
            )
        return config


@dataclass(frozen=True)
class MemoryMap(Storage):
    """Rows in a file on disk: for more steps than fit into memory, and there again when the process is not.

    The machine keeps in its memory what is used and writes the rest to disk. When a process ends, however it ends, all
    it has added is in the file; a buffer made with the same path has the steps again, their ids and their episodes.
    (Priorities and random streams are kept by `ReplayBuffer.save`.) When the machine itself stops, what `flush` has not
    brought to disk may be lost, and the file says so when it is opened.

    Attributes:
        path: The file.
        headroom, writers, create: As in `Storage`.
        after_crash: Open the file though the machine stopped with steps in it that no `flush` had followed. Right after
            an orderly shutdown; after a power cut some rows may be damaged.

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
    after_crash: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, path=place("a file"), after_crash=flag)
        object.__setattr__(self, "path", str(Path(self.path).absolute()))

    @property
    def file(self) -> Path:
        """The file that holds the rows."""
        return Path(self.path)

    def core_config(self, *args: Any, **options: Any) -> _core.StorageConfig:
        """Return what the compiled core needs to know."""
        config = super().core_config(*args, **options)
        config.after_crash = self.after_crash
        return config


@dataclass(frozen=True)
class SharedMemory(Storage):
    """Rows in memory that processes of one machine share, by name.

    They stay until `unlink`, or until the machine stops, also when no process has them open.

    Attributes:
        name: A name without slashes.
        headroom, writers, create: As in `Storage`.

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
        super().__post_init__()
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
        """Whether the rows need no memory of the machine's."""
        return False


def _file_name(value: object) -> str:
    """The name of a file in a folder."""
    if not isinstance(value, str) or not encodable(value) or set(value) & {"/", "\0"} or value in ("", ".", ".."):
        raise Unfit("a file name without slashes")
    return str(value)


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
    if not isinstance(storage, (MemoryMap, SharedMemory)):
        raise ConfigError(f"`storage` must be a SharedMemory, a MemoryMap or None, but got {storage!r}")
    for given, why in (
        (next_obs == "derived", 'next_obs="derived" keeps rows of its own in each process; use next_obs="stored"'),
        (isinstance(retention, Reservoir), "a Reservoir picks the slots of its steps itself; use Fifo()"),
        (
            any(one.compressed for one in fields.values()),
            "compressed values lie outside the rows; store them as is",
        ),
        (isinstance(sampler, CustomSampler), "a sampler written in Python sees only what its own process adds"),
    ):
        if given:
            raise ConfigError(f"a {type(storage).__name__} takes steps from many processes, but {why}")
    return storage


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
    return Handle(kind, {**options, "storage": opened(storage)})


def opened(storage: Storage | None) -> Storage | None:
    """Return the same storage, but only to be opened."""
    return None if storage is None else replace(storage, create=False)


def differences(found: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """Say in which ways a declaration that was found differs from the one asked for."""
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
