"""Memory that a shard and a reader on one node share, so that large rows do not pass through Ray's object store."""

import math
import os
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path
from tempfile import mkstemp
from typing import Any, NamedTuple
from weakref import finalize

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


def mapped(name: str, nbytes: int) -> mmap:
    """Reserve so many bytes for a block of a reader, and return it; nobody else can open it from now on.

    Raises:
        OSError: It does not exist on this node, or no memory is left.
    """
    with Path(name).open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)
        Path(name).unlink()
        return mmap(file.fileno(), nbytes)


class Blocks:
    """The two blocks into which a shard draws for a reader, in turn, since the reader copies one meanwhile.

    Each is an empty file until the shard reserves its memory, which is free once both processes have ended.
    """

    def __init__(self) -> None:
        files = [mkstemp(prefix="replaylab-", dir=FOLDER) for _ in range(2)]
        self._names, self._mapped = [name for _, name in files], dict[str, mmap]()
        self._files = {name: number for number, name in files}
        finalize(self, _remove, self._files)

    def next(self) -> str:
        """Return the name of the block that is filled next."""
        self._names.reverse()
        return self._names[0]

    def arrays(self, placed: Placed) -> dict[str, npt.NDArray[Any]]:
        """Return columns that the shard has placed."""
        if placed.name not in self._mapped:
            number = self._files.pop(placed.name)
            self._mapped[placed.name] = mmap(number, 0)
            os.close(number)
        return placed.arrays(self._mapped[placed.name])


def _remove(files: dict[str, int]) -> None:
    """Close and remove files that no shard has opened."""
    for name, number in files.items():
        os.close(number)
        Path(name).unlink(missing_ok=True)
