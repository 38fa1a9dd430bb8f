"""Drawing by leaves, feedback, and the leaves of new steps: in PyTorch's operations, or in Triton's kernels."""

import torch
from torch import Tensor

from replaylab.torch.drawing.fixed_point import ONE, leaves_of
from replaylab.torch.drawing.launches import FeedbackLaunches, TreeTensors
from replaylab.torch.drawing.philox import RandomStream
from replaylab.torch.drawing.power import power
from replaylab.torch.drawing.priority_tree import MOST_UPDATES, find_leaves, levels, sum_before, write_leaves
from replaylab.torch.operators import operator


def live_leaves(sums: Tensor, head: Tensor, tail: Tensor, capacity: int, ranged: bool) -> tuple[Tensor, Tensor]:
    """Return the sum of the leaves before the first one that can be drawn, and the sum of those of stored steps.

    Steps can be dropped before they are overwritten (see `StepRing`). Their leaves stay; targets are then drawn only
    from those of stored steps, which are neighbors in the ring, from the oldest one's on.

    Args:
        sums: The tree's sums.
        head: The id of the next step.
        tail: The id of the oldest stored step.
        capacity: C.
        ranged: Whether steps can be dropped; if not, all leaves are those of stored steps.
    """
    total = sums[levels(capacity).length - 1]
    if not ranged:
        return torch.zeros_like(total), total
    slots = torch.stack((head % capacity, tail % capacity))
    ends = sum_before(sums, slots, capacity)
    gap = ends[1] - ends[0]  # the leaves from the head's slot to the tail's
    before = torch.where(tail > head - capacity, ends[1], 0)
    return before, total - torch.where(slots[1] < slots[0], gap + total, gap)


def draw_leaves(
    sums: Tensor,
    stream: RandomStream,
    head: Tensor,
    tail: Tensor,
    rows: int,
    capacity: int,
    stratified: bool,
    ranged: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ids of drawn steps (rows,) and their leaves, and the sum of the leaves of stored steps, ().

    If that sum is 0, no step can be drawn, and all ids are −1. For the arguments see `live_leaves`.
    """
    before, live = live_leaves(sums, head, tail, capacity, ranged)
    targets = before + stream.targets(live, rows, stratified=stratified)
    total = sums[levels(capacity).length - 1]
    targets = torch.where(targets >= total, targets - total, targets)
    slots, leaves = find_leaves(sums, torch.where(live > 0, targets, -1), capacity)  # of −1 the first slot is found
    newest = head - 1
    return torch.where(live > 0, newest - (newest - slots) % capacity, -1), leaves, live


def weigh_leaves(
    leaves: Tensor, live: Tensor, size: Tensor, beta: Tensor, weighted: bool, by_batch: bool
) -> tuple[Tensor, Tensor]:
    """Return the probabilities and float32 weights of drawn leaves, (B,) each; all 0 if `live` is 0.

    Args:
        leaves: int64 (B,).
        live: The sum of the leaves of stored steps, ().
        size: N, ().
        beta: β, ().
        weighted: Whether weights are (N·P)^−β; if not, they are 1.
        by_batch: Whether they are divided by the largest one of the batch, which is that of the smallest leaf.
    """
    real = beta.dtype
    probability = torch.where(live > 0, leaves.to(real) / live, 0.0)
    if not weighted:
        return probability, (live > 0).to(torch.float32).expand_as(leaves).clone()
    masses = leaves.clamp(min=1).to(real)
    ratio = (leaves.amin().clamp(min=1).to(real) if by_batch else live.to(real) / size) / masses
    return probability, torch.where(live > 0, power(ratio, beta), 0.0).to(torch.float32)


@operator(
    "update_leaves(Tensor(a!)[] changed, Tensor[] others, Tensor ids, Tensor values, int kind, int most, int capacity, "
    "bool triton) -> Tensor"
)
def update_leaves(
    changed: list[Tensor],
    others: list[Tensor],
    ids: Tensor,
    values: Tensor,
    kind: int,
    most: int,
    capacity: int,
    triton: bool,
) -> Tensor:
    """Apply feedback (n,), the last value for equal ids; return how many steps were stored, int64 ().

    Steps that were not stored and values that are not valid are added to the second and third of `counts`.
    `changed` and `others` are `TreeTensors`, up to `counts` and behind it.
    """
    tensors = TreeTensors(*changed, *others)
    if triton:
        return FeedbackLaunches(tensors, kind, most, capacity)(ids, values).clone()
    sums, peaks, _, tickets, updates, largest_ever, _, counts, numbers, head, tail = tensors
    leaves, valid = leaves_of(values, kind, numbers, most)
    stored = (ids >= tail) & (ids < head)
    applies = stored & valid
    slots = torch.where(applies, ids % capacity, 0)
    updates.add_(1)
    ticket = torch.where(applies, updates * MOST_UPDATES + torch.arange(len(slots), device=slots.device), -1)
    tickets.scatter_reduce_(0, slots, ticket, "amax")
    write_leaves(sums, peaks, slots, leaves, applies & (tickets[slots] == ticket), capacity)
    largest_ever.copy_(torch.maximum(largest_ever, torch.where(applies, leaves, 0).amax()))
    applied = stored.sum()
    counts[1:].add_(torch.stack((len(ids) - applied, (~valid).sum())))
    return applied


def store_leaves(tree: list[Tensor], head: Tensor, n: int, capacity: int) -> None:
    """Give the n newest steps the largest leaf, stored now; or of all times, if no peaks are kept.

    The first step that they overwrite does not count.

    Args:
        tree: The sums and peaks, and the largest leaf of all times.
        head: The id of the next step.
        n: Number of steps.
        capacity: C.
    """
    sums, peaks, leaf = tree
    slots = (head - n + torch.arange(n, device=sums.device)) % capacity
    everywhere = torch.ones_like(slots, dtype=torch.bool)
    if len(peaks):
        write_leaves(sums, peaks, slots[:1], torch.zeros_like(slots[:1]), everywhere[:1], capacity)
        leaf = peaks[-1]
        leaf = torch.where(leaf > 0, leaf, ONE)
    write_leaves(sums, peaks, slots, leaf.expand_as(slots).contiguous(), everywhere, capacity)
