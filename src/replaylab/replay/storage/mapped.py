"""The library's own places for rows: a file on disk, and memory that several processes share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from replaylab.arguments import InvalidArgument, check, encodable, option, place
from replaylab.errors import StorageError
from replaylab.replay.storage.storage import MEMBERS

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
