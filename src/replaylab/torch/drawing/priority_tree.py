"""A sum tree of integers on a device, updated without synchronization.

Its leaves and their sums are int64. Sums of integers are exact in any order, so they are updated by differences. `sums`
holds the levels one after the other, the leaves first and the total last; `peaks` holds the largest leaf below each
node, without the level of the leaves. Each level but the last is filled up to a multiple of `FAN`.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

BITS = 5
FAN = 2**BITS
"""Child nodes of a node."""

MOST_UPDATES = 2**20
"""Largest number of ids in one update."""


class Levels(NamedTuple):
    """Offsets of the levels of a tree in `sums`, and its length; the last level is the total."""

    starts: tuple[int, ...]
    length: int

    @property
    def depth(self) -> int:
        """Levels above the leaves."""
        return len(self.starts) - 1

    @property
    def leaves(self) -> int:
        """Length of the lowest level."""
        return self.starts[1]


def levels(capacity: int) -> Levels:
    """Return the levels of a tree of C leaves."""
    widths = [-(-capacity // FAN) * FAN]
    while widths[-1] > 1:
        width = widths[-1] // FAN
        widths.append(width if width == 1 else -(-width // FAN) * FAN)
    return Levels(tuple(sum(widths[:level]) for level in range(len(widths))), sum(widths))


def write_leaves(sums: Tensor, peaks: Tensor, slots: Tensor, leaves: Tensor, applies: Tensor, capacity: int) -> None:
    """Write leaves.

    Args:
        sums: The tree's sums.
        peaks: The tree's peaks; empty: none are kept.
        slots: int64 (n,); those that apply are distinct.
        leaves: int64 (n,), at least 0.
        applies: bool (n,); where False nothing is written.
        capacity: C.
    """
    tree, siblings = levels(capacity), torch.arange(FAN, device=slots.device)
    change = torch.where(applies, leaves - sums[slots], 0)
    sums.scatter_add_(0, slots, change)
    below, start = sums, 0
    for level in range(1, tree.depth + 1):
        nodes = slots >> BITS * level
        sums.scatter_add_(0, nodes + tree.starts[level], change)
        if not len(peaks):
            continue
        largest = below[(nodes << BITS)[:, None] + (siblings + start)].amax(1)
        peaks.scatter_(0, nodes + (tree.starts[level] - tree.leaves), largest)
        below, start = peaks, tree.starts[level] - tree.leaves


def find_leaves(sums: Tensor, targets: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Return for each target t the slot s with Σ_{i<s} leaf_i ≤ t < Σ_{i≤s} leaf_i, and its leaf.

    Args:
        sums: The tree's sums.
        targets: int64 (n,), below the total; where negative, slot 0 is returned.
        capacity: C.
    """
    tree, siblings = levels(capacity), torch.arange(FAN, device=targets.device)
    node = torch.zeros_like(targets)
    leaf = node[:, None]
    for level in reversed(range(tree.depth)):
        children = sums[(node * FAN)[:, None] + (siblings + tree.starts[level])]
        ends = children.cumsum(1)
        child = (ends <= targets[:, None]).sum(1, keepdim=True).clamp(max=FAN - 1)
        leaf = children.gather(1, child)
        targets = targets - (ends.gather(1, child) - leaf)[:, 0]
        node = node * FAN + child[:, 0]
    return node, leaf[:, 0]


def sum_before(sums: Tensor, slots: Tensor, capacity: int) -> Tensor:
    """Return the sums of the leaves before some slots, int64 (n,)."""
    tree, siblings = levels(capacity), torch.arange(FAN, device=slots.device)
    before = torch.zeros_like(slots)
    for level in range(tree.depth):
        node = slots >> BITS * level
        first = (node >> BITS) << BITS
        children = sums[first[:, None] + (siblings + tree.starts[level])]
        before = before + torch.where(siblings < (node - first)[:, None], children, 0).sum(1)
    return before


class PriorityTree(nn.Module):
    """The tensors of a tree.

    Args:
        capacity: C, the number of leaves.
        device: Device of the tree.
        with_peaks: Whether largest leaves are kept.

    Attributes:
        sums, peaks: The levels.
        tickets: Number of each slot's last update: the last of equal ids has the largest number.
        updates: Number of updates so far.
        waiting, tally: For kernels, between two launches of an update; 0 otherwise.
    """

    sums: Tensor
    peaks: Tensor
    tickets: Tensor
    updates: Tensor
    waiting: Tensor
    tally: Tensor

    def __init__(self, capacity: int, device: torch.device, with_peaks: bool = True) -> None:
        super().__init__()
        self.capacity, tree = capacity, levels(capacity)
        peaks = tree.length - tree.leaves if with_peaks else 0
        for name, shape in (
            ("sums", tree.length),
            ("peaks", peaks),
            ("tickets", capacity),
            ("updates", ()),
            ("tally", 2),
        ):
            values = torch.zeros(shape, dtype=torch.int64, device=device)
            self.register_buffer(name, values, persistent=False)
        self.register_buffer("waiting", torch.zeros(peaks, dtype=torch.int32, device=device), persistent=False)

    @property
    def total(self) -> Tensor:
        """The sum of all leaves, ()."""
        return self.sums[levels(self.capacity).length - 1]

    @property
    def largest(self) -> Tensor:
        """The largest leaf, ()."""
        return self.peaks[levels(self.capacity).length - 1 - levels(self.capacity).leaves]

    def load(self, leaves: Tensor) -> None:
        """Replace all leaves, int64 (C,), and compute every sum from them."""
        tree = levels(self.capacity)
        level = torch.zeros(tree.leaves, dtype=torch.int64, device=leaves.device)
        level[: len(leaves)] = leaves
        sums, peaks, peak = [level], [], level
        for start, end in zip(tree.starts[1:], [*tree.starts[2:], tree.length], strict=True):
            level, peak = (
                torch.nn.functional.pad(values, (0, end - start - len(values)))
                for values in (level.view(-1, FAN).sum(1), peak.view(-1, FAN).amax(1))
            )
            sums.append(level)
            peaks.append(peak)
        self.sums.copy_(torch.cat(sums))
        if len(self.peaks):
            self.peaks.copy_(torch.cat(peaks))
