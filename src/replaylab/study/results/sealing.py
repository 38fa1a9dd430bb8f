"""A Parquet file that holds its own checksum, so that it needs no second file beside it.

The footer has an entry whose value is the SHA-256 of the whole file's bytes, taken while that value is still 64 zeros.
Any reader of Parquet skips over it.
"""

from __future__ import annotations

import enum
import hashlib

_KEY, _ZEROS = b"replaylab_sha256", b"0" * 64
_MARK = _KEY + bytes([0x18, 64])  # Thrift: the second field, a text of 64 bytes

BLANK = {_KEY.decode(): _ZEROS.decode()}
"""The entry of the footer to be written last, before `seal`."""


class Seal(enum.Enum):
    """What a file's checksum says."""

    NONE = enum.auto()
    """There is none."""

    WHOLE = enum.auto()
    BROKEN = enum.auto()


def seal(content: bytearray) -> None:
    """Write the checksum of a file's bytes, which have a `BLANK` entry, into them."""
    start = content.rindex(_MARK) + len(_MARK)
    content[start : start + 64] = hashlib.sha256(content).hexdigest().encode()


def seal_of(file: bytes) -> Seal:
    """Compare a file's bytes with their checksum."""
    content = bytearray(file)
    start = content.rfind(_MARK) + len(_MARK)
    if start < len(_MARK):
        return Seal.NONE
    written = bytes(content[start : start + 64])
    content[start : start + 64] = _ZEROS
    return Seal.WHOLE if written == hashlib.sha256(content).hexdigest().encode() else Seal.BROKEN
