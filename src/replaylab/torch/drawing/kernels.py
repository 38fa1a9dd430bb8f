"""Triton's kernels: the functions of `leaf_operators` on a GPU, bit for bit the same.

Decisions are made in integers, and p^α in float64 without fused operations, as in `power`. Kernels with the environment
variable TRITON_INTERPRET=1 at import run on a CPU, slowly.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from replaylab.torch.drawing.fixed_point import ONE
from replaylab.torch.drawing.power import LN_2, LOG_SCALE, ONE_BITS, ROOT_HALF_BITS, SHIFT
from replaylab.torch.drawing.priority_tree import BITS, FAN, MOST_UPDATES, levels
from replaylab.torch.operators import on_its_device

_BITS, _FAN = tl.constexpr(BITS), tl.constexpr(FAN)
_ONE, _UNIT, _MOST_UPDATES = tl.constexpr(float(ONE)), tl.constexpr(ONE), tl.constexpr(MOST_UPDATES)
_MOST, _NODES = tl.constexpr(2**62), tl.constexpr(32)
_ONE_BITS, _ROOT_HALF_BITS = tl.constexpr(ONE_BITS), tl.constexpr(ROOT_HALF_BITS)
_LOG_SCALE, _LN_2, _SHIFT = tl.constexpr(LOG_SCALE), tl.constexpr(LN_2), tl.constexpr(SHIFT)

OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
BLOCK = 128
"""Rows of a program."""

DRAWN = 16
"""Rows of a program that descends the tree: few, so that small batches occupy many of the GPU's processors."""

STORED = 1024
"""Leaves that the one program of `store_kernel` writes at a time."""


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
    sums, starts, keys, draws, head_at, tail_at, ids, leaves, live_at, least, rows, capacity,
    DEPTH: tl.constexpr, STRATIFIED: tl.constexpr, RANGED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Draw rows in proportion to leaves, and note the smallest leaf of each program."""
    head, tail = tl.load(head_at), tl.load(tail_at)
    total = tl.load(sums + tl.load(starts + DEPTH))
    start = total - total
    live = total
    if RANGED:
        start = sum_before(sums, starts, tail % capacity, DEPTH)
        gap = start - sum_before(sums, starts, head % capacity, DEPTH)
        live = total - tl.where(tail % capacity < head % capacity, gap + total, gap)
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    targets = start + random_target(keys, draws, row, rows, live, STRATIFIED)
    targets = tl.where(targets >= total, targets - total, targets)
    targets = tl.where(live > 0, targets, -1)  # of which the first slot is found
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
    newest = head - 1
    age = newest - node
    age = age - tl.where(age < 0, (age + 1) // capacity - 1, age // capacity) * capacity
    tl.store(ids + row, tl.where(live > 0, newest - age, -1), mask=row < rows)
    tl.store(leaves + row, leaf, mask=row < rows)
    tl.store(least + tl.program_id(0), tl.min(tl.where(row < rows, leaf, _MOST), 0))
    tl.store(live_at, live, mask=tl.program_id(0) == 0)


@triton.jit
def weigh_kernel(
    leaves, live_at, least, parts, size_at, beta_at, draws, counts, probabilities, weights, rows,
    WEIGHTED: tl.constexpr, BY_BATCH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """See `leaf_operators.weigh_leaves`; `least` has the smallest leaf of each of some parts of the batch."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < rows
    leaf = tl.load(leaves + row, mask=inside, other=1)
    live = tl.load(live_at).to(tl.float64)
    probability = tl.where(live > 0.0, leaf.to(tl.float64) / tl.maximum(live, 1.0), 0.0)
    tl.store(probabilities + row, probability, mask=inside)
    weight = tl.full((SIZE,), 1.0, tl.float64)
    if WEIGHTED:
        if BY_BATCH:
            smallest = tl.full((SIZE,), _MOST, tl.int64)
            start = 0
            while start < parts:
                part = start + tl.arange(0, SIZE)
                smallest = tl.minimum(smallest, tl.load(least + part, mask=part < parts, other=_MOST))
                start += SIZE
            largest = tl.maximum(tl.min(smallest, 0), 1).to(tl.float64)
        else:
            largest = live / tl.load(size_at).to(tl.float64)
        beta = tl.zeros((SIZE,), tl.float64) + tl.load(beta_at)
        weight = power(largest / tl.maximum(leaf, 1).to(tl.float64), beta)
    tl.store(weights + row, tl.where(live > 0.0, weight, 0.0).to(tl.float32), mask=inside)
    first = tl.program_id(0) == 0
    tl.store(draws, tl.load(draws) + 1, mask=first)
    tl.store(counts, tl.load(counts) + rows, mask=first)


@triton.jit
def feedback_kernel(
    tickets, updates, largest_ever, numbers, head_at, tail_at, ids, values, slots, leaves, partials, n, capacity, most,
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
    tl.store(partials + 2 * tl.program_id(0), tl.sum(stored.to(tl.int64), 0))
    tl.store(partials + 2 * tl.program_id(0) + 1, tl.sum((inside & (valid == 0)).to(tl.int64), 0))
    tl.atomic_max(largest_ever, tl.max(tl.where(applies, leaf, 0), 0), sem="relaxed")


@triton.jit
def write_kernel(
    sums, starts, tickets, updates, slots, leaves, n,
    DEPTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Write the leaves of rows that hold their slot's ticket, and add what changed to the nodes above."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    wins = slot >= 0
    slot = tl.where(wins, slot, 0)
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
    below, peaks, slots, updates, partials, counts, applied, n, parts, child_start, start,
    LEVEL: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Recompute the largest leaf below the nodes of one level that are above some slots.

    At the first level one program also counts the update, which the kernels before it must not see counted.
    """
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    node = tl.where(slot >= 0, slot, 0) >> (_BITS * LEVEL)
    children = tl.load(below + child_start + (node[:, None] << _BITS) + tl.arange(0, _FAN)[None, :])
    tl.store(peaks + start + node, tl.max(children, 1), mask=slot >= 0)
    if LEVEL == 1:  # noqa: SIM102
        if tl.program_id(0) == 0:
            stored = tl.zeros((SIZE,), tl.int64)
            invalid = tl.zeros((SIZE,), tl.int64)
            first = 0
            while first < parts:
                part = first + tl.arange(0, SIZE)
                stored += tl.load(partials + 2 * part, mask=part < parts, other=0)
                invalid += tl.load(partials + 2 * part + 1, mask=part < parts, other=0)
                first += SIZE
            tl.store(applied, tl.sum(stored, 0))
            tl.store(counts + 1, tl.load(counts + 1) + n - tl.sum(stored, 0))
            tl.store(counts + 2, tl.load(counts + 2) + tl.sum(invalid, 0))
            tl.store(updates, tl.load(updates) + 1)


@triton.jit
def store_kernel(
    sums, peaks, starts, largest_ever, head_at, n, capacity,
    DEPTH: tl.constexpr, EVER: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """See `leaf_operators.store_leaves`; one program, since new steps have neighboring slots, and so few nodes."""
    siblings = tl.arange(0, _FAN)
    first = (tl.load(head_at) - n) % capacity
    leaves = tl.load(starts + 1)
    if EVER:
        leaf = tl.load(largest_ever)
    else:  # the largest that is stored, without the first slot
        leaf = first - first
        below = sums
        for level in tl.static_range(DEPTH):
            node = first >> (_BITS * level)
            children = tl.load(below + ((node >> _BITS) << _BITS) + siblings)
            leaf = tl.max(tl.where(siblings == node % _FAN, leaf, children), 0)
            below = peaks + tl.load(starts + (level + 1)) - leaves
        leaf = tl.where(leaf > 0, leaf, _UNIT)
        tl.debug_barrier()  # before leaves that were just read are overwritten
    start = 0
    while start < n:
        row = start + tl.arange(0, SIZE)
        tl.store(sums + (first + row) % capacity, leaf, mask=row < n)
        start += SIZE
    below = sums
    for level in tl.static_range(1, DEPTH + 1):
        tl.debug_barrier()  # so that all of the level below is written
        level_start = tl.load(starts + level)
        low = first >> (_BITS * level)
        straight = ((tl.minimum(first + n, capacity) - 1) >> (_BITS * level)) - low + 1  # up to the ring's seam
        count = straight + ((first + n - capacity - 1) >> (_BITS * level)) + 1  # and those from it on
        count = tl.where(first + n > capacity, count, straight)
        start = 0
        while start < count:
            index = start + tl.arange(0, _NODES)
            inside = index < count
            nodes = tl.where(index < straight, low + index, index - straight)
            at = (nodes[:, None] << _BITS) + siblings[None, :]
            total = tl.load(sums + tl.load(starts + (level - 1)) + at, mask=inside[:, None], other=0)
            tl.store(sums + level_start + nodes, tl.sum(total, 1), mask=inside)
            largest = tl.load(below + at, mask=inside[:, None], other=0)
            tl.store(peaks + level_start - leaves + nodes, tl.max(largest, 1), mask=inside)
            start += _NODES
        below = peaks + level_start - leaves


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
    on_its_device(lambda out: probe_kernel[(1,)](out, SIZE=16, **OPTIONS))(out)
    wanted = wanted_power(torch.arange(16, dtype=torch.float64) + 1.5, torch.tensor(0.6, dtype=torch.float64))
    if not torch.equal(out.cpu(), wanted):
        raise RuntimeError("a kernel's result is not that of PyTorch's operations")


def numbers(keys: Tensor, draws: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """See `philox.random_numbers`."""
    high, low = (torch.empty(rows, dtype=torch.int64, device=draws.device) for _ in range(2))
    numbers_kernel[_grid(rows)](keys, draws, high, low, rows, SIZE=BLOCK, **OPTIONS)
    return high, low


def targets(keys: Tensor, draws: Tensor, total: Tensor, rows: int, stratified: bool) -> Tensor:
    """See `philox.random_targets`."""
    out = torch.empty(rows, dtype=torch.int64, device=draws.device)
    targets_kernel[_grid(rows)](keys, draws, total, out, rows, STRATIFIED=stratified, SIZE=BLOCK, **OPTIONS)
    return out


def draw(
    tree: tuple[Tensor, Tensor],
    stream: tuple[Tensor, Tensor],
    stored: tuple[Tensor, Tensor],
    rows: int,
    capacity: int,
    stratified: bool,
    ranged: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `leaf_operators.draw_leaves`: sums and starts, keys and draws, head and tail together."""
    parts, device = triton.cdiv(rows, DRAWN), tree[0].device
    ids, leaves, live, least = (
        torch.empty(shape, dtype=torch.int64, device=device) for shape in (rows, rows, (), parts)
    )
    draw_kernel[(parts,)](
        *(*tree, *stream, *stored, ids, leaves, live, least, rows, capacity),
        **{"DEPTH": levels(capacity).depth, "STRATIFIED": stratified, "RANGED": ranged, "SIZE": DRAWN, **OPTIONS},
    )
    return ids, leaves, live, least


def weigh(
    drawn: tuple[Tensor, Tensor, Tensor],
    size: Tensor,
    beta: Tensor,
    counters: tuple[Tensor, Tensor],
    weighted: bool,
    by_batch: bool,
) -> tuple[Tensor, Tensor]:
    """See `leaf_operators.weigh_leaves`: leaves, live and least, draws and counts together."""
    leaves, live, least = drawn
    rows = len(leaves)
    probabilities, weights = (
        torch.empty(rows, dtype=kind, device=leaves.device) for kind in (beta.dtype, torch.float32)
    )
    weigh_kernel[_grid(rows)](
        *(leaves, live, least, len(least), size, beta, *counters, probabilities, weights, rows),
        **{"WEIGHTED": weighted, "BY_BATCH": by_batch, "SIZE": BLOCK, **OPTIONS},
    )
    return probabilities, weights


def update(
    tree: tuple[Tensor, ...],
    numbers: Tensor,
    stored: tuple[Tensor, Tensor],
    ids: Tensor,
    values: Tensor,
    counts: Tensor,
    kind: int,
    most: int,
    capacity: int,
) -> Tensor:
    """See `leaf_operators.update_leaves`: the tree's first six tensors, and head and tail together."""
    sums, peaks, tickets, updates, largest_ever, starts = tree
    n, parts, depth = len(ids), max(1, triton.cdiv(len(ids), BLOCK)), levels(capacity).depth
    slots, leaves, partials, applied = (
        torch.empty(shape, dtype=torch.int64, device=sums.device) for shape in (n, n, (parts, 2), ())
    )
    options = {"SIZE": BLOCK, **OPTIONS}
    feedback_kernel[(parts,)](
        *(tickets, updates, largest_ever, numbers, *stored, ids.contiguous(), values.contiguous(), slots, leaves),
        *(partials, n, capacity, most),
        **{"KIND": kind, **options},
    )
    write_kernel[(parts,)](sums, starts, tickets, updates, slots, leaves, n, DEPTH=depth, **options)
    counted = (updates, partials, counts, applied, n, parts)
    below, below_start = sums, 0
    for level, level_start in enumerate(levels(capacity).starts[1:], 1):
        start = level_start - levels(capacity).leaves
        peak_kernel[(parts,)](below, peaks, slots, *counted, below_start, start, LEVEL=level, **options)
        below, below_start = peaks, start
    return applied


def store(
    tree: tuple[Tensor, Tensor, Tensor], largest_ever: Tensor, head: Tensor, n: int, capacity: int, ever: bool
) -> None:
    """See `leaf_operators.store_leaves`: sums, peaks and starts together."""
    store_kernel[(1,)](
        *(*tree, largest_ever, head, n, capacity),
        **{"DEPTH": levels(capacity).depth, "EVER": ever, "SIZE": STORED, **OPTIONS},
    )


def _grid(n: int) -> tuple[int]:
    return (triton.cdiv(n, BLOCK),)
