"""Triton's kernels: the functions of `leaf_operators` on a GPU, bit for bit the same.

Decisions are made in integers, and p^α in float64 without fused operations, as in `power`. Kernels with the environment
variable TRITON_INTERPRET=1 at import run on a CPU, slowly.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from replaylab.torch.drawing.fixed_point import ONE
from replaylab.torch.drawing.power import LN_2, LOG_SCALE, ONE_BITS, ROOT_HALF_BITS, SHIFT
from replaylab.torch.drawing.priority_tree import BITS, FAN, MOST_UPDATES, levels

_BITS, _FAN = tl.constexpr(BITS), tl.constexpr(FAN)
_ONE, _MOST_UPDATES = tl.constexpr(float(ONE)), tl.constexpr(MOST_UPDATES)
_ONE_BITS, _ROOT_HALF_BITS = tl.constexpr(ONE_BITS), tl.constexpr(ROOT_HALF_BITS)
_LOG_SCALE, _LN_2, _SHIFT = tl.constexpr(LOG_SCALE), tl.constexpr(LN_2), tl.constexpr(SHIFT)

OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
BLOCK = 128
"""Rows of a program."""


@triton.jit
def power(x, y):
    """See `replaylab.torch.drawing.power.power`."""
    bits = x.to(tl.int64, bitcast=True)
    biased = (bits + (_ONE_BITS - _ROOT_HALF_BITS)) >> 52
    m = (bits - (biased << 52) + _ONE_BITS).to(tl.float64, bitcast=True)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    ones = tl.full(x.shape, 1.0, tl.float64)
    series = q * (ones / 13.0)
    for k in tl.static_range(5):
        series = q * (ones / (11.0 - 2.0 * k) + series)
    log2 = (biased.to(tl.float64) - 1023.0) + (tl.full(x.shape, _LOG_SCALE, tl.float64) * s) * (1.0 + series)
    exponent = tl.minimum(tl.maximum(y * log2, -1000.0), 1000.0)
    shifted = exponent + tl.full(x.shape, _SHIFT, tl.float64)
    f = (exponent - (shifted - tl.full(x.shape, _SHIFT, tl.float64))) * tl.full(x.shape, _LN_2, tl.float64)
    low = 1.0 + f * (1.0 + f * (ones / 2.0 + f * (ones / 6.0 + f * (ones / 24.0))))
    high = ones / 120.0 + f * (ones / 720.0 + f * (ones / 5040.0 + f * (ones / 40320.0 + f * (ones / 362880.0))))
    squared = f * f
    scale = ((shifted.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(y == 1.0, x, (low + squared * squared * f * high) * scale)


@triton.jit
def random_number(keys, draws, row):
    """Return the numbers of 64 bits of the current draw in some rows."""
    draw = tl.load(draws)
    seed = (tl.load(keys).to(tl.uint64) << 32) | tl.load(keys + 1).to(tl.uint64)
    zero = row.to(tl.uint32) * 0
    low = zero + (draw & 0xFFFFFFFF).to(tl.uint32)
    first, second, _third, _fourth = tl.philox(seed, row.to(tl.uint32), zero, low, zero + (draw >> 32).to(tl.uint32))
    return (first.to(tl.uint64) << 32) | second.to(tl.uint64)


@triton.jit
def random_target(keys, draws, row, rows, total, STRATIFIED: tl.constexpr):
    """Return random whole numbers below a total; see `philox.random_targets`."""
    number = random_number(keys, draws, row)
    targets = tl.umulhi(number, total.to(tl.uint64) + number * 0).to(tl.int64)
    if STRATIFIED:
        place = row.to(tl.int64)
        targets = place * (total // rows) + (place * (total % rows) + targets) // rows
    return targets


@triton.jit
def numbers_kernel(keys, draws, high, low, rows, SIZE: tl.constexpr):
    """Write random numbers in two halves."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    number = random_number(keys, draws, row)
    tl.store(high + row, (number >> 32).to(tl.int64), mask=row < rows)
    tl.store(low + row, (number & 0xFFFFFFFF).to(tl.int64), mask=row < rows)


@triton.jit
def targets_kernel(keys, draws, total_at, out, rows, STRATIFIED: tl.constexpr, SIZE: tl.constexpr):
    """Write random whole numbers below a total."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    targets = random_target(keys, draws, row, rows, tl.load(total_at), STRATIFIED)
    tl.store(out + row, targets, mask=row < rows)


@triton.jit
def sum_before(sums, starts, slot, DEPTH: tl.constexpr):
    """Return the sum of the leaves before one slot."""
    siblings = tl.arange(0, _FAN)
    before = tl.zeros((1,), tl.int64)
    for level in tl.static_range(DEPTH):
        node = slot >> (_BITS * level)
        first = (node >> _BITS) << _BITS
        children = tl.load(sums + tl.load(starts + level) + first + siblings)
        before += tl.sum(tl.where(siblings < node - first, children, 0), 0)
    return tl.sum(before, 0)


@triton.jit
def draw_kernel(
    sums, starts, keys, draws, head_at, tail_at, ids, leaves, live_at, rows, capacity,
    DEPTH: tl.constexpr, STRATIFIED: tl.constexpr, RANGED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Draw rows in proportion to leaves."""
    head, tail = tl.load(head_at), tl.load(tail_at)
    total = tl.load(sums + tl.load(starts + DEPTH))
    start = total - total
    live = total
    if RANGED:
        start = sum_before(sums, starts, tail % capacity, DEPTH)
        gap = start - sum_before(sums, starts, head % capacity, DEPTH)
        live = total - tl.where(gap < 0, gap + total, gap)
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    targets = start + random_target(keys, draws, row, rows, live, STRATIFIED)
    targets = tl.where(targets >= total, targets - total, targets)
    siblings = tl.arange(0, _FAN)[None, :]
    node = row.to(tl.int64) * 0
    leaf = node
    for step in tl.static_range(DEPTH):
        children = tl.load(sums + tl.load(starts + (DEPTH - 1 - step)) + node[:, None] * _FAN + siblings)
        passed = tl.cumsum(children, 1) <= targets[:, None]
        child = tl.minimum(tl.sum(passed.to(tl.int64), 1), _FAN - 1)
        targets -= tl.sum(tl.where(siblings < child[:, None], children, 0), 1)
        leaf = tl.sum(tl.where(siblings == child[:, None], children, 0), 1)
        node = node * _FAN + child
    slot = tl.minimum(node, capacity - 1)
    newest = head - 1
    age = newest - slot
    age = age - tl.where(age < 0, (age + 1) // capacity - 1, age // capacity) * capacity
    tl.store(ids + row, newest - age, mask=row < rows)
    tl.store(leaves + row, leaf, mask=row < rows)
    tl.store(live_at, live, mask=tl.program_id(0) == 0)


@triton.jit
def weigh_kernel(
    leaves, live_at, least_at, size_at, beta_at, probabilities, weights, rows,
    WEIGHTED: tl.constexpr, BY_BATCH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """See `leaf_operators.weigh_leaves`; `least_at` has the smallest leaf of the batch."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < rows
    leaf = tl.load(leaves + row, mask=inside, other=1)
    live = tl.load(live_at).to(tl.float64)
    tl.store(probabilities + row, leaf.to(tl.float64) / live, mask=inside)
    weight = tl.full((SIZE,), 1.0, tl.float64)
    if WEIGHTED:
        if BY_BATCH:
            largest = tl.maximum(tl.load(least_at), 1).to(tl.float64)
        else:
            largest = live / tl.load(size_at).to(tl.float64)
        beta = tl.zeros((SIZE,), tl.float64) + tl.load(beta_at)
        weight = power(largest / tl.maximum(leaf, 1).to(tl.float64), beta)
    tl.store(weights + row, weight.to(tl.float32), mask=inside)


@triton.jit
def feedback_kernel(
    tickets, updates, largest_ever, numbers, head_at, tail_at, ids, values, slots, leaves, counts, n, capacity, most,
    KIND: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Make leaves of feedback, and give each slot the number of the last id that has it."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < n
    step = tl.load(ids + row, mask=inside, other=-1)
    value = tl.load(values + row, mask=inside, other=0.0).to(tl.float64)
    alpha, epsilon = tl.load(numbers), tl.load(numbers + 1)
    valid = tl.abs(value) <= 1.7976931348623157e308
    size = tl.abs(value)
    if KIND == 0:
        priority = size + epsilon
    elif KIND == 1:
        priority = tl.maximum(size, 1.0)
    elif KIND == 2:
        priority = tl.where(value > 0.0, value, 0.0) + epsilon
    else:
        priority = value
        valid = valid & (value >= 0.0)
    priority = tl.where(valid, priority, 0.0)
    raised = power(tl.maximum(priority, 2.2250738585072014e-308), tl.zeros((SIZE,), tl.float64) + alpha)
    shift = tl.full((SIZE,), _SHIFT, tl.float64)
    scaled = tl.minimum(raised * _ONE, most.to(tl.float64))
    leaf = ((scaled + shift) - shift).to(tl.int64)  # to the nearest, halves to even
    leaf = tl.where(priority > 0.0, tl.maximum(leaf, 1), 0)
    stored = inside & (step >= tl.load(tail_at)) & (step < tl.load(head_at))
    applies = stored & valid
    slot = tl.where(applies, step % capacity, 0)
    ticket = (tl.load(updates) + 1) * _MOST_UPDATES + row
    tl.atomic_max(tickets + slot, ticket, mask=applies, sem="relaxed")
    tl.store(slots + row, tl.where(applies, slot, -1), mask=inside)
    tl.store(leaves + row, leaf, mask=inside)
    tl.atomic_add(counts, tl.sum(stored.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(counts + 1, tl.sum((inside & (valid == 0)).to(tl.int64), 0), sem="relaxed")
    tl.atomic_max(largest_ever, tl.max(tl.where(applies, leaf, 0), 0), sem="relaxed")


@triton.jit
def write_kernel(
    sums, starts, tickets, updates, slots, leaves, n,
    DEPTH: tl.constexpr, LAST: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Write leaves and add what changed to the nodes above; with `LAST` only those that hold their slot's ticket."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    wins = slot >= 0
    slot = tl.where(wins, slot, 0)
    if LAST:
        ticket = (tl.load(updates) + 1) * _MOST_UPDATES + row
        wins = wins & (tl.load(tickets + slot, mask=wins, other=-1) == ticket)
    leaf = tl.load(leaves + row, mask=wins, other=0)
    old = tl.atomic_xchg(sums + slot, leaf, mask=wins, sem="relaxed")
    change = tl.where(wins, leaf - old, 0)
    for level in tl.static_range(1, DEPTH):
        nodes = tl.load(starts + level) + (slot >> (_BITS * level))
        tl.atomic_add(sums + nodes, change, mask=change != 0, sem="relaxed")
    tl.atomic_add(sums + tl.load(starts + DEPTH), tl.sum(change, 0), sem="relaxed")


@triton.jit
def peak_kernel(
    below, peaks, slots, n, child_start, start,
    LEVEL: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Recompute the largest leaf below the nodes of one level that are above some slots."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    node = tl.where(slot >= 0, slot, 0) >> (_BITS * LEVEL)
    children = tl.load(below + child_start + (node[:, None] << _BITS) + tl.arange(0, _FAN)[None, :])
    tl.store(peaks + start + node, tl.max(children, 1), mask=slot >= 0)


@triton.jit
def probe_kernel(out, SIZE: tl.constexpr):
    """Write a power, to see whether kernels run here and how they round."""
    x = tl.arange(0, SIZE).to(tl.float64) + 1.5
    tl.store(out + tl.arange(0, SIZE), power(x, tl.zeros((SIZE,), tl.float64) + 0.6))


def probe(device: torch.device) -> None:
    """Run a kernel, and compare what it writes.

    Raises:
        RuntimeError: It wrote something else than PyTorch's operations compute; or as Triton raises.
    """
    from replaylab.torch.drawing.power import power as wanted_power

    out = torch.zeros(16, dtype=torch.float64, device=device)
    probe_kernel[(1,)](out, SIZE=16, **OPTIONS)
    wanted = wanted_power(torch.arange(16, dtype=torch.float64) + 1.5, torch.tensor(0.6, dtype=torch.float64))
    if not torch.equal(out.cpu(), wanted):
        raise RuntimeError("a kernel's result is not that of PyTorch's operations")


def numbers(keys: Tensor, draws: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """See `philox.random_numbers`."""
    high, low = (torch.empty(rows, dtype=torch.int64, device=draws.device) for _ in range(2))
    numbers_kernel[_grid(rows)](keys, draws, high, low, rows, SIZE=BLOCK, **OPTIONS)
    draws.add_(1)
    return high, low


def targets(keys: Tensor, draws: Tensor, total: Tensor, rows: int, stratified: bool) -> Tensor:
    """See `philox.random_targets`."""
    out = torch.empty(rows, dtype=torch.int64, device=draws.device)
    targets_kernel[_grid(rows)](keys, draws, total, out, rows, STRATIFIED=stratified, SIZE=BLOCK, **OPTIONS)
    draws.add_(1)
    return out


def draw(
    tree: tuple[Tensor, Tensor],
    stream: tuple[Tensor, Tensor],
    stored: tuple[Tensor, Tensor],
    rows: int,
    capacity: int,
    stratified: bool,
    ranged: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `leaf_operators.draw_leaves`: sums and starts, keys and draws, head and tail together."""
    (sums, starts), (keys, draws) = tree, stream
    ids, leaves = (torch.empty(rows, dtype=torch.int64, device=sums.device) for _ in range(2))
    live = torch.empty((), dtype=torch.int64, device=sums.device)
    depth = levels(capacity).depth
    draw_kernel[_grid(rows)](
        *(sums, starts, keys, draws, *stored, ids, leaves, live, rows, capacity),
        **{"DEPTH": depth, "STRATIFIED": stratified, "RANGED": ranged, "SIZE": BLOCK, **OPTIONS},
    )
    draws.add_(1)
    return ids, leaves, live


def weigh(
    leaves: Tensor, live: Tensor, size: Tensor, beta: Tensor, weighted: bool, by_batch: bool
) -> tuple[Tensor, Tensor]:
    """See `leaf_operators.weigh_leaves`."""
    rows, least = len(leaves), live
    if weighted and by_batch:
        least = leaves.amin()
    probabilities, weights = (
        torch.empty(rows, dtype=kind, device=leaves.device) for kind in (beta.dtype, torch.float32)
    )
    weigh_kernel[_grid(rows)](
        *(leaves, live, least, size, beta, probabilities, weights, rows),
        **{"WEIGHTED": weighted, "BY_BATCH": by_batch, "SIZE": BLOCK, **OPTIONS},
    )
    return probabilities, weights


def update(
    tree: tuple[Tensor, ...],
    numbers: Tensor,
    stored: tuple[Tensor, Tensor],
    ids: Tensor,
    values: Tensor,
    kind: int,
    most: int,
    capacity: int,
) -> Tensor:
    """See `leaf_operators.update_leaves`: the tree's first six tensors, and head and tail together."""
    sums, peaks, tickets, updates, largest_ever, starts = tree
    n = len(ids)
    slots, leaves = (torch.empty(n, dtype=torch.int64, device=sums.device) for _ in range(2))
    counts = torch.zeros(2, dtype=torch.int64, device=sums.device)
    feedback_kernel[_grid(n)](
        *(tickets, updates, largest_ever, numbers, *stored, ids.contiguous(), values.contiguous(), slots, leaves),
        *(counts, n, capacity, most),
        **{"KIND": kind, "SIZE": BLOCK, **OPTIONS},
    )
    _write(sums, peaks, starts, (tickets, updates), slots, leaves, capacity)
    updates.add_(1)
    return counts


def writer(starts: Tensor) -> Callable[..., None]:
    """Return what does the same as `priority_tree.write_leaves` where all leaves are written."""

    def write(sums: Tensor, peaks: Tensor, slots: Tensor, leaves: Tensor, applies: Tensor, capacity: int) -> None:
        del applies
        _write(sums, peaks, starts, None, slots, leaves, capacity)

    return write


def _write(
    sums: Tensor,
    peaks: Tensor,
    starts: Tensor,
    last: tuple[Tensor, Tensor] | None,
    slots: Tensor,
    leaves: Tensor,
    capacity: int,
) -> None:
    """Write leaves, with `last`, tickets and updates, only of the rows that hold their slot's ticket."""
    tree, n = levels(capacity), len(slots)
    tickets, updates = last or (starts, starts)
    write_kernel[_grid(n)](
        *(sums, starts, tickets, updates, slots, leaves, n),
        **{"DEPTH": tree.depth, "LAST": last is not None, "SIZE": BLOCK, **OPTIONS},
    )
    below, below_start = sums, 0
    for level in range(1, tree.depth + 1):
        start = tree.starts[level] - tree.leaves
        peak_kernel[_grid(n)](below, peaks, slots, n, below_start, start, LEVEL=level, SIZE=BLOCK, **OPTIONS)
        below, below_start = peaks, start


def _grid(n: int) -> tuple[int]:
    return (triton.cdiv(n, BLOCK),)
