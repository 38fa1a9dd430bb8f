"""Tapes: files of which steps each draw of a run was made of.

A tape is an ``.npz`` file as `numpy.savez` writes it, not compressed, in pieces of `PIECE` draws that are read one by
one. Each array carries a CRC-32, which is checked when it is read. Shapes: R replicas, P draws of a piece, B rows.

* ``about``: int64 (5,): `VERSION`, draws, R, B, and draws in a piece;
* ``newest.K``: int64 (R, P), the largest id of each draw of piece K;
* ``behind.K``: how far each row's id is below that, (R, P, B), in the narrowest unsigned integers that hold it.
"""

import os
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import place, takes
from replaylab.errors import ConfigError, ShapeError, SnapshotError, StorageError
from replaylab.files import npy
from replaylab.files.atomic import whole_file
from replaylab.files.manifest import reading, whole

VERSION = 1

_LARGEST = np.iinfo(np.int64).max

PIECE = 1_000
"""Draws in a piece."""

_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)

Ids = npt.NDArray[np.int64]


class TapeWriter:
    """Takes note of draws, and writes them as a tape.

    Draws that are complete pieces are packed: two bytes a row, where a buffer holds up to 65,536 steps.

    Example:
        >>> from replaylab import Field, ReplayBuffer
        >>> from replaylab.replay import TapeWriter
        >>> buffer, writer = ReplayBuffer(100, {"x": Field()}, seed=0), TapeWriter()
        >>> ids = buffer.extend(x=range(50))
        >>> for _ in range(3):
        ...     writer.append(buffer.sample(8).id)
        >>> len(writer)
        3
    """

    def __init__(self) -> None:
        self._packed: list[tuple[Ids, npt.NDArray[Any]]] = []
        self._open: list[Ids] = []

    def __len__(self) -> int:
        """How many draws there are."""
        return sum(len(newest[0]) for newest, _ in self._packed) + len(self._open)

    def append(self, ids: npt.ArrayLike) -> None:
        """Take note of one draw.

        Args:
            ids: ``batch.id``, int64 ``[R] B``, of the same shape each time.

        Raises:
            ShapeError: It is of another shape.
            ConfigError: An id is negative or none.
        """
        drawn = np.asarray(ids)
        if drawn.dtype.kind not in "iu" or (drawn < 0).any() or (drawn > _LARGEST).any():
            raise ConfigError(f"`ids` of a tape must be whole numbers from 0 on, such as batch.id, but got {ids!r:.80}")
        drawn = drawn.astype(np.int64).reshape(-1, drawn.shape[-1]) if drawn.ndim else drawn
        shape = self._shape
        if drawn.ndim != 2 or 0 in drawn.shape or shape not in (None, drawn.shape):
            wanted = "[R] B" if shape is None else f"{shape}, as the draws before,"
            raise ShapeError(f"`ids` of a tape must be of shape {wanted} but got {np.shape(ids)}")
        self._open.append(drawn)
        if len(self._open) == PIECE:
            self._packed.append(_packed(self._open))
            self._open = []

    def join(self, other: "TapeWriter") -> None:
        """Put the replicas of another recording behind one's own.

        Args:
            other: As many draws of as many rows.

        Raises:
            ShapeError: It has others.
        """
        rows = [one._shape and one._shape[1] for one in (self, other)]
        if (len(self), rows[0]) != (len(other), rows[1]):
            raise ShapeError(
                f"recordings that are joined must have as many draws of as many rows, but got {len(self)} of {rows[0]} "
                f"and {len(other)} of {rows[1]}"
            )
        pairs = zip(self._packed, other._packed, strict=True)
        self._packed = [(np.concatenate((a, c)), np.concatenate((b, d))) for (a, b), (c, d) in pairs]
        self._open = [np.concatenate(both) for both in zip(self._open, other._open, strict=True)]

    def content(self) -> bytes:
        """Return the tape as the bytes of its file."""
        stream = BytesIO()
        self._write(stream)
        return stream.getvalue()

    @takes(path=place("a tape"))
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the tape, wholly or not at all.

        Raises:
            ConfigError: There is no draw.
            StorageError: It cannot be written.
        """
        with whole_file(Path(path)) as temporary, temporary.open("wb") as stream:
            self._write(stream)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything, as arrays (R, ...) by name."""
        pieces = self._pieces()
        newest = {f"newest{k}": one for k, (one, _) in enumerate(pieces)}
        return newest | {f"behind{k}": one for k, (_, one) in enumerate(pieces)}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        count = sum(name.startswith("newest") for name in state)
        pieces = [(state[f"newest{k}"], state[f"behind{k}"]) for k in range(count)]
        self._open = []
        if pieces and pieces[-1][0].shape[1] < PIECE:
            newest, behind = pieces.pop()
            self._open = list(np.moveaxis(_unpacked(newest, behind), 1, 0))
        self._packed = pieces

    @property
    def _shape(self) -> tuple[int, int] | None:
        if self._open:
            return self._open[0].shape[0], self._open[0].shape[1]
        if self._packed:
            behind = self._packed[-1][1]
            return behind.shape[0], behind.shape[2]
        return None

    def _pieces(self) -> list[tuple[Ids, npt.NDArray[Any]]]:
        return [*self._packed, *([_packed(self._open)] if self._open else [])]

    def _write(self, stream: IO[bytes]) -> None:
        if self._shape is None:
            raise ConfigError("a tape must hold at least one draw, but none was taken note of; append one first")
        arrays: dict[str, npt.NDArray[Any]] = {"about": np.array([VERSION, len(self), *self._shape, PIECE])}
        for k, (newest, behind) in enumerate(self._pieces()):
            arrays |= {f"newest.{k}": newest, f"behind.{k}": behind}
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # a stream


class TapeReader:
    """Reads a tape piece by piece.

    Args:
        path: Its file.

    Attributes:
        draws: How many it holds.
        replicas: R.
        rows: B.

    Raises:
        StorageError: It cannot be read.
        SnapshotError: It is damaged, or no tape.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._piece, self._ids = -1, np.empty((0, 0, 0), np.int64)
        if not self._path.is_file():
            raise StorageError(f"there is no tape at {self._path}; record one with TapeRecorder or TapeWriter")
        about = [whole(one, 2**62) for one in self._array("about").tolist()]
        with reading(self._path, "tape"):
            version, self.draws, self.replicas, self.rows, self._length = about
            if version != VERSION:
                raise SnapshotError(
                    f"the tape {self._path} is of version {version}, but this library reads {VERSION}; record it again"
                )

    def ids(self, draw: int) -> Ids:
        """Return the ids of one draw of every replica, (R, B).

        Raises:
            SnapshotError: The tape is damaged.
        """
        piece, place = divmod(draw, self._length)
        if piece != self._piece:
            newest, behind = self._array(f"newest.{piece}"), self._array(f"behind.{piece}")
            length = min(self._length, self.draws - piece * self._length)
            if newest.shape != (self.replicas, length) or behind.shape != (self.replicas, length, self.rows):
                raise SnapshotError(f"the tape {self._path} is damaged: its piece {piece} has another shape")
            self._piece, self._ids = piece, _unpacked(newest, behind)
        return self._ids[:, place]

    def _array(self, name: str) -> npt.NDArray[Any]:
        with reading(self._path, "tape"), zipfile.ZipFile(self._path) as archive:
            member = archive.getinfo(f"{name}.npy")
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"the array {name} is compressed")
            with archive.open(member) as source:
                shape, dtype = npy.read_head(source)
                content = source.read()  # to the end, where its CRC-32 is compared
            if dtype.kind not in "iu" or len(content) != dtype.itemsize * int(np.prod(shape, dtype=object)):
                raise ValueError(f"the array {name} is not what was written")
            return np.frombuffer(content, dtype).reshape(shape)


def _packed(draws: list[Ids]) -> tuple[Ids, npt.NDArray[Any]]:
    """Return draws (R, B) as the largest id of each, (R, P), and how far the rows are below it, (R, P, B)."""
    ids = np.stack(draws, axis=1)
    newest = ids.max(axis=2)
    behind = newest[..., None] - ids
    width = next(kind for kind in _WIDTHS if behind.max() <= np.iinfo(kind).max)
    return newest, behind.astype(width)


def _unpacked(newest: Ids, behind: npt.NDArray[Any]) -> Ids:
    return newest[..., None] - behind.astype(np.int64)
