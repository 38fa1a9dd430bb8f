"""Triton's kernels: the functions of `leaf_operators` on a GPU, bit for bit the same.

Decisions are made in integers, and p^α in float64 without fused operations, as in `power`. Kernels with the environment
variable TRITON_INTERPRET=1 at import run on a CPU, slowly.
"""

import torch
import triton
import triton.language as tl

from replaylab.torch.drawing.fixed_point import ONE
from replaylab.torch.drawing.power import LN_2, LOG_SCALE, ONE_BITS, ROOT_HALF_BITS, SHIFT
from replaylab.torch.drawing.priority_tree import BITS, FAN, MOST_UPDATES
from replaylab.torch.launching import Launcher

_BITS, _FAN = tl.constexpr(BITS), tl.constexpr(FAN)
_ONE, _UNIT, _MOST_UPDATES = tl.constexpr(float(ONE)), tl.constexpr(ONE), tl.constexpr(MOST_UPDATES)
_MOST, _NODES, _LEAVES = tl.constexpr(2**62), tl.constexpr(32), tl.constexpr(1024)
_ONE_BITS, _ROOT_HALF_BITS = tl.constexpr(ONE_BITS), tl.constexpr(ROOT_HALF_BITS)
_LOG_SCALE, _LN_2, _SHIFT = tl.constexpr(LOG_SCALE), tl.constexpr(LN_2), tl.constexpr(SHIFT)


@triton.jit
def log2_of_ratio(s):
    """See `replaylab.torch.drawing.power._log2_of_ratio`."""
    q = s * s
    ones = tl.full(s.shape, 1.0, tl.float64)
    series = q * (ones / 13.0)
    for k in tl.static_range(5):
        series = q * (ones / (11.0 - 2.0 * k) + series)
    return (tl.full(s.shape, _LOG_SCALE, tl.float64) * s) * (1.0 + series)


@triton.jit
def log2(x):
    """See `replaylab.torch.drawing.power.log2`."""
    bits = x.to(tl.int64, bitcast=True)
    biased = (bits + (_ONE_BITS - _ROOT_HALF_BITS)) >> 52
    m = (bits - (biased << 52) + _ONE_BITS).to(tl.float64, bitcast=True)
    return (biased.to(tl.float64) - 1023.0) + log2_of_ratio((m - 1.0) / (m + 1.0))


@triton.jit
def log2_1p(x):
    """See `replaylab.torch.drawing.power.log2_1p`."""
    return tl.where(x < -0.25, log2(1.0 + x), log2_of_ratio(x / (2.0 + x)))


@triton.jit
def exp2(exponent, MINUS_1: tl.constexpr):
    """See `exp2` and `exp2_m1` of `replaylab.torch.drawing.power`."""
    exponent = tl.minimum(tl.maximum(exponent, -1000.0), 1000.0)
    ones, shift = tl.full(exponent.shape, 1.0, tl.float64), tl.full(exponent.shape, _SHIFT, tl.float64)
    shifted = exponent + shift
    f = (exponent - (shifted - shift)) * tl.full(exponent.shape, _LN_2, tl.float64)
    low = f * (1.0 + f * (ones / 2.0 + f * (ones / 6.0 + f * (ones / 24.0))))
    high = ones / 120.0 + f * (ones / 720.0 + f * (ones / 5040.0 + f * (ones / 40320.0 + f * (ones / 362880.0))))
    squared = f * f
    high = squared * squared * f * high
    scale = ((shifted.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    result = (1.0 + low + high) * scale
    if MINUS_1:
        result = tl.where(scale == 1.0, low + high, result - 1.0)
    return result


@triton.jit
def power(x, y):
    """See `replaylab.torch.drawing.power.power`."""
    return tl.where(y == 1.0, x, exp2(y * log2(x), False))


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
def sum_before(sums, slot, STARTS: tl.constexpr, DEPTH: tl.constexpr):
    """Return the sum of the leaves before one slot."""
    siblings = tl.arange(0, _FAN)
    before = tl.zeros((1,), tl.int64)
    for level in tl.static_range(DEPTH):
        node = slot >> (_BITS * level)
        first = (node >> _BITS) << _BITS
        children = tl.load(sums + STARTS[level] + first + siblings)
        before += tl.sum(tl.where(siblings < node - first, children, 0), 0)
    return tl.sum(before, 0)


@triton.jit
def child_of(children_at, node, target, LAST: tl.constexpr):
    """Return the child of each node in which a target is, the target within it, and at the leaves its leaf.

    Four lanes look at a node: 8 children at a time, of which each lane has 2.
    """
    lane = tl.arange(0, 8)[None, :]
    at = children_at + node[:, None] * _FAN + lane
    part_0, part_1, part_2, part_3 = tl.load(at), tl.load(at + 8), tl.load(at + 16), tl.load(at + 24)
    end_0 = tl.sum(part_0, 1)
    end_1 = end_0 + tl.sum(part_1, 1)
    end_2 = end_1 + tl.sum(part_2, 1)
    behind_0, behind_1, behind_2 = end_0 <= target, end_1 <= target, end_2 <= target
    passed = behind_0.to(tl.int32) + behind_1.to(tl.int32) + behind_2.to(tl.int32)
    target -= tl.where(behind_2, end_2, tl.where(behind_1, end_1, tl.where(behind_0, end_0, 0)))
    part = tl.where(behind_0[:, None], part_1, part_0)
    part = tl.where(behind_2[:, None], part_3, tl.where(behind_1[:, None], part_2, part))
    child = tl.minimum(tl.sum((tl.cumsum(part, 1) <= target[:, None]).to(tl.int32), 1), 7)
    target -= tl.sum(tl.where(lane < child[:, None], part, 0), 1)
    leaf = target
    if LAST:
        leaf = tl.sum(tl.where(lane == child[:, None], part, 0), 1)
    return node * _FAN + passed * 8 + child, target, leaf


@triton.jit(do_not_specialize=["rows"])
def draw_kernel(
    sums, keys, draws, head_at, tail_at, scratch, out, rows,
    CAPACITY: tl.constexpr, STARTS: tl.constexpr, DEPTH: tl.constexpr, STRATIFIED: tl.constexpr, RANGED: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Draw rows in proportion to leaves: their ids, then their leaves; see `samplers.draw_leaves`.

    Members of `scratch`: the sum of the leaves of stored steps; two smallest leaves, of this batch and of the next one,
    in turn; whose turn it is; and the same for `gather_kernel`, which changes the turn.
    """
    head, turn = tl.load(head_at), tl.load(scratch + 3)
    total = tl.load(sums + STARTS[DEPTH])
    start = total - total
    live = total
    if RANGED:
        tail = tl.load(tail_at)
        if tail > head - CAPACITY and tail > 0:  # steps were dropped before they were overwritten
            start = sum_before(sums, tail % CAPACITY, STARTS, DEPTH)
            gap = start - sum_before(sums, head % CAPACITY, STARTS, DEPTH)
            live = total - tl.where(tail % CAPACITY < head % CAPACITY, gap + total, gap)
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    target = start + random_target(keys, draws, row, rows, live, STRATIFIED)
    if RANGED:
        target = tl.where(target >= total, target - total, target)
    target = tl.where(live > 0, target, -1)  # of which the first slot is found
    node = row * 0
    leaf = target
    for step in tl.static_range(DEPTH):
        node, target, leaf = child_of(sums + STARTS[DEPTH - 1 - step], node, target, step == DEPTH - 1)
    age = ((head - 1) % CAPACITY).to(tl.int32) - node
    age = tl.where(age < 0, age + CAPACITY, age)
    numbers = out.to(tl.pointer_type(tl.int64))
    inside = row < rows
    tl.store(numbers + row, tl.where(live > 0, head - 1 - age, -1), mask=inside)
    tl.store(numbers + rows + row, leaf, mask=inside)
    tl.atomic_min(scratch + 1 + turn, tl.min(tl.where(inside, leaf, _MOST), 0), sem="relaxed")
    first = tl.program_id(0) == 0
    tl.store(scratch, live, mask=first)
    tl.store(scratch + 4, turn, mask=first)


@triton.jit(do_not_specialize=["n"])
def feedback_kernel(
    waiting, tickets, updates, largest_ever, tally, numbers, head_at, tail_at,
    ids, values, block, n,
    KIND: tl.constexpr, MOST: tl.constexpr, CAPACITY: tl.constexpr, STARTS: tl.constexpr, DEPTH: tl.constexpr,
    EVER: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Make leaves of feedback, and give each slot the number of the last id that has it.

    `block` takes slots, −1 where nothing applies, leaves and tickets, n each. `waiting` counts for each node above the
    leaves the children that `write_kernel` is to look at: nodes at the lowest level count rows.
    """
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
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
    scaled = tl.minimum(raised * _ONE, tl.full((SIZE,), MOST, tl.int64).to(tl.float64))
    leaf = ((scaled + shift) - shift).to(tl.int64)  # to the nearest, halves to even
    leaf = tl.where(priority > 0.0, tl.maximum(leaf, 1), 0)
    stored = inside & (step >= tl.load(tail_at)) & (step < tl.load(head_at))
    applies = stored & valid
    slot = tl.where(applies, step % CAPACITY, 0)
    ticket = (tl.load(updates) + 1) * _MOST_UPDATES + row
    tl.atomic_max(tickets + slot, ticket, mask=applies, sem="relaxed")
    tl.store(block + row, tl.where(applies, slot, -1), mask=inside)
    tl.store(block + n + row, leaf, mask=inside)
    tl.store(block + 2 * n + row, ticket, mask=inside)
    if not EVER:
        first = applies
        for level in tl.static_range(1, DEPTH + 1):
            node = STARTS[level] - STARTS[1] + (slot >> (_BITS * level))
            before = tl.atomic_add(waiting + node, 1, mask=first, sem="relaxed")
            first = first & (before == 0)
    tl.atomic_add(tally, tl.sum(stored.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(tally + 1, tl.sum((inside & (valid == 0)).to(tl.int64), 0), sem="relaxed")
    tl.atomic_max(largest_ever, tl.max(tl.where(applies, leaf, 0), 0), sem="relaxed")


@triton.jit(do_not_specialize=["n"])
def write_kernel(
    sums, peaks, waiting, tickets, updates, tally, counts, block, n,
    STARTS: tl.constexpr, DEPTH: tl.constexpr, EVER: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Write the leaves of rows that hold their slot's ticket, and add what changed to the nodes above.

    Largest leaves are recomputed from the leaves up: whoever is the last to look at a node, whose children are then
    complete, recomputes it and looks at its parent. `waiting` is then 0 again. One program counts the update, and puts
    the number of stored steps in place of `block`'s fourth part.
    """
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    slot = tl.load(block + row, mask=row < n, other=-1)
    applies = slot >= 0
    slot = tl.where(applies, slot, 0)
    ticket = tl.load(block + 2 * n + row, mask=applies, other=0)
    wins = applies & (tl.load(tickets + slot, mask=applies, other=-1) == ticket)
    leaf = tl.load(block + n + row, mask=wins, other=0)
    old = tl.atomic_xchg(sums + slot, leaf, mask=wins, sem="relaxed")
    change = tl.where(wins, leaf - old, 0)
    for level in tl.static_range(1, DEPTH):
        tl.atomic_add(sums + STARTS[level] + (slot >> (_BITS * level)), change, mask=change != 0, sem="relaxed")
    tl.atomic_add(sums + STARTS[DEPTH], tl.sum(change, 0), sem="relaxed")
    if not EVER:
        below = sums
        looks = applies
        for level in tl.static_range(1, DEPTH + 1):
            node = slot >> (_BITS * level)
            at = STARTS[level] - STARTS[1] + node
            tl.debug_barrier()  # what this program wrote below is complete
            looks = looks & (tl.atomic_add(waiting + at, -1, mask=looks, sem="acq_rel") == 1)
            tl.debug_barrier()
            siblings = (node[:, None] << _BITS) + tl.arange(0, _FAN)[None, :]
            children = tl.load(below + siblings, mask=looks[:, None], other=0, cache_modifier=".cg")
            tl.store(peaks + at, tl.max(children, 1), mask=looks)
            below = peaks + (STARTS[level] - STARTS[1])
    first = tl.program_id(0) == 0
    stored, invalid = tl.load(tally), tl.load(tally + 1)
    tl.debug_barrier()
    tl.store(block + 3 * n, stored, mask=first)
    tl.store(counts + 1, tl.load(counts + 1) + n - stored, mask=first)
    tl.store(counts + 2, tl.load(counts + 2) + invalid, mask=first)
    tl.store(updates, tl.load(updates) + 1, mask=first)
    tl.store(tally, 0, mask=first)
    tl.store(tally + 1, 0, mask=first)


@triton.jit(do_not_specialize=["n"])
def count_kernel(counts, head_at, tail_at, ids, out, n, SIZE: tl.constexpr):
    """Count ids whose step is stored, and the others in the second of `counts`; one program."""
    head, tail = tl.load(head_at), tl.load(tail_at)
    stored = tl.zeros((SIZE,), tl.int64)
    start = 0
    while start < n:
        row = start + tl.arange(0, SIZE)
        step = tl.load(ids + row, mask=row < n, other=-1)
        stored += ((step >= tail) & (step < head)).to(tl.int64)
        start += SIZE
    total = tl.sum(stored, 0)
    tl.store(out, total)
    tl.store(counts + 1, tl.load(counts + 1) + n - total)


@triton.jit
def store_leaves(
    sums, peaks, largest_ever, first, n,
    CAPACITY: tl.constexpr, STARTS: tl.constexpr, DEPTH: tl.constexpr, EVER: tl.constexpr,
):  # fmt: skip
    """See `leaf_operators.store_leaves`; by one program, since new steps have neighboring slots, and so few nodes."""
    siblings = tl.arange(0, _FAN)
    if EVER:
        leaf = tl.load(largest_ever)
    else:  # the largest that is stored, without the first slot
        leaf = first - first
        below = sums
        for level in tl.static_range(DEPTH):
            node = first >> (_BITS * level)
            children = tl.load(below + ((node >> _BITS) << _BITS) + siblings)
            leaf = tl.max(tl.where(siblings == node % _FAN, leaf, children), 0)
            below = peaks + (STARTS[level + 1] - STARTS[1])
        leaf = tl.where(leaf > 0, leaf, _UNIT)
        tl.debug_barrier()  # before leaves that were just read are overwritten
    start = 0
    while start < n:
        row = start + tl.arange(0, _LEAVES)
        tl.store(sums + (first + row) % CAPACITY, leaf, mask=row < n)
        start += _LEAVES
    below = sums
    for level in tl.static_range(1, DEPTH + 1):
        tl.debug_barrier()  # so that all of the level below is written
        low = first >> (_BITS * level)
        straight = ((tl.minimum(first + n, CAPACITY) - 1) >> (_BITS * level)) - low + 1  # up to the ring's seam
        count = straight + ((first + n - CAPACITY - 1) >> (_BITS * level)) + 1  # and those from it on
        count = tl.where(first + n > CAPACITY, count, straight)
        start = 0
        while start < count:
            index = start + tl.arange(0, _NODES)
            inside = index < count
            nodes = tl.where(index < straight, low + index, index - straight)
            at = (nodes[:, None] << _BITS) + siblings[None, :]
            total = tl.load(sums + STARTS[level - 1] + at, mask=inside[:, None], other=0)
            tl.store(sums + STARTS[level] + nodes, tl.sum(total, 1), mask=inside)
            if not EVER:
                largest = tl.load(below + at, mask=inside[:, None], other=0)
                tl.store(peaks + (STARTS[level] - STARTS[1]) + nodes, tl.max(largest, 1), mask=inside)
            start += _NODES
        below = peaks + (STARTS[level] - STARTS[1])


@triton.jit(do_not_specialize=["place"])
def probe_kernel(out, place, SIZE: tl.constexpr):
    """Write a power, to see whether kernels run here and how they round."""
    x = tl.arange(0, SIZE).to(tl.float64) + 1.5
    tl.store(out + place + tl.arange(0, SIZE), power(x, tl.zeros((SIZE,), tl.float64) + 0.6))


def probe(device: torch.device) -> None:
    """Run a kernel, through Triton and as a kept one, and compare what it writes.

    Raises:
        RuntimeError: It wrote something else than PyTorch's operations compute; or as Triton raises.
    """
    from replaylab.torch.drawing.power import power as wanted_power

    out = torch.zeros(32, dtype=torch.float64, device=device)
    launch = Launcher(probe_kernel, (out,), {"SIZE": 16, "num_warps": 4})
    for place in (0, 16):
        launch((1, 1, 1), None, place)
    wanted = wanted_power(torch.arange(16, dtype=torch.float64) + 1.5, torch.tensor(0.6, dtype=torch.float64)).repeat(2)
    if not torch.equal(out.cpu(), wanted):
        raise RuntimeError("a kernel's result is not that of PyTorch's operations")
