"""A Parquet file that holds its own checksum, so that it needs no second file beside it.

Between its rows and its footer, where no reader of Parquet looks, is the SHA-256 of all its other bytes.
"""

from __future__ import annotations

from hashlib import sha256


def sealed(content: bytes) -> bytes:
    """Return a Parquet file with its checksum."""
    at = _footer(content)
    return content[:at] + sha256(content).digest() + content[at:]


def is_sealed(file: bytes) -> bool:
    """Return whether a file holds a checksum that matches its other bytes."""
    at = _footer(file)
    return at >= 32 and file[at - 32 : at] == sha256(file[: at - 32] + file[at:]).digest()


def _footer(content: bytes) -> int:
    """Return where a Parquet file's footer begins, by the length that stands behind it."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")
