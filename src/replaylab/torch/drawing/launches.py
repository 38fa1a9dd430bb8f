"""Launches of the kernels that change priorities."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from replaylab.torch.drawing.priority_tree import levels
from replaylab.torch.launching import Launcher

BLOCK = 32
"""Rows of a program of an update."""


class TreeTensors(NamedTuple):
    """Tensors of a tree, and of what is counted; an update changes those up to `counts`."""

    sums: Tensor
    peaks: Tensor
    waiting: Tensor
    tickets: Tensor
    updates: Tensor
    largest_ever: Tensor
    tally: Tensor
    counts: Tensor
    numbers: Tensor
    head: Tensor
    tail: Tensor


CHANGED = TreeTensors._fields.index("counts") + 1
"""Number of `TreeTensors` that an update changes."""


class FeedbackLaunches:
    """Launches that apply feedback; see `leaf_operators.update_leaves`.

    Args:
        tensors: What the kernels take.
        kind: Kind of the feedback.
        most: The largest leaf.
        capacity: C.
    """

    def __init__(self, tensors: TreeTensors, kind: int, most: int, capacity: int) -> None:
        from replaylab.torch.drawing import kernels

        self._device, how = tensors.head.device, tree_constants(tensors.peaks, capacity) | {"SIZE": BLOCK}
        t, fed = tensors, {"KIND": kind, "MOST": most, "CAPACITY": capacity, **how}
        read = (t.waiting, t.tickets, t.updates, t.largest_ever, t.tally, t.numbers, t.head, t.tail)
        self._feed = Launcher(kernels.feedback_kernel, read, fed)
        written = (t.sums, t.peaks, t.waiting, t.tickets, t.updates, t.tally, t.counts)
        self._write = Launcher(kernels.write_kernel, written, how)

    def __call__(self, ids: Tensor, values: Tensor) -> Tensor:
        """Apply feedback (n,), and return how many steps were stored, ()."""
        n = len(ids)
        block = torch.empty(3 * n + 1, dtype=torch.int64, device=self._device)
        ids, values, grid = ids.contiguous(), values.contiguous(), (-(-n // BLOCK), 1, 1)
        key = values.dtype, ids.data_ptr() % 16, values.data_ptr() % 16
        self._feed(grid, key, ids, values, block, n)
        self._write(grid, None, block, n)
        return block[-1]


def count_launcher(counts: Tensor, head: Tensor, tail: Tensor) -> Launcher:
    """Return the launcher of one program that counts ids of stored steps; see `Draws.update`."""
    from replaylab.torch.drawing import kernels

    return Launcher(kernels.count_kernel, (counts, head, tail), {"SIZE": 1024, "num_warps": 4})


def tree_constants(peaks: Tensor, capacity: int) -> dict[str, Any]:
    """Return the kernels' constants for a tree of some capacity; it has no peaks if new steps get the largest ever."""
    tree = levels(capacity)
    return {"STARTS": tree.starts, "DEPTH": tree.depth, "EVER": not len(peaks), "num_warps": 4}
