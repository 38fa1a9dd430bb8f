"""Launches of the kernels that store steps."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from replaylab.episode_ends import ENDS
from replaylab.torch.drawing.launches import tree_constants
from replaylab.torch.launching import Launcher
from replaylab.torch.rows.packing import WORD, RowPacking

ROWS, BLOCK = 16, 64
"""Rows that a program copies, and elements of a field at a time."""

WIDE = 256
WIDE_ROWS, WIDE_BLOCK = 4, 512
"""The same where a row of the ring has more words than `WIDE`, as with pictures."""


def field_plan(packings: Sequence[RowPacking], derived: bool, ends: Sequence[str]) -> dict[str, Any]:
    """Return the kernels' constants for steps whose tensors are those of the stored fields, those of `frames` first.

    Where next observations are derived, as many of them follow; then the flags of the episode's end. `PLAN` has five
    numbers for each stored field: its first word in a row, its elements (words, where the field consists of them and is
    stored in its own dtype), their bytes, whether floats become float16 (1) or bfloat16 (2), and how many elements are
    copied at a time.

    Args:
        packings: The fields of `StepRing.frames` and of its other rows.
        derived: Whether next observations are derived.
        ends: The names of `ENDS` that are among the fields.
    """
    rows, block = (ROWS, BLOCK) if sum(packing.width for packing in packings) <= WIDE else (WIDE_ROWS, WIDE_BLOCK)
    plan: list[int] = []
    for packing in packings:
        for path, words in packing.columns.items():
            stored, count = packing.stored[path], math.prod(packing.shapes[path])
            half = 0 if stored == packing.dtypes[path] else 1 + (stored == torch.bfloat16)
            nbytes = stored.itemsize if half or count * stored.itemsize % WORD else WORD
            length = count * stored.itemsize // nbytes
            plan += [words.start, length, nbytes, half, min(block, 2 ** (length - 1).bit_length())]
    frames, fields = len(packings[0].columns), len(plan) // 5
    first = fields + frames * derived
    terminated, truncated = (first + ends.index(name) if name in ends else -1 for name in ENDS)
    places = {"TERMINATED_AT": terminated, "TRUNCATED_AT": truncated}
    return {"PLAN": tuple(plan), "FRAMES": frames, "FIELDS": fields, **places, "SIZE": rows, "num_warps": 4}


class StoreLaunches:
    """Launches that store steps; see `steps.store_steps`.

    Args:
        ring: The tensors of a `StepRing`, as `StepRing.tensors` lists them.
        tree: The tensors of priorities, as `steps.store_steps` takes them.
        envs: E.
        plan: The tensors of steps.
    """

    def __init__(self, ring: Sequence[Tensor], tree: Sequence[Tensor], envs: int, plan: dict[str, Any]) -> None:
        from replaylab.torch.storing import kernels

        frames, rest, flags, side, owners, head, tail, closings, tally = ring
        capacity, self._sides, self._device = len(flags), max(len(owners) - 1, 0), head.device
        self._rows, self._more, sizes = plan["SIZE"], len(tree) > 0, plan["PLAN"][2::5]
        self._nbytes = sizes + (sizes[: plan["FRAMES"]] if self._sides else ()) + (1,) * len(ENDS)
        constants = {**plan, "CAPACITY": capacity, "ENVS": envs, "FRAME_WIDTH": frames.shape[1]}
        self._apart = Launcher(kernels.apart_kernel, (frames, flags, head, tail, tally), constants)
        sums, peaks, largest_ever = tree or (head, head, head)
        leaves = tree_constants(peaks, capacity) if tree else {"STARTS": (0,), "DEPTH": 0, "EVER": False}
        constants |= {"SIDES": self._sides, "WIDTH": rest.shape[1], **leaves}
        written = (frames, rest, flags, side, owners, head, tail, closings, tally, sums, peaks, largest_ever)
        self._store = Launcher(kernels.store_kernel, written, constants)

    def __call__(self, values: tuple[Tensor, ...], axes: tuple[int, ...]) -> Tensor:
        """Store steps of the tensors that the plan describes, and return their ids, of the shape `axes`."""
        n = math.prod(axes)
        parts = -(-n // self._rows)
        key = tuple([value.data_ptr() % 16 for value in values])
        if any(key):
            pairs = zip(values, self._nbytes, strict=False)
            values = tuple([value.clone() if value.data_ptr() % size else value for value, size in pairs])
            key = tuple([value.data_ptr() % 16 for value in values])
        if not self._sides:
            ids = torch.empty(axes, dtype=torch.int64, device=self._device)
            self._store((parts + self._more, 1, 1), key, values, ids, n)
            return ids
        out = torch.empty(n + parts, dtype=torch.int64, device=self._device)
        self._apart((parts, 1, 1), key, values, out, n)
        self._store((parts + self._more, 1, 1), key, values, out, n)
        return out[:n].view(axes)
