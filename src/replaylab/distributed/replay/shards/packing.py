"""Calls and answers as bytes: what carries them pickles small arrays more slowly than it sends them.

Up to `INLINE` bytes all is one ``bytes``, which Ray sends within the message as it is. Of more, the arrays stay beside
the rest, and Ray copies them into its object store, once.
"""

import pickle
from copyreg import dispatch_table
from io import BytesIO
from struct import pack, unpack_from
from typing import Any

import numpy as np
import numpy.typing as npt

INLINE = 100_000
"""Bytes that are sent within a message: what Ray sends so, less a little for what it adds."""

ALIGNED = 16
"""Where arrays begin: at multiples of so many bytes, as the contents of a ``bytes`` do in CPython."""

Packed = bytes | list[Any]


def packed(value: Any) -> Packed:
    """Return a value that can be pickled, so that it can be sent; large arrays in it are not copied.

    Example:
        >>> unpacked(packed({"x": np.arange(3), "n": (1, None)}))
        {'x': array([0, 1, 2]), 'n': (1, None)}
    """
    buffers: list[pickle.PickleBuffer] = []
    file = BytesIO()
    _Pickler(file, 5, buffer_callback=buffers.append).dump(value)
    raw = [buffer.raw() for buffer in buffers]
    sizes = [block.nbytes for block in raw]
    head = file.getvalue()
    if sum(sizes) + len(head) > INLINE:
        return [head, *(np.frombuffer(block, np.uint8) for block in raw)]
    counts = pack(f"<{len(raw) + 2}q", len(raw), len(head), *sizes)
    parts = [counts, head, bytes(-(len(counts) + len(head)) % ALIGNED)]
    return b"".join((*parts, *(part for block in raw for part in (block, bytes(-block.nbytes % ALIGNED)))))


def unpacked(content: Packed) -> Any:
    """Return the packed value; its arrays are read-only views of `content`."""
    if not isinstance(content, bytes):
        return pickle.loads(content[0], buffers=content[1:])
    count, start = unpack_from("<2q", content)
    sizes = unpack_from(f"<{count}q", content, 16)
    view, at = memoryview(content), 16 + 8 * count
    head, buffers, at = view[at:], list[memoryview](), at + start
    for size in sizes:
        at += -at % ALIGNED
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(head, buffers=buffers)  # and stops where it ends


def answered(shard: Any, message: Packed, parcel: Packed | None = None) -> Packed:
    """Make a packed call of a shard, and return its packed answer.

    Args:
        shard: The shard.
        message: Packed: the method's name, its arguments, and others after them, packed, or None.
        parcel: Those, where they are not in the message.
    """
    method, arguments, more = unpacked(message)
    more = more or parcel
    return packed(getattr(shard, method)(*arguments, *(unpacked(more) if more else ())))


def _reduced(array: npt.NDArray[Any]) -> Any:
    """Return how an array is pickled: as NumPy does, with less around it."""
    if array.dtype.kind not in "biufc" or not array.size:
        return array.__reduce_ex__(4)
    contiguous = array if array.flags.c_contiguous else array.copy()
    return np.ndarray, (array.shape, array.dtype.str, pickle.PickleBuffer(contiguous.data))


class _Pickler(pickle.Pickler):
    dispatch_table = dispatch_table | {np.ndarray: _reduced}
