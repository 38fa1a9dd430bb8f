"""How much memory a buffer takes, known before it is taken."""

import os
from pathlib import Path
from typing import Any

from replaylab import _core
from replaylab.errors import OverSizeError


def check_memory(
    fields: list[tuple[str, list[int], Any]], capacity: int, replicas: int, sampler: _core.SamplerConfig
) -> None:
    """Raise `OverSizeError` if the buffer needs more memory than the machine has."""
    row = _core.row_nbytes(fields)
    available = machine_memory()
    needed = replicas * capacity * row
    if needed <= available:
        needed += replicas * _core.sampler_nbytes(sampler, capacity)
    if needed > available:
        fits = int(capacity * available / needed)
        raise OverSizeError(
            f"capacity={capacity:,} needs {size_text(needed)} ({row:,} bytes a step"
            f"{f', {replicas:,} replicas' if replicas > 1 else ''}), but this machine has {size_text(available)}; "
            f"use a capacity below {fits:,}, smaller dtypes or fewer fields"
        )


def machine_memory() -> int:
    """Return the bytes of memory this process may have at most: the machine's, or its container's."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such system call here: nothing to check against
        memory = 2**62
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def size_text(nbytes: float) -> str:
    """Return bytes in the unit a person would use."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:,.1f} {unit}" if unit != "bytes" else f"{nbytes:,.0f} bytes"
