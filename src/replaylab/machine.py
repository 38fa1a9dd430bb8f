"""The memory of this machine, and whether a batch fits into it."""

import os
from pathlib import Path

from replaylab.errors import OverSizeError

SMALL = 2**20
"""Bytes of a batch for which the memory is not looked up: reading the container's limit takes longer than a draw."""


def machine_memory() -> int:
    """Return the bytes of memory this process may have at most: the machine's, or its container's."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such system call on this platform: no limit is known
        memory = 2**62
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def check_batch_memory(row_nbytes: int, rows: int) -> None:
    """Raise `OverSizeError` if a batch of this many rows needs more memory than the machine has."""
    nbytes = rows * row_nbytes
    if nbytes > SMALL and nbytes > machine_memory():
        raise OverSizeError(
            f"a batch of {rows:,} rows needs {size_text(nbytes)}, but this machine has "
            f"{size_text(machine_memory())}; use a smaller batch_size"
        )


def size_text(nbytes: float) -> str:
    """Return a number of bytes as text with a suitable unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:,.1f} {unit}" if unit != "bytes" else f"{nbytes:,.0f} bytes"
