"""How much memory a buffer takes, known before it is taken."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replaylab import _core
from replaylab.errors import OverSizeError
from replaylab.replay.data.fields import Field

LARGEST = 2**40
"""Sizes past this are only ever refused, so that nothing handed to the core can overflow."""


def check_memory(
    fields: Mapping[str, Field],
    capacity: int,
    replicas: int,
    num_envs: int,
    sampler: _core.SamplerConfig,
    transforms: _core.TransformConfig,
    retention: _core.Retention,
    count_replays: bool,
    on_disk: bool = False,
    record: int = 0,
) -> None:
    """Raise `OverSizeError` if the buffer needs more memory than the machine has; rows on disk need none.

    `record` is how many bytes are noted in Python about each step.

    Of compressed fields only what their rows hold is counted: how far they shrink is known once they are there.
    """
    row = sum(field.nbytes for field in fields.values())
    if row < LARGEST:
        row = _core.row_nbytes(core_fields(fields), transforms)
    one, grown = capacity * row, 0
    if one < 2**54:  # else nothing more is needed to refuse it
        one, grown = _core.replica_nbytes(
            core_fields(fields), capacity, num_envs, sampler, transforms, retention, count_replays
        )
        one += capacity * record - ((capacity + 1) * row if on_disk else 0)
    available = machine_memory()
    if replicas * one <= available:
        return
    if one > available // replicas and one <= available:
        mend = f"use at most {available // one:,} replicas, or a smaller capacity"
    else:
        fitting = int(capacity * available / (replicas * one) * 0.99)
        mend = f"use a capacity of at most {fitting:,}" if fitting else "use a smaller shape"
    if grown:
        packed = any(field.compressed for field in fields.values())
        what = "compressed fields" if packed else "closing rows of `next_obs`" if transforms.derived else "episodes"
        mend = f"({what} come on top, at most {size_text(replicas * grown)}) {mend}"
    raise OverSizeError(
        f"capacity={capacity:,} needs {size_text(replicas * one)} ({row:,} bytes a step"
        f"{f', {replicas:,} replicas' if replicas > 1 else ''}), but this machine has {size_text(available)}; "
        f"{mend}{', smaller dtypes or fewer fields' if fields else ''}"
    )


def check_batch_memory(row_nbytes: int, rows: int) -> None:
    """Raise `OverSizeError` if a batch of so many rows needs more memory than the machine has."""
    needed = rows * row_nbytes
    if needed > machine_memory():
        raise OverSizeError(
            f"a batch of {rows:,} rows needs {size_text(needed)}, but this machine has "
            f"{size_text(machine_memory())}; use a smaller batch_size"
        )


def core_fields(fields: Mapping[str, Field]) -> list[tuple[str, list[int], Any, bool]]:
    """Return the fields as the compiled core takes them: name, shape, dtype, whether compressed."""
    return [(name, list(field.shape), field.dtype, field.compressed) for name, field in fields.items()]


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
