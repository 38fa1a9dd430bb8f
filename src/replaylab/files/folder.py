"""A folder as the storage of a bundle and as its contents, and the lock that admits one writer to it.

An object store can implement the same operations.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock, get_ident
from typing import IO, Any

from replaylab.arguments import checked, place
from replaylab.errors import StorageError
from replaylab.files.atomic import make_folder, settle_folder, sweep, write_bytes

if CAN_LOCK := find_spec("fcntl") is not None:  # not on Windows
    import fcntl


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
        path: Path of the folder.
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


class _Held:
    """A folder's state in this process: the lock between threads, the writing thread, the locked descriptor."""

    def __init__(self) -> None:
        self.lock, self.thread, self.file = RLock(), 0, -1


_folders: dict[Path, _Held] = {}


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder within the block; other writers wait.

    A process that ends releases its lock. On Windows, and on network file systems without locks, only threads of one
    process exclude each other.

    Raises:
        StorageError: The calling thread already holds the lock, because a signal handler has interrupted its write.
    """
    held = _folders.setdefault(folder.resolve(), _Held())
    if held.thread == get_ident():
        raise StorageError(f"a signal handler has interrupted a write to {folder}; write after that has returned")
    with held.lock:  # reentrant: a signal handler here completes its write before this one begins
        try:
            held.thread = get_ident()
            with suppress(OSError):
                if CAN_LOCK and held.file < 0:  # open already if Ctrl-C has interrupted `_close`
                    held.file = os.open(folder, os.O_RDONLY)
                if CAN_LOCK:
                    fcntl.flock(held.file, fcntl.LOCK_EX)
            yield
        finally:
            try:
                if held.file >= 0:
                    with suppress(OSError):
                        fcntl.flock(held.file, fcntl.LOCK_UN)  # closing is not enough if a forked child has it open
                    _close(held)
            finally:
                held.thread = 0


def _close(held: _Held) -> None:
    file, held.file = held.file, -1
    if file >= 0:
        os.close(file)


def _forget() -> None:
    """Drop the parent's locks in a forked child, which has no writer yet."""
    for held in _folders.values():
        _close(held)
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def contents_of(save: Callable[[str], Any]) -> dict[str, bytes]:
    """Return the contents of the files that `save` writes into a folder, by name."""
    with TemporaryDirectory() as folder:
        save(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


@contextmanager
def folder_with(contents: Mapping[str, bytes]) -> Iterator[Path]:
    """Yield a temporary folder with these files."""
    with TemporaryDirectory() as folder:
        for name, content in contents.items():
            (Path(folder) / name).write_bytes(content)
        yield Path(folder)


def digest_of(folder: Path) -> str:
    """Return a digest that differs between successive saves to a folder: that of its manifest, or of all files."""
    manifest = folder / "manifest.json"
    files = [manifest] if manifest.exists() else sorted(folder.iterdir()) if folder.is_dir() else []
    digest = sha256()
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    return digest.hexdigest()
