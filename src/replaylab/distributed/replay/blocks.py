"""Memory that a shard and a reader on one node share, so that large rows do not pass through Ray's object store."""

import math
import os
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

FOLDER = Path("/dev/shm")
"""Folder of files in memory; other systems than Linux have none."""


class Placed(NamedTuple):
    """Columns in a block."""

    name: str  # of the block
    places: dict[str, tuple[int, str, tuple[int, ...]]]  # path → offset in bytes, dtype, and shape
    end: int  # bytes, all together

    @classmethod
    def like(cls, name: str, columns: Mapping[str, npt.NDArray[Any]], rows: int) -> "Placed":
        """Place columns of so many rows like others."""
        places, end = {}, 0
        for path, column in columns.items():
            places[path] = end, column.dtype.str, (rows, *column.shape[1:])
            end += -(-rows * column[0].nbytes // 64) * 64
        return cls(name, places, end)

    def arrays(self, memory: mmap) -> dict[str, npt.NDArray[Any]]:
        """Return the columns, views of the block."""
        return {
            path: np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape)
            for path, (offset, dtype, shape) in self.places.items()
        }


def mapped(name: str, nbytes: int = 0) -> mmap:
    """Return a block, of which so many bytes are reserved first.

    Raises:
        OSError: It does not exist on this node, or no memory is left.
    """
    with (FOLDER / name).open("r+b") as file:
        if nbytes:
            os.posix_fallocate(file.fileno(), 0, nbytes)
        return mmap(file.fileno(), 0)


class Blocks:
    """The two blocks into which a shard draws for a reader, in turn, since the reader copies one meanwhile."""

    def __init__(self) -> None:
        self._names = [f"replaylab-{uuid4().hex}" for _ in range(2)]
        self._mapped: dict[str, mmap] = {}
        for name in self._names:
            (FOLDER / name).touch(0o600)

    def next(self) -> str:
        """Return the name of the block that is filled next."""
        self._names.reverse()
        return self._names[0]

    def arrays(self, placed: Placed) -> dict[str, npt.NDArray[Any]]:
        """Return columns that the shard has placed; the block's memory is free once both processes have ended."""
        if placed.name not in self._mapped:
            self._mapped[placed.name] = mapped(placed.name)
            (FOLDER / placed.name).unlink()
        return placed.arrays(self._mapped[placed.name])

    def __del__(self) -> None:
        for name in self._names:
            (FOLDER / name).unlink(missing_ok=True)
