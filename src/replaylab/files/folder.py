"""The operations that a bundle needs of its storage, for a folder; an object store can implement the same ones."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from replaylab.arguments import checked, place
from replaylab.errors import StorageError
from replaylab.files.atomic import make_folder, settle_folder, sweep, write_bytes
from replaylab.files.one_writer import one_writer


def folder_of(path: Any, call: str) -> Path:
    """Return a path that a caller passed as a resolved `Path`.

    Raises:
        ConfigError: `path` is not a path on this machine.
        StorageError: `path` cannot be resolved.
    """
    name = checked("path", path, place("a folder"), f"`{call}`")
    try:
        return Path(name).resolve()
    except (OSError, RuntimeError) as error:  # symbolic links that form a cycle
        raise StorageError(f"{path} cannot be looked up: {error}") from error


class Folder:
    """A folder on this machine.

    Args:
        path: Where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return [entry.name for entry in self.path.iterdir()]

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: No regular file has this name; pipes and folders are not regular files.
        """
        if not (self.path / name).is_file():
            raise FileNotFoundError(name)
        return (self.path / name).open("rb")

    def measured(self, name: str) -> tuple[int, int]:
        """Return a file's length in bytes and modification time in nanoseconds; (−1, 0) if there is no such file."""
        file = self.path / name
        return (file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else (-1, 0)

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a new file for writing; after the block its contents are on disk."""
        with (self.path / name).open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())

    def settle(self) -> None:
        """Flush the names of created files to disk."""
        settle_folder(self.path)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically and durably.

        Raises:
            StorageError: The file cannot be written.
        """
        write_bytes(self.path / name, content)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, as far as possible."""
        for name in names:
            with suppress(OSError):
                (self.path / name).unlink()

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Create the folder and hold its writer's lock in the block; after an error, remove created empty folders."""
        created = make_folder(self.path)
        try:
            with one_writer(self.path):
                sweep(self.path)
                yield
        except BaseException:
            for folder in created:
                with suppress(OSError):
                    folder.rmdir()
            raise
