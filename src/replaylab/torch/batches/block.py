"""The layout of a batch in one block of memory, and its columns as views of it."""

from typing import NamedTuple

import torch
from torch import Tensor

from replaylab.episode_ends import ENDS
from replaylab.torch.rows.assembly import Assembly
from replaylab.torch.rows.packing import WORD, RowPacking

FRAME_BEFORE, LAST_BEFORE = 4, 5
"""Further sources of words than those of a `TakenField`: frames before the drawn step's, and before the last step's."""

BEHIND = 6
"""Words a row before the copied fields: id, probability (of 64 bits, as is n_steps) and n_steps."""

AFTER = ("weight", "reward", "discount")
"""The columns of one word behind the copied fields. `LINKS` follow, and the flags of the episode's end, of one byte."""

LINKS = 2
"""Words a row that `gather_kernel` keeps for itself."""


class CopiedField(NamedTuple):
    """A column that is copied from rows.

    Attributes:
        name: Its name.
        packing: The rows' packing.
        path: The field.
        frames: The source of each frame of a stack, oldest first, its first word there, and how many steps it is before
            that source's step.
        stacked: Whether it has an axis of frames.
    """

    name: str
    packing: RowPacking
    path: str
    frames: list[tuple[int, int, int]]
    stacked: bool


class View(NamedTuple):
    """A column of a batch of some size as a view of a block seen as one dtype; `packed`: as values of another one."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    wanted: torch.dtype
    copied: bool


class Block:
    """The layout of batches of an assembly: columns one behind the other, those of 64 bits first.

    Args:
        assembly: Its columns.

    Attributes:
        plan: For each word of a row that is copied: its place in its source, the words of the fields before its field,
            the bytes of its field, its source, and the steps before its source; int32 (5, words).
    """

    def __init__(self, assembly: Assembly) -> None:
        self._fields = _copied_fields(assembly)
        self._names = [*assembly.names, "weight", "probability", "id"]
        words: list[tuple[int, ...]] = []
        for field in self._fields:
            columns, first = field.packing.columns[field.path], len(words)
            length = columns.stop - columns.start
            nbytes = WORD * length * len(field.frames)
            for source, start, behind in field.frames:
                words += [(word, first, nbytes, source, behind) for word in range(start, start + length)]
        self.copied = len(words)
        self.plan = torch.tensor(words, dtype=torch.int32).reshape(-1, 5).T.contiguous()
        self._views: dict[int, list[View]] = {}

    def nbytes(self, rows: int) -> int:
        """Return the size of a block of some rows, a multiple of 8 bytes."""
        return -(-rows * (WORD * (BEHIND + self.copied + len(AFTER) + LINKS) + len(ENDS)) // 8) * 8

    def columns(self, block: Tensor, rows: int) -> dict[str, Tensor]:
        """Return the columns of a batch by name, in order."""
        views = self._views.get(rows) or self._make_views(rows)
        typed: dict[torch.dtype, Tensor] = {}
        columns = {}
        for name, dtype, shape, strides, start, wanted, copied in views:
            seen = typed.get(dtype)
            if seen is None:
                seen = typed[dtype] = block.view(dtype)
            column = torch.as_strided(seen, shape, strides, start)
            if copied:
                column = column.to(wanted, copy=True, memory_format=torch.contiguous_format)
            columns[name] = column
        return columns

    def _make_views(self, rows: int) -> list[View]:
        """Return the views of a batch of some rows, and keep them."""
        views, words = {}, BEHIND

        def add(name: str, dtype: torch.dtype, first_byte: int) -> None:
            views[name] = View(name, dtype, (rows,), (1,), first_byte // dtype.itemsize, dtype, False)

        for place, (name, dtype) in enumerate(
            (("id", torch.int64), ("probability", torch.float64), ("n_steps", torch.int64))
        ):
            add(name, dtype, 2 * WORD * place * rows)
        for field in self._fields:
            views[field.name] = _view(field, rows, WORD * words * rows)
            columns = field.packing.columns[field.path]
            words += len(field.frames) * (columns.stop - columns.start)
        for name in AFTER:
            if name not in views:
                add(name, torch.float32, WORD * words * rows)
            words += 1
        for place, name in enumerate(ENDS):
            add(name, torch.bool, (WORD * (words + LINKS) + place) * rows)
        if len(self._views) >= 64:
            self._views.clear()
        self._views[rows] = [views[name] for name in self._names]
        return self._views[rows]


def _view(field: CopiedField, rows: int, first_byte: int) -> View:
    """Return the view of a copied field."""
    packing, path = field.packing, field.path
    dtype, wanted = packing.stored[path], packing.dtypes[path]
    columns = packing.columns[path]
    frame = (columns.stop - columns.start) * WORD // dtype.itemsize
    strides: list[int] = []
    length = 1
    for axis in reversed(packing.shapes[path]):
        strides.insert(0, length)
        length *= axis
    if field.stacked:
        shape = (rows, len(field.frames), *packing.shapes[path])
        all_strides = (len(field.frames) * frame, frame, *strides)
    else:
        shape, all_strides = (rows, *packing.shapes[path]), (frame, *strides)
    copied = dtype != wanted or frame != length
    return View(field.name, dtype, shape, all_strides, first_byte // dtype.itemsize, wanted, copied)


def _copied_fields(assembly: Assembly) -> list[CopiedField]:
    """Return the fields that are copied, those of large dtypes first, so that each begins where its dtype may."""
    fields = []
    stack, stacked = assembly.stack, assembly.stacked
    for taken in assembly.taken:
        frames = [(taken.source, taken.packing.columns[taken.path].start, 0)]
        path = taken.name.removeprefix("next_")
        of_stack = path in stacked
        if of_stack and stack is not None:
            start = assembly.frames.columns[path].start
            frames = [(LAST_BEFORE, start, k) for k in reversed(range(stack.length - 1))] + frames
        fields.append(CopiedField(taken.name, taken.packing, taken.path, frames, of_stack))
    for path in stacked:
        start = assembly.frames.columns[path].start
        frames = [(FRAME_BEFORE, start, k) for k in reversed(range(stack.length if stack else 0))]
        fields.append(CopiedField(path, assembly.frames, path, frames, True))
    return sorted(fields, key=lambda field: -field.packing.stored[field.path].itemsize)
