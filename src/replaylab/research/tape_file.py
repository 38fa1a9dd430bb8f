"""Tapes: files of which steps each draw of a run was made of.

A tape is an ``.npz`` file as `numpy.savez` writes it, not compressed, in pieces of `PIECE` draws that are read one by
one. Its manifest (`Schema.file`) holds the number of draws, R, B and the draws in a piece. Shapes: R replicas, P draws
of a piece, B rows.

* ``newest.K``: int64 (R, P), the largest id of each draw of piece K;
* ``behind.K``: how far each row's id is below that, (R, P, B), in the narrowest unsigned integers that hold it;
* ``ends``, if they were recorded: int64 (R, M), of each step that ended an episode twice its id, plus 1 if it
  terminated; then −1.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, instance, place, takes, truths, whole, wholes
from replaylab.errors import ConfigError, ShapeError, SnapshotError, StorageError
from replaylab.files.atomic import write_bytes
from replaylab.files.bundle import Schema, reading

SCHEMA = Schema("tape", "replaylab-tape", 2, dict.fromkeys(("draws", "replicas", "rows", "piece"), whole()))

PIECE = 1_000
"""Draws in a piece."""

_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)

Ids = npt.NDArray[np.int64]


class TapeWriter:
    """Takes note of draws, and writes them as a tape.

    Draws that are complete pieces are packed: two bytes a row, where a buffer holds up to 65,536 steps.

    Example:
        >>> from replaylab import Field, ReplayBuffer
        >>> from replaylab.research import TapeWriter
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
        self._ends: list[list[int]] | None = None  # as the file has them

    def __len__(self) -> int:
        """Return the number of draws."""
        return sum(len(newest[0]) for newest, _ in self._packed) + len(self._open)

    @takes(ids=wholes())
    def append(self, ids: npt.ArrayLike) -> None:
        """Take note of one draw.

        Args:
            ids: ``batch.id``, int64 ``[R] B``, of the same shape each time.

        Raises:
            ShapeError: It is of another shape.
            DtypeError: They are not whole numbers.
            ConfigError: An id is negative.
        """
        drawn = np.asarray(ids, np.int64)
        if (drawn < 0).any():
            raise ConfigError(f"`ids` of a tape must be whole numbers from 0 on, such as batch.id, but got {ids!r:.80}")
        drawn = drawn[None] if drawn.ndim == 1 else drawn
        shape = self._shape
        if drawn.ndim != 2 or 0 in drawn.shape or shape not in (None, drawn.shape):
            expected = "[R] B" if shape is None else f"{shape}, as the draws before,"
            raise ShapeError(f"`ids` of a tape must be of shape {expected} but got {np.shape(ids)}")
        self._open.append(drawn)
        if len(self._open) == PIECE:
            self._packed.append(_packed(self._open))
            self._open = []

    @takes(ids=wholes("R"), terminated=truths)
    def append_ends(self, ids: npt.ArrayLike, terminated: npt.ArrayLike) -> None:
        """Take note of steps that ended an episode, oldest first; `ByStepsToEnd` needs all of them.

        Args:
            ids: int64 (R,), −1 where no episode ended.
            terminated: bool (R,), whether the episode terminated; otherwise it was truncated.

        Raises:
            ShapeError: The calls before had another R.
            DtypeError: They are not whole numbers, or not booleans.
        """
        rows, flags = np.asarray(ids, np.int64).reshape(-1), np.asarray(terminated, np.bool_).reshape(-1)
        ends = [[] for _ in rows] if self._ends is None else self._ends
        if not len(ends) == len(rows) == len(flags):
            raise ShapeError(
                f"`ids` and `terminated` of a tape's ends must be of shape ({len(ends)},), one for each replica, but "
                f"got {rows.shape} and {flags.shape}"
            )
        for r in np.flatnonzero(rows >= 0):
            ends[r].append(2 * int(rows[r]) + int(flags[r]))
        self._ends = ends

    def join(self, other: "TapeWriter") -> None:
        """Put the replicas of another recording behind one's own.

        Args:
            other: As many draws of as many rows.

        Raises:
            ConfigError: It is not a TapeWriter.
            ShapeError: It has others.
        """
        other = checked("other", other, instance(TapeWriter, "a TapeWriter"))
        rows = [writer._shape and writer._shape[1] for writer in (self, other)]
        if (len(self), rows[0]) != (len(other), rows[1]):
            raise ShapeError(
                f"recordings that are joined must have as many draws of as many rows, but got {len(self)} of {rows[0]} "
                f"and {len(other)} of {rows[1]}"
            )
        pairs = zip(self._packed, other._packed, strict=True)
        self._packed = [(np.concatenate((a, c)), np.concatenate((b, d))) for (a, b), (c, d) in pairs]
        self._open = [np.concatenate(both) for both in zip(self._open, other._open, strict=True)]
        self._ends = None if self._ends is None or other._ends is None else [*self._ends, *other._ends]

    def content(self) -> bytes:
        """Return the tape as the bytes of its file.

        Raises:
            ConfigError: There is no draw.
        """
        if self._shape is None:
            raise ConfigError("a tape must hold at least one draw, but none was taken note of; append one first")
        replicas, rows = self._shape
        return SCHEMA.file(self._arrays("."), draws=len(self), replicas=replicas, rows=rows, piece=PIECE)

    @takes(path=place("a tape"))
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the tape, wholly or not at all.

        Raises:
            ConfigError: There is no draw.
            StorageError: It cannot be written.
        """
        write_bytes(Path(path), self.content())

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything, as arrays (R, ...) by name."""
        return self._arrays()

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from what `state` returned.

        Raises:
            SnapshotError: Something else returned it, or a part is missing; nothing is changed.
        """
        try:
            pieces, ends = _checked_state(state)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(f"`state` must be what TapeWriter.state returned, but it is not: {error!r}") from None
        self._open, self._ends = [], ends
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

    def _arrays(self, separator: str = "") -> dict[str, npt.NDArray[Any]]:
        """Return the pieces by name and number, and the ends of episodes if they were recorded."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        pieces = [*self._packed, *([_packed(self._open)] if self._open else [])]
        for k, (newest, behind) in enumerate(pieces):
            arrays |= {f"newest{separator}{k}": newest, f"behind{separator}{k}": behind}
        return arrays if self._ends is None else arrays | {"ends": _padded(self._ends)}


class TapeReader:
    """Reads a tape piece by piece.

    Args:
        path: File of the tape.

    Attributes:
        draws: Number of recorded draws.
        replicas: R.
        rows: B.

    Raises:
        StorageError: It cannot be read.
        SnapshotError: It is damaged, or no tape.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(checked("path", path, place("a tape")))
        self._piece, self._ids = -1, np.empty((0, 0, 0), np.int64)
        if not self._path.is_file():
            raise StorageError(f"there is no tape at {self._path}; record one with TapeRecorder or TapeWriter")
        about, _ = SCHEMA.read_file(self._path, [])
        self.draws, self.replicas, self.rows, self._length = (int(about[name]) for name in SCHEMA.members)

    def ends(self) -> list[Ids]:
        """Return of each replica's steps that ended an episode twice the id, plus 1 if it terminated, ascending.

        Raises:
            ConfigError: They were not recorded.
            SnapshotError: The tape is damaged.
        """
        with reading(self._path, "tape"):
            arrays = SCHEMA.read_file(self._path, ["ends"])[1]
        if "ends" not in arrays:
            raise ConfigError(
                f"the tape {self._path} must hold the ends of episodes, but has none; record it with TapeRecorder, or "
                "call TapeWriter.append_ends"
            )
        return [ends[ends >= 0] for ends in arrays["ends"]]

    def ids(self, draw: int) -> Ids:
        """Return the ids of one draw of every replica, (R, B).

        Raises:
            SnapshotError: The tape is damaged.
        """
        piece, place = divmod(draw, self._length)
        if piece != self._piece:
            names = f"newest.{piece}", f"behind.{piece}"
            with reading(self._path, "tape"):
                newest, behind = map(SCHEMA.read_file(self._path, names)[1].__getitem__, names)
            shape = self.replicas, min(self._length, self.draws - piece * self._length)
            kinds = newest.dtype.kind + behind.dtype.kind
            if (newest.shape, behind.shape, kinds) != (shape, (*shape, self.rows), "iu"):
                raise SnapshotError(f"the tape {self._path} is damaged: its piece {piece} has other arrays")
            self._piece, self._ids = piece, _unpacked(newest, behind)
        return self._ids[:, place]


def _checked_state(
    state: Mapping[str, npt.NDArray[Any]],
) -> tuple[list[tuple[Ids, npt.NDArray[Any]]], list[list[int]] | None]:
    """Return the pieces of a writer's state, and the ends of episodes if they were recorded.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: An array is missing, or has another shape or dtype.
    """
    count = sum(name.startswith("newest") for name in state)
    pieces = [(state[f"newest{k}"], state[f"behind{k}"]) for k in range(count)]
    replicas, rows = (pieces[0][1].shape[0], pieces[0][1].shape[2]) if pieces else (0, 0)
    for k, (newest, behind) in enumerate(pieces):
        draws = newest.shape[1]
        if newest.dtype != np.int64 or behind.dtype not in _WIDTHS:
            raise ValueError(f"newest{k} and behind{k} are of {newest.dtype} and {behind.dtype}")
        if (newest.shape, behind.shape) != ((replicas, draws), (replicas, draws, rows)) or not 0 < draws <= PIECE:
            raise ValueError(f"newest{k} and behind{k} have shapes {newest.shape} and {behind.shape}")
        if draws < PIECE and k < count - 1:
            raise ValueError(f"newest{k} holds {draws} draws, and others follow")
    ends = state.get("ends")
    if ends is not None and (ends.dtype != np.int64 or ends.ndim != 2 or (pieces and len(ends) != replicas)):
        raise ValueError(f"ends are of {ends.dtype} and shape {ends.shape}")
    return pieces, None if ends is None else [row[row >= 0].tolist() for row in ends]


def _packed(draws: list[Ids]) -> tuple[Ids, npt.NDArray[Any]]:
    """Return draws (R, B) as the largest id of each, (R, P), and how far the rows are below it, (R, P, B)."""
    ids = np.stack(draws, axis=1)
    newest = ids.max(axis=2)
    behind = newest[..., None] - ids
    width = next(kind for kind in _WIDTHS if behind.max() <= np.iinfo(kind).max)
    return newest, behind.astype(width)


def _unpacked(newest: Ids, behind: npt.NDArray[Any]) -> Ids:
    return newest[..., None] - behind.astype(np.int64)


def _padded(ends: list[list[int]]) -> Ids:
    longest = max(map(len, ends), default=0)
    return np.array([ids + [-1] * (longest - len(ids)) for ids in ends], np.int64).reshape(len(ends), longest)
