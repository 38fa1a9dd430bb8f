"""The memory of a batch, checked before it is allocated, and sizes as text."""

from collections.abc import Mapping
from typing import Any

from replaylab.errors import OverSizeError
from replaylab.machine import machine_memory
from replaylab.replay.data.fields import Field

SMALL = 2**20
"""Bytes of a batch for which the memory is not looked up: reading the container's limit takes longer than a draw."""


def check_batch_memory(row_nbytes: int, rows: int) -> None:
    """Raise `OverSizeError` if a batch of this many rows needs more memory than the machine has."""
    nbytes = rows * row_nbytes
    if nbytes > SMALL and nbytes > machine_memory():
        raise OverSizeError(
            f"a batch of {rows:,} rows needs {size_text(nbytes)}, but this machine has "
            f"{size_text(machine_memory())}; use a smaller batch_size"
        )


def core_fields(fields: Mapping[str, Field]) -> list[tuple[str, list[int], Any, bool]]:
    """Return the fields as the compiled core takes them: name, shape, dtype, whether compressed."""
    return [(name, list(field.shape), field.dtype, field.compressed) for name, field in fields.items()]


def size_text(nbytes: float) -> str:
    """Return a number of bytes as text with a suitable unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:,.1f} {unit}" if unit != "bytes" else f"{nbytes:,.0f} bytes"
