"""Bundles: folders that are complete or absent, whatever kills the process that writes them.

A bundle is a folder with a manifest, a JSON object that lists every other file with its length and CRC-32, and has its
own checksum. Files are never changed, only replaced: a writer writes new ones under new names, makes them
durable, and then puts a new manifest in place of the previous one by one atomic rename. So after a kill at any moment,
the manifest and all files that it lists are complete. Files that did not change are listed again instead of written.
A `Schema` declares what a kind of bundle holds. Small data is one file that includes its manifest (`Schema.file`).
"""

import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from shutil import rmtree
from typing import IO, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, Rule, mapping, shown, text, tuple_of, whole
from replaylab.errors import ReplayError, SnapshotError, StorageError
from replaylab.files import npy
from replaylab.files.atomic import writing
from replaylab.files.folder import Folder

COUNT = whole(0)

LISTED = "files in the folder by name, with lengths and checksums"


@dataclass(frozen=True)
class Schema:
    """The name and the contents of a kind of bundle.

    Attributes:
        noun: Name of the bundle in messages, such as "snapshot".
        format: Name of the format in the manifest.
        version: Version of the format; a bundle of another version is refused.
        members: The rule of each member of the manifest, except the members that every bundle has.
        files: Regular expression that the names of its files match.
        manifest: The name of the manifest.
    """

    noun: str
    format: str
    version: int
    members: Mapping[str, Rule[Any]] = field(default_factory=dict)
    files: str = ""
    manifest: str = "manifest.json"

    def manifest_of(self, members: Mapping[str, Any]) -> bytes:
        """Return the bytes of a manifest: the members, JSON values, with format, version and checksum."""
        manifest = {"format": self.format, "version": self.version, **members}
        return json.dumps(manifest | {"crc32": seal(manifest)}, indent=1).encode()

    def checked(self, file: Path, content: bytes, more: Mapping[str, Rule[Any]]) -> dict[str, Any]:
        """Return the members of a manifest; rules receive None for a missing member.

        Raises:
            SnapshotError: The bytes are not those of a manifest of this schema.
        """
        try:
            manifest = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"{file} is damaged: {error}; use another copy") from None
        if not isinstance(manifest, dict) or manifest.get("format") != self.format:
            raise SnapshotError(f"{file} is not part of a {self.format}; pass the folder save() wrote")
        if (version := manifest.get("version")) != self.version:
            raise SnapshotError(
                f"{file} has version {version!r:.80}, but this release reads a {self.noun} of version {self.version}; "
                "use the release that wrote it"
            )
        if manifest.get("crc32") != seal(manifest):
            raise SnapshotError(f"{file} is damaged: it is not what was written; use another copy")
        for name, rule in {**more, **self.members}.items():
            try:
                rule(manifest.get(name))
            except InvalidArgument as invalid:
                raise SnapshotError(
                    f"{file} is not a {self.noun} that this library wrote: `{name}` must be {invalid}, but got "
                    f"{shown(manifest.get(name))}; use another copy"
                ) from None
        return manifest

    def file(self, arrays: Mapping[str, npt.NDArray[Any]], **members: Any) -> bytes:
        """Return arrays as one ``.npz`` file, whose array ``about`` is the manifest; each array has a CRC-32."""
        stream, about = BytesIO(), np.frombuffer(self.manifest_of(members), np.uint8)
        np.savez(stream, allow_pickle=False, about=about, **arrays)
        return stream.getvalue()

    def read_file(
        self, path: Path, names: Collection[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the members and the arrays of a file that `file` wrote; `names`: only these arrays.

        Raises:
            SnapshotError: The file is damaged, or of another kind.
            StorageError: The file cannot be read.
        """
        with reading(path, self.noun):
            arrays = npy.read_arrays(path, None if names is None else ["about", *names])
            return self.checked(path, arrays.pop("about").tobytes(), {}), arrays

    def listed(self, value: Any) -> Any:
        """Files by name, each with its file name in the folder, its length in bytes and its CRC-32."""
        for name, listed in mapping(value).items():
            file = listed.get("file") if isinstance(listed, dict) else None
            stem = file.rpartition("-")[0] if isinstance(file, str) and self.owns(file) else None
            if stem != name:
                raise InvalidArgument(LISTED)
            tuple_of(COUNT, LISTED)([listed.get("bytes"), listed.get("crc32")])
        return value

    def owns(self, file: str) -> bool:
        """Whether a file has the name of one that a `Draft` writes."""
        return re.fullmatch(rf"({self.files})-[0-9a-f]{{32}}\.np[yz]", file, re.ASCII) is not None


@contextmanager
def reading(path: Path, noun: str = "snapshot") -> Iterator[None]:
    """Turn errors of reading files into `SnapshotError` (not as this library writes them) or `StorageError`."""
    try:
        yield
    except ReplayError:
        raise
    except OSError as error:
        raise StorageError(f"the {noun} in {path} cannot be read: {error}") from error
    except (
        *(InvalidArgument, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, EOFError, SyntaxError),
        *(RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise SnapshotError(f"{path} is not a {noun} that this library wrote: {error!r}; use another copy") from error


def seal(manifest: Mapping[str, Any]) -> int:
    """Return the CRC-32 of all members except ``crc32``, as JSON with sorted keys, no spaces and only ASCII."""
    members = {name: value for name, value in manifest.items() if name != "crc32"}
    return zlib.crc32(json.dumps(members, sort_keys=True, separators=(",", ":")).encode())


class Summed:
    """A file that is read or written sequentially, with its length and CRC-32 so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.crc = file, 0, 0

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or all that are left."""
        content = self._file.read(size)
        self._count(content)
        return content

    def readinto(self, memory: memoryview) -> None:
        """Read bytes into memory."""
        self._count(memory[: self._file.readinto(memory)])  # type: ignore[attr-defined]  # a file has it

    def write(self, content: Any) -> int:
        """Write bytes."""
        self._count(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""

    def _count(self, block: bytes | memoryview) -> None:
        self.size, self.crc = self.size + len(block), zlib.crc32(block, self.crc)


@dataclass(frozen=True)
class Contents:
    """A complete bundle on disk: the members of its manifest, and its files by name.

    Attributes:
        folder: The folder that holds it.
        noun: Name of the bundle in messages.
        members: Members of the manifest.
    """

    folder: Folder
    noun: str
    members: dict[str, Any]

    def __getitem__(self, member: str) -> Any:
        return self.members[member]

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """The manifest's entry of each file: its file name, length and CRC-32."""
        files: dict[str, dict[str, Any]] = self.members["files"]
        return files

    @contextmanager
    def opened(self, name: str) -> Iterator[Summed]:
        """Yield a file that must be read to its end; its length and checksum are compared after the block.

        Raises:
            SnapshotError: It is missing or damaged.
        """
        if name not in self.files:
            raise SnapshotError(f"the {self.noun} is not complete: {self.folder.path} lists no file of {name}")
        listed = self.files[name]
        file = self.folder.path / listed["file"]
        damaged = SnapshotError(f"the {self.noun} is damaged: {file} is not what was written; use another copy")
        try:
            source = self.folder.open(listed["file"])
        except FileNotFoundError:
            raise SnapshotError(f"the {self.noun} is not complete: {file} is missing; use another copy") from None
        with source:
            if self.folder.measured(listed["file"])[0] != listed["bytes"]:
                raise damaged
            yield (summed := Summed(source))
            if (summed.size, summed.crc) != (listed["bytes"], listed["crc32"]):
                raise damaged

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays of an ``.npz`` file, after checking it.

        Raises:
            SnapshotError: It is missing or damaged.
        """
        with self.opened(name) as source:
            content = source.read(self.files[name]["bytes"])
        return npy.read_arrays(BytesIO(content))

    def array(self, name: str, dtype: np.dtype[Any], memory: npt.NDArray[np.uint8]) -> None:
        """Read the entries of an ``.npy`` file into memory of bytes (n, itemsize).

        Raises:
            SnapshotError: The file is missing or damaged, or holds entries of another dtype or number.
        """
        with self.opened(name) as source:
            file = self.folder.path / self.files[name]["file"]
            with reading(file, self.noun):
                shape, stored = npy.read_head(source, npy.MOST + 2 * len(npy.head_of(dtype, len(memory))))
            if stored != dtype or shape != (len(memory),):
                raise SnapshotError(f"{file} holds rows of another layout than this buffer's; it cannot be read")
            source.readinto(flat(memory))


class Draft:
    """A bundle that is being written.

    Attributes:
        token: A random name, which its manifest and the names of its files contain.
        before: The bundle that the folder holds; None if it holds none.
    """

    def __init__(self, bundle: "Bundle", before: Contents | None) -> None:
        self._bundle, self._folder, self.before = bundle, bundle.folder, before
        self.token = uuid4().hex
        self._members: dict[str, Any] = {}
        self._files: dict[str, dict[str, Any]] = {}
        self._folders: list[Path] = []

    def describe(self, **members: Any) -> dict[str, Any]:
        """Set the members of the manifest, and return them as JSON values, as a reader will see them."""
        self._members = json.loads(json.dumps(members))
        return self._members

    def arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write arrays to an ``.npz`` file."""
        with self._created(name, ".npz") as out:
            np.savez(out, allow_pickle=False, **arrays)

    def array(self, name: str, dtype: np.dtype[Any], memory: npt.NDArray[np.uint8], unchanged: bool = False) -> None:
        """Write entries, given as bytes (n, itemsize), to an ``.npy`` file.

        `unchanged`: The previous bundle has the same entries; its file is listed again if its length and modification
        time show that it was not changed.
        """
        head = npy.head_of(dtype, len(memory))
        listed = self.before.files.get(name) if unchanged and self.before is not None else None
        if listed is not None and listed["bytes"] == len(head) + memory.size:
            size, changed = self._folder.measured(listed["file"])
            if size == listed["bytes"] and changed <= self._folder.measured(self._bundle.schema.manifest)[1]:
                self._files[name] = listed
                return
        with reading(self._folder.path, self._bundle.schema.noun):
            if npy.read_head(BytesIO(head), len(head)) != ((len(memory),), dtype):
                raise ValueError(f"{dtype!r:.80} would not be read back")
        with self._created(name, ".npy") as out:
            out.write(head)
            out.write(flat(memory))

    def folder(self, name: str) -> Path:
        """Return a folder beside the files for the caller to fill; if it is new, a failing write removes it."""
        path = self._folder.path / name
        self._folders += [] if path.exists() else [path]
        return path

    def drop_folders(self) -> None:
        """Remove the new folders."""
        for path in self._folders:
            rmtree(path, ignore_errors=True)

    def seal(self) -> None:
        """Replace the previous manifest, after parsing the new one and checking the lengths of the written files."""
        content = self._bundle.schema.manifest_of({"token": self.token, **self._members, "files": self._files})
        for listed in self._bundle.parsed(content).files.values():
            if self._folder.measured(listed["file"])[0] != listed["bytes"]:
                raise StorageError(f"{self._folder.path / listed['file']} was changed while it was written; save again")
        self._folder.settle()
        self._folder.replace(self._bundle.schema.manifest, content)

    @contextmanager
    def _created(self, name: str, suffix: str) -> Iterator[Summed]:
        file = f"{name}-{self.token}{suffix}"
        with self._folder.create(file) as out:
            yield (summed := Summed(out))
        self._files[name] = {"file": file, "bytes": summed.size, "crc32": summed.crc}


class Bundle:
    """A folder of files that is complete or absent.

    Args:
        path: The folder.
        schema: Declaration of its contents.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        self.folder, self.schema = Folder(path), schema

    def exists(self) -> bool:
        """Whether the folder has a manifest."""
        return (self.folder.path / self.schema.manifest).exists()

    def read(self) -> Contents:
        """Return the bundle that the folder holds; its files are checked when they are read.

        Raises:
            SnapshotError: There is no bundle, or it is damaged or of another format.
            StorageError: The manifest cannot be read.
        """
        with reading(self.folder.path, self.schema.noun):
            try:
                with self.folder.open(self.schema.manifest) as source:
                    content = source.read()
            except FileNotFoundError:
                reason = f"holds no {self.schema.noun}: there is no {self.schema.manifest} in it"
                if self.folder.path.is_file():
                    reason = (
                        f"is a file, but a {self.schema.noun} is a folder; a pickle is for the library that wrote it"
                    )
                raise SnapshotError(f"{self.folder.path} {reason}; pass the folder save() wrote") from None
            return self.parsed(content)

    def parsed(self, content: bytes) -> Contents:
        """Return the bundle of a manifest's bytes.

        Raises:
            SnapshotError: They are not those of a manifest of this schema.
        """
        file, rules = self.folder.path / self.schema.manifest, {"token": text, "files": self.schema.listed}
        return Contents(self.folder, self.schema.noun, self.schema.checked(file, content, rules))

    @contextmanager
    def replacing(self) -> Iterator[Draft]:
        """Yield a draft, which replaces the previous bundle when the block ends without error.

        A write that fails leaves the previous bundle unchanged, and removes its own files. Writers to one folder wait
        for each other.

        Raises:
            SnapshotError: The folder holds something other than a complete bundle of this schema.
            StorageError: The folder cannot be created or written to.
        """
        with writing(self.folder.path), self.folder.writer():
            draft = Draft(self, self.read() if self.exists() else None)
            self._tidy(draft.before)
            try:
                yield draft
                draft.seal()
            finally:  # also after an interrupt, which may come right after the rename
                contents = self.read() if self.exists() else None
                self._tidy(contents)
                if contents is None or contents["token"] != draft.token:
                    draft.drop_folders()

    def _tidy(self, contents: Contents | None) -> None:
        """Remove files of interrupted writes, and those that are no longer listed."""
        listed_files = {listed["file"] for listed in contents.files.values()} if contents else set()
        self.folder.delete(name for name in self.folder.names() if self.schema.owns(name) and name not in listed_files)


def flat(memory: npt.NDArray[np.uint8]) -> memoryview:
    """Return an array of bytes as a flat memoryview; empty arrays cannot be cast."""
    return memory.data.cast("B") if memory.size else memoryview(bytearray())
