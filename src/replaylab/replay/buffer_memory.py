"""The memory that a buffer needs, checked before it is allocated, and options that would reduce it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from replaylab import _core
from replaylab.errors import OverSizeError, ReplayError
from replaylab.machine import machine_memory, size_text
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.fields import Field, core_fields, single_frame
from replaylab.replay.storage import MemoryMap
from replaylab.replay.transforms import FrameStack
from replaylab.trees import unflatten

LARGEST = 2**40
"""Sizes above this are refused without asking the core, so that its arithmetic cannot overflow."""

HEADROOM = 0.8
"""The share of the memory that a suggested capacity uses; the rest is for the learner and the system."""

MOST_FRAMES = 8
"""An image whose first axis has length 2 to this is assumed to be a stack of frames."""


def check_memory(config: BufferConfig) -> None:
    """Raise `OverSizeError` if the buffer needs more memory than the machine has; rows on disk need none.

    Of compressed fields only the references in the rows are counted: the compressed size is not known in advance.
    """
    fields, capacity, replicas = core_fields(config.stored_fields), config.capacity, config.replicas or 1
    row = sum(field.nbytes for field in config.stored_fields.values())
    if row < LARGEST:
        row = _core.row_nbytes(fields, config.core_transforms)
    replica_nbytes, extra_nbytes = capacity * row, 0
    if replica_nbytes < 2**54:  # otherwise it is refused in any case
        replica_nbytes, extra_nbytes = _core.replica_nbytes(
            fields,
            capacity,
            config.num_envs or 1,
            config.sampler.core_config(),
            config.core_transforms,
            config.retention.core_kind,
            config.count_replays,
        )
        on_disk = config.storage is not None and config.storage.on_disk
        replica_nbytes += capacity * config.sampler.record_nbytes - ((capacity + 1) * row if on_disk else 0)
    available = machine_memory()
    if replicas * replica_nbytes <= available:
        return
    if replica_nbytes > available // replicas and replica_nbytes <= available:
        fix = f"use at most {available // replica_nbytes:,} replicas, or a smaller capacity"
    else:
        fitting = int(capacity * available / (replicas * replica_nbytes) * HEADROOM)
        fix = f"use a capacity of at most {fitting:,}" if fitting else "use a smaller shape"
    if extra_nbytes:
        packed = any(field.compressed for field in config.stored_fields.values())
        derived = config.core_transforms.derived
        causes = "compressed fields" if packed else "closing rows of `next_obs`" if derived else "episodes"
        fix = f"({causes} come on top, at most {size_text(replicas * extra_nbytes)}) {fix}"
    raise OverSizeError(
        f"capacity={capacity:,} needs {size_text(replicas * replica_nbytes)} ({row:,} bytes a step"
        f"{f', {replicas:,} replicas' if replicas > 1 else ''}), but this machine has {size_text(available)}; "
        f"{fix}{', smaller dtypes or fewer fields' if config.stored_fields else ''}"
        f"{''.join(f'; or {remedy}' for remedy in remedies(config))}"
    )


def remedies(config: BufferConfig) -> list[str]:
    """Return declarations that need less memory, as text for an error message; only valid ones."""
    accepted = []
    for text, options in _options(config):
        with suppress(ReplayError):
            BufferConfig(**config.arguments() | options)
            accepted.append(text)
    return accepted


def _options(config: BufferConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    if config.rows_elsewhere:
        return
    flat, tops = config.flat, {path: path.partition(".")[0] for path in config.flat}
    if "next_obs" in tops.values() and config.next_obs == "stored":
        yield 'next_obs="derived", which stores each observation once', {"next_obs": "derived"}
    images = {path: field for path, field in flat.items() if field.dtype == np.uint8 and len(field.shape) >= 2}
    stacks = {
        path: field
        for path, field in images.items()
        if tops[path] in ("obs", "next_obs") and len(field.shape) >= 3 and 2 <= field.shape[0] <= MOST_FRAMES
    }
    if stacks:
        length = min(field.shape[0] for field in stacks.values())
        single = {path: single_frame(field) for path, field in stacks.items()}
        transforms = (*config.transforms, FrameStack(length, stacked_input=True))
        text = f"FrameStack({length}, stacked_input=True), which stores each frame once, if observations are stacks"
        yield text, {"fields": unflatten(config.fields, iter((flat | single).values())), "transforms": transforms}
    packed = {
        path: Field(field.shape, field.dtype, compressed=True)
        for path, field in images.items()
        if field.compressible and not field.compressed
    }
    if packed:
        text = "compressed=True of the fields that hold images"
        yield text, {"fields": unflatten(config.fields, iter((flat | packed).values()))}
    if config.storage is None:
        yield "storage=MemoryMap(path), which keeps the rows on disk", {"storage": MemoryMap("rows")}
