"""NumPy's own file formats, read so that no file, whatever its bytes are, takes more memory than it is long."""

import ast
import codecs
import zipfile
from functools import lru_cache
from typing import IO, Any

import numpy as np
import numpy.typing as npt

# Of the names in archives. A fork while another thread imports it would leave the child a lock that nobody has.
codecs.lookup("cp437")

MOST = 10_000
"""Bytes of a head that is read without knowing how long it should be."""

ALIGNMENT = 64
VERSIONS = (((1, 0), 2, "latin1"), ((2, 0), 4, "latin1"), ((3, 0), 4, "utf-8"))
"""Of the ``.npy`` format: its number, the bytes of the head's length, and what the head is encoded in."""


def head_of(dtype: np.dtype[Any], count: int) -> bytes:
    """Return how an ``.npy`` file of so many entries begins, in the first version of the format that can say it."""
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    for version, width, encoding in VERSIONS:
        try:
            text = repr(about).encode(encoding)
        except UnicodeEncodeError:  # a name outside Latin-1
            continue
        begun = len(np.lib.format.magic(*version)) + width
        text += b" " * (-(begun + len(text) + 1) % ALIGNMENT) + b"\n"
        if len(text) < 256**width:
            return np.lib.format.magic(*version) + len(text).to_bytes(width, "little") + text
    raise ValueError(f"{dtype!r:.80} is too large for an .npy file")


def read_head(source: IO[bytes], most: int = MOST) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype that an ``.npy`` file states, in at most so many bytes.

    Raises:
        ValueError and what `reading` names besides: It has no valid head.
    """
    found = np.lib.format.read_magic(source)
    width, encoding = {version: (width, encoding) for version, width, encoding in VERSIONS}[found]
    size = int.from_bytes(source.read(width), "little")
    if size > most:
        raise ValueError(f"an array with a head of {size} bytes")
    return _stated(source.read(size).decode(encoding))


@lru_cache(256)  # the arrays of a state have few lengths between them
def _stated(head: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    about = ast.literal_eval(head.strip())
    shape, dtype = about["shape"], np.lib.format.descr_to_dtype(about["descr"])
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r:.80}")
    if dtype.hasobject or dtype.itemsize == 0 or (about["fortran_order"] and len(shape) > 1):
        raise ValueError(f"an array of {dtype!r:.80} in order {about['fortran_order']!r:.80}")
    return shape, dtype


def read_arrays(source: IO[bytes], *, heads_alone: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an ``.npz`` file as `numpy.savez` writes it; `heads_alone`: empty ones of their dtypes.

    Raises:
        ValueError and what `reading` names besides: It is not such a file.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type != zipfile.ZIP_STORED or name in arrays:
                raise ValueError(f"the array {name!r:.80} is compressed, or there twice")
            with archive.open(member) as packed:
                shape, dtype = read_head(packed)
                content = b"" if heads_alone else packed.read()
            if not heads_alone and len(content) != dtype.itemsize * int(np.prod(shape, dtype=object)):
                raise ValueError(f"the array {name!r:.80} has another length than it states")
            arrays[name] = np.frombuffer(content, dtype).reshape((0,) if heads_alone else shape).copy()
    return arrays
