"""Fields of stored rows as the columns of a batch, copied in one pass."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from replaylab.torch.operators import operator
from replaylab.torch.rows.packing import WORD, RowPacking, copied


class FieldGather(nn.Module):
    """Copies some fields of rows, each into a contiguous column.

    Args:
        packing: The rows.
        paths: The fields.
        device: Where the rows are.
        triton: Whether kernels of Triton run.
    """

    plan: Tensor

    def __init__(self, packing: RowPacking, paths: Sequence[str], device: torch.device, triton: bool) -> None:
        super().__init__()
        self.packing, self.triton = packing, triton
        # Columns of large dtypes come first, so that each begins where its dtype may.
        self.paths = sorted(paths, key=lambda path: -packing.stored[path].itemsize)
        self.starts = [packing.columns[path].start for path in self.paths]
        self.ends = [packing.columns[path].stop for path in self.paths]
        words, first = [], 0
        for start, end in zip(self.starts, self.ends, strict=True):
            words += [(word, first, end - start, word - start) for word in range(start, end)]
            first += end - start
        plan = torch.tensor(words, dtype=torch.int64, device=device).reshape(-1, 4).T.contiguous()
        self.register_buffer("plan", plan, persistent=False)

    def columns(self, table: Tensor, at: Tensor, modulus: int) -> dict[str, Tensor]:
        r"""Return the fields (B, \*shape) of the rows ``at % modulus`` of a table, int64 (B,)."""
        if not self.paths:
            return {}
        flat = gather_fields(table, at, modulus, self.plan, self.starts, self.ends, self.triton)
        result, first = {}, 0
        for path, start, end in zip(self.paths, self.starts, self.ends, strict=True):
            last = first + (end - start) * len(at)
            result[path] = self._value(path, flat[first:last], len(at))
            first = last
        return result

    def _value(self, path: str, words: Tensor, rows: int) -> Tensor:
        shape, dtype = self.packing.shapes[path], self.packing.stored[path]
        if prod(shape) * dtype.itemsize % WORD:  # without the bytes that fill the last word
            words = copied(words.view(torch.uint8).view(rows, -1)[:, : prod(shape) * dtype.itemsize]).flatten()
        return words.view(dtype).view(rows, *shape).to(self.packing.dtypes[path])


@operator(
    "gather_fields(Tensor table, Tensor at, int modulus, Tensor plan, int[] starts, int[] ends, bool triton) -> Tensor"
)
def gather_fields(
    table: Tensor, at: Tensor, modulus: int, plan: Tensor, starts: list[int], ends: list[int], triton: bool
) -> Tensor:
    """Return words of rows, field after field, int32 (B·words,).

    Args:
        table: int32 (N, width).
        at: int64 (B,), at least 0.
        modulus: Row ``at % modulus`` is taken.
        plan: Of each word that is taken: its place in the row, the words of the fields before, those of its field, and
            its place in the field, int64 (4, words).
        starts: The first word of each field in the row.
        ends: The end of each field.
        triton: Whether kernels of Triton run.
    """
    if triton:
        from replaylab.torch.rows import kernels

        words: Tensor = kernels.gather(table, at, modulus, plan)
        return words
    rows = table[at % modulus]
    return torch.cat([rows[:, start:end].flatten() for start, end in zip(starts, ends, strict=True)])
