"""Readers and writers of NumPy's file formats; a reader allocates at most as many bytes as the file has."""

import ast
import codecs
import zipfile
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from replaylab.files.atomic import whole_file

# `zipfile` decodes names with it. If another thread imported it during a fork, the child would inherit a held lock.
codecs.lookup("cp437")

MOST = 10_000
"""The most bytes of a head that `read_head` accepts by default."""

ALIGNMENT = 64
VERSIONS = (((1, 0), 2, "latin1"), ((2, 0), 4, "latin1"), ((3, 0), 4, "utf-8"))
"""Versions of the ``.npy`` format: number, bytes of the head's length, encoding of the head."""


class Readable(Protocol):
    """The part of an open file's interface that `read_head` uses."""

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or all that are left."""


def head_of(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the head of an ``.npy`` file of `count` entries, in the oldest version that can express it."""
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    for version, width, encoding in VERSIONS:
        try:
            text = repr(about).encode(encoding)
        except UnicodeEncodeError:  # a name outside Latin-1
            continue
        head_size = len(np.lib.format.magic(*version)) + width
        text += b" " * (-(head_size + len(text) + 1) % ALIGNMENT) + b"\n"
        if len(text) < 256**width:
            return np.lib.format.magic(*version) + len(text).to_bytes(width, "little") + text
    raise ValueError(f"{dtype!r:.80} is too large for an .npy file")


def read_head(source: Readable, most: int = MOST) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype in the head of an ``.npy`` file, which may have at most `most` bytes.

    Raises:
        ValueError: The head is invalid; also the other errors that `reading` converts.
    """
    version = np.lib.format.read_magic(source)
    width, encoding = {number: (width, encoding) for number, width, encoding in VERSIONS}[version]
    size = int.from_bytes(source.read(width), "little")
    if size > most:
        raise ValueError(f"an array with a head of {size} bytes")
    return _stated(source.read(size).decode(encoding))


@lru_cache(256)  # the arrays of a state have few distinct heads
def _stated(head: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    about = ast.literal_eval(head.strip())
    shape, dtype = about["shape"], np.lib.format.descr_to_dtype(about["descr"])
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r:.80}")
    if dtype.hasobject or dtype.itemsize == 0 or (about["fortran_order"] and len(shape) > 1):
        raise ValueError(f"an array of {dtype!r:.80} in order {about['fortran_order']!r:.80}")
    return shape, dtype


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to an ``.npz`` file atomically; each has a CRC-32, which `read_arrays` checks.

    Raises:
        StorageError: The file cannot be written.
    """
    with whole_file(path) as temporary, temporary.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)


def read_arrays(source: IO[bytes] | Path, names: Collection[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an uncompressed ``.npz`` file; `names`: only those of them that the file has.

    Raises:
        ValueError: The file is invalid; also the other errors that `reading` converts.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            if member.compress_type != zipfile.ZIP_STORED or name in arrays:
                raise ValueError(f"the array {name!r:.80} is compressed, or appears twice")
            with archive.open(member) as packed:
                shape, dtype = read_head(packed)
                content = packed.read()
            if len(content) != dtype.itemsize * int(np.prod(shape, dtype=object)):
                raise ValueError(f"the array {name!r:.80} does not have the length that its head states")
            arrays[name] = np.frombuffer(content, dtype).reshape(shape).copy()
    return arrays
