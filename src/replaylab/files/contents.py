"""A folder of files as their contents: the form in which a snapshot goes into a pickle or a state."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


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
