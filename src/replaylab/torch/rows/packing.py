"""Several fields of a step as one row of 32-bit words, so that a draw reads one place in memory."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from replaylab.episode_ends import ENDS
from replaylab.torch.options import HALVES, DeviceOptions, top

WORD = 4
"""Bytes of a word."""

TERMINATED, TRUNCATED, LEFT = 1, 2, 4
"""Bits of a step's flags; `LEFT`: its environment was reset separately (`end_episode`)."""


class RowPacking:
    """Assignment of the words of a row to fields.

    Args:
        shapes: The shape of each field's value, by path.
        dtypes: The dtype of each field in a batch.
        stored: The dtype of a field in a row, if it differs. A field that would take as many words of its own dtype
            keeps that.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, torch.dtype],
        stored: Mapping[str, torch.dtype],
    ) -> None:
        self.shapes, self.dtypes = dict(shapes), dict(dtypes)
        self.stored: dict[str, torch.dtype] = {}
        self.columns: dict[str, slice] = {}
        self.width = 0
        for path, dtype in dtypes.items():
            self.stored[path] = min((dtype, stored.get(path, dtype)), key=lambda kind: self._width(path, kind))
            words = self._width(path, self.stored[path])
            self.columns[path] = slice(self.width, self.width + words)
            self.width += words

    def _width(self, path: str, dtype: torch.dtype) -> int:
        """Return the words that a field of a dtype takes."""
        return -(-math.prod(self.shapes[path]) * dtype.itemsize // WORD)

    def pack(self, values: Mapping[str, Tensor], count: int) -> Tensor:
        r"""Return rows, int32 (n, width), of n values (n, \*shape) of each field."""
        if not self.columns:
            device = next(iter(values.values())).device if values else None
            return torch.zeros(count, 0, dtype=torch.int32, device=device)
        words = [self.words(path, values[path]) for path in self.columns]
        return words[0] if len(words) == 1 else torch.cat(words, 1)

    def unpack(self, path: str, words: Tensor, count: int) -> Tensor:
        r"""Return a field (n, \*shape) of its words, int32 and contiguous."""
        shape, dtype = self.shapes[path], self.stored[path]
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes % WORD:  # without the bytes that fill the last word
            words = copied(words.view(torch.uint8).view(count, -1)[:, :nbytes])
        value = words.view(dtype).view(count, *shape)
        return value if dtype == self.dtypes[path] else value.to(self.dtypes[path])

    def words(self, path: str, value: Tensor) -> Tensor:
        r"""Return the words of a field (n, \*shape), int32 (n, width)."""
        dtype = self.stored[path]
        flat = (value if value.dtype == dtype else value.to(dtype)).reshape(len(value), -1)
        if flat.dtype.itemsize == WORD:
            return flat.view(torch.int32)
        flat = copied(flat)
        if flat.dtype.itemsize < WORD:
            flat = flat.view(torch.uint8)
            flat = pad(flat, (0, -flat.shape[1] % WORD))
        return flat.view(torch.int32)


def packings(options: DeviceOptions) -> tuple[RowPacking, RowPacking]:
    """Return which fields are in the rows of observations that other steps look at, and in the other rows."""
    flat = options.config.flat
    looked_at = options.derived or options.stack is not None
    frames = [path for path in flat if top(path) == "obs" and looked_at]
    apart = {*frames, *ENDS, *(path for path in flat if options.derived and top(path) == "next_obs")}
    half = dict(options.half)
    half |= {f"next_{path}": name for path, name in options.half.items() if f"next_{path}" in flat}

    def packing(paths: Iterable[str]) -> RowPacking:
        paths = list(paths)
        return RowPacking(
            {path: flat[path].shape for path in paths},
            {path: options.dtypes[path] for path in paths},
            {path: HALVES[half[path]] for path in paths if path in half},
        )

    return packing(frames), packing(path for path in flat if path not in apart)


def copied(values: Tensor) -> Tensor:
    """Return a contiguous copy; `contiguous` itself leaves one row at an offset where no other dtype can view it."""
    return values.clone(memory_format=torch.contiguous_format)
