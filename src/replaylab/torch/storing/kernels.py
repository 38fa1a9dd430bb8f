"""Triton's kernels that store steps, read from the tensors of their fields: what `steps.store_steps` does.

For `values`, `PLAN` and the constants up to `TRUNCATED_AT` see `launches.field_plan`. `AT`: a field's place in `PLAN`.
"""

import triton
import triton.language as tl

from replaylab.torch.drawing.kernels import store_leaves
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED

_TERMINATED, _TRUNCATED, _PARTS = tl.constexpr(TERMINATED), tl.constexpr(TRUNCATED), tl.constexpr(128)


@triton.jit
def elements(field, row, word, mask, PLAN: tl.constexpr, AT: tl.constexpr):
    """Return elements of a field in some rows as they are stored, as integers."""
    NBYTES: tl.constexpr = PLAN[AT + 2]
    HALF: tl.constexpr = PLAN[AT + 3]
    at = row[:, None] * PLAN[AT + 1] + word
    if HALF > 0:
        number = tl.load(field + at, mask=mask, other=0.0).to(tl.float32)
        if HALF == 1:
            result = number.to(tl.float16).to(tl.int16, bitcast=True)
        else:  # bfloat16, to the nearest, halves to even, as not every GPU and the interpreter do
            bits = number.to(tl.int32, bitcast=True)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            result = tl.where(number == number, rounded, 0x7FC0).to(tl.int16)
    elif NBYTES == 4:
        result = tl.load(field.to(tl.pointer_type(tl.int32)) + at, mask=mask, other=0)
    elif NBYTES == 2:
        result = tl.load(field.to(tl.pointer_type(tl.int16)) + at, mask=mask, other=0)
    else:
        result = tl.load(field.to(tl.pointer_type(tl.int8)) + at, mask=mask, other=0)
    return result


@triton.jit
def places(table, slot, word, WIDTH: tl.constexpr, PLAN: tl.constexpr, AT: tl.constexpr):
    """Return pointers to elements of a field in rows of the ring."""
    NBYTES: tl.constexpr = PLAN[AT + 2]
    if NBYTES == 4:
        start = table
    elif NBYTES == 2:
        start = table.to(tl.pointer_type(tl.int16))
    else:
        start = table.to(tl.pointer_type(tl.int8))
    return start + slot[:, None] * (WIDTH * 4 // NBYTES) + (word + PLAN[AT] * 4 // NBYTES)


@triton.jit
def end_flags(values, row, mask, TERMINATED_AT: tl.constexpr, TRUNCATED_AT: tl.constexpr):
    """Return the flags of new steps."""
    flags = tl.zeros(row.shape, tl.uint8)
    if TERMINATED_AT >= 0:
        flags += tl.load(values[TERMINATED_AT].to(tl.pointer_type(tl.uint8)) + row, mask=mask, other=0) * _TERMINATED
    if TRUNCATED_AT >= 0:
        flags += tl.load(values[TRUNCATED_AT].to(tl.pointer_type(tl.uint8)) + row, mask=mask, other=0) * _TRUNCATED
    return flags


@triton.jit
def led_to(
    newest, following, row, word, mask, ENVS: tl.constexpr, WIDTH: tl.constexpr, PLAN: tl.constexpr, AT: tl.constexpr
):  # fmt: skip
    """Return elements of the observations that the steps before new ones led to; `newest`: those of stored steps."""
    early = (row < ENVS)[:, None]
    first = tl.load(places(newest, row, word, WIDTH, PLAN, AT), mask=mask & early, other=0)
    return tl.where(early, first, elements(following, row - ENVS, word, mask & (row >= ENVS)[:, None], PLAN, AT))


@triton.jit
def differences(
    newest, field, following, row, inside,
    ENVS: tl.constexpr, WIDTH: tl.constexpr, PLAN: tl.constexpr, AT: tl.constexpr,
):  # fmt: skip
    """Return in how many elements a field of new observations differs from those that the steps before led to."""
    count = tl.zeros(row.shape, tl.int32)
    for start in range(0, PLAN[AT + 1], PLAN[AT + 4]):
        word = start + tl.arange(0, PLAN[AT + 4])[None, :]
        mask = inside[:, None] & (word < PLAN[AT + 1])
        before = led_to(newest, following, row, word, mask, ENVS, WIDTH, PLAN, AT)
        count += tl.sum((before != elements(field, row, word, mask, PLAN, AT)).to(tl.int32), 1)
    return count


@triton.jit(do_not_specialize=["n"])
def apart_kernel(
    frames, flags, head_at, tail_at, tally, values, out, n,
    PLAN: tl.constexpr, FRAMES: tl.constexpr, FIELDS: tl.constexpr, TERMINATED_AT: tl.constexpr,
    TRUNCATED_AT: tl.constexpr, CAPACITY: tl.constexpr, ENVS: tl.constexpr, FRAME_WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Find the steps before new ones whose next observation is not the new one, and count them.

    `out` gets 1 for each such step, and behind its n rows the number of each program; `tally` gets the sum.
    """
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    early = row < ENVS
    before = tl.load(head_at) + row - ENVS
    stored = (row < n) & (before >= tl.load(tail_at))
    newest = frames + CAPACITY * FRAME_WIDTH
    differ = tl.zeros((SIZE,), tl.int32)
    for i in tl.static_range(FRAMES):
        differ += differences(newest, values[i], values[FIELDS + i], row, stored, ENVS, FRAME_WIDTH, PLAN, 5 * i)
    end = tl.load(flags + before % CAPACITY, mask=stored & early, other=0)
    later = end_flags(values, row - ENVS, stored & (row >= ENVS), TERMINATED_AT, TRUNCATED_AT)
    apart = stored & (differ > 0) & ((tl.where(early, end, later) & _TERMINATED) == 0)
    count = tl.sum(apart.to(tl.int64), 0)
    tl.store(out + row, apart.to(tl.int64), mask=row < n)
    tl.store(out + n + tl.program_id(0), count)
    tl.atomic_add(tally + 1, count, sem="relaxed")


@triton.jit
def copy_field(table, field, row, slot, inside, WIDTH: tl.constexpr, PLAN: tl.constexpr, AT: tl.constexpr):
    """Write a field of some rows into slots."""
    for start in range(0, PLAN[AT + 1], PLAN[AT + 4]):
        word = start + tl.arange(0, PLAN[AT + 4])[None, :]
        mask = inside[:, None] & (word < PLAN[AT + 1])
        tl.store(places(table, slot, word, WIDTH, PLAN, AT), elements(field, row, word, mask, PLAN, AT), mask=mask)


@triton.jit
def copy_following(
    frames, newest, following, row, slot, moved, early, n,
    ENVS: tl.constexpr, WIDTH: tl.constexpr, PLAN: tl.constexpr, AT: tl.constexpr,
):  # fmt: skip
    """Write a field of what the steps before some rows led to into the side ring, and of what the newest ones led to.

    The program of the first step of each environment writes the latter, since it reads what is there.
    """
    for start in range(0, PLAN[AT + 1], PLAN[AT + 4]):
        word = start + tl.arange(0, PLAN[AT + 4])[None, :]
        older, latest = moved[:, None] & (word < PLAN[AT + 1]), early[:, None] & (word < PLAN[AT + 1])
        before = led_to(newest, following, row, word, older, ENVS, WIDTH, PLAN, AT)
        last = elements(following, n - ENVS + row, word, latest, PLAN, AT)
        tl.debug_barrier()  # before what was just read is overwritten
        tl.store(places(frames, slot, word, WIDTH, PLAN, AT), before, mask=older)
        tl.store(places(newest, row, word, WIDTH, PLAN, AT), last, mask=latest)


@triton.jit(do_not_specialize=["n"])
def store_kernel(
    frames, rest, flags, side, owners, head_at, tail_at, closings_at, tally, sums, peaks, largest_ever, values, out, n,
    PLAN: tl.constexpr, FRAMES: tl.constexpr, FIELDS: tl.constexpr, TERMINATED_AT: tl.constexpr,
    TRUNCATED_AT: tl.constexpr, CAPACITY: tl.constexpr, ENVS: tl.constexpr, FRAME_WIDTH: tl.constexpr,
    WIDTH: tl.constexpr, SIDES: tl.constexpr, STARTS: tl.constexpr, DEPTH: tl.constexpr, EVER: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Write steps, and return their ids in `out`, where `apart_kernel` left its results.

    If there are priorities (`DEPTH`), one more program writes those of the new steps. The last program to end moves
    head and tail; members of `tally`: how many have ended, the steps that `apart_kernel` counted, and one more than the
    largest id whose row of the side ring is overwritten.
    """
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    inside, head = row < n, tl.load(head_at)
    step = head + row
    slot = step % CAPACITY
    if DEPTH > 0:  # noqa: SIM102 - decided when it is compiled
        if tl.program_id(0) == tl.num_programs(0) - 1:
            store_leaves(sums, peaks, largest_ever, head % CAPACITY, n, CAPACITY, STARTS, DEPTH, EVER)
    if SIDES > 0:
        moved = tl.load(out + row, mask=inside, other=0) != 0
        earlier = tl.zeros((_PARTS,), tl.int64)
        start = 0
        while start < tl.program_id(0):
            part = start + tl.arange(0, _PARTS)
            earlier += tl.load(out + n + part, mask=part < tl.program_id(0), other=0)
            start += _PARTS
        place = tl.load(closings_at) + tl.sum(earlier, 0) + tl.cumsum(moved.to(tl.int64), 0) - 1
        place = (place + SIDES) % SIDES
        owner = tl.load(owners + place, mask=moved, other=-1)
        tl.atomic_max(tally + 2, tl.max(tl.where(moved, owner, -1), 0) + 1, sem="relaxed")
        tl.debug_barrier()  # before what was just read is overwritten
        tl.store(owners + place, step - ENVS, mask=moved)
        # Where the ring is filled at once, the slots of the steps before are those of the newest ones.
        known = inside & (row >= tl.where(n + ENVS <= CAPACITY, 0, ENVS))
        tl.store(side + (step - ENVS + CAPACITY) % CAPACITY, tl.where(moved, place, -1).to(tl.int32), mask=known)
        tl.store(side + slot, row.to(tl.int32) * 0 - 1, mask=inside & (row >= n - ENVS))
        for i in tl.static_range(FRAMES):
            copy_following(
                frames, frames + CAPACITY * FRAME_WIDTH, values[FIELDS + i], row, CAPACITY + ENVS + place, moved,
                inside & (row < ENVS), n, ENVS, FRAME_WIDTH, PLAN, 5 * i,
            )  # fmt: skip
    for i in tl.static_range(FRAMES):
        copy_field(frames, values[i], row, slot, inside, FRAME_WIDTH, PLAN, 5 * i)
    for i in tl.static_range(FRAMES, FIELDS):
        copy_field(rest, values[i], row, slot, inside, WIDTH, PLAN, 5 * i)
    tl.store(flags + slot, end_flags(values, row, inside, TERMINATED_AT, TRUNCATED_AT), mask=inside)
    tl.debug_barrier()  # this program has read what the last program, which moves head and tail, changes
    tl.store(out + row, step, mask=inside)
    last = tl.atomic_add(tally, 1, sem="acq_rel") == tl.num_programs(0) - 1
    tail = tl.maximum(tl.load(tail_at), head + n - CAPACITY)
    if SIDES > 0:
        lost = tl.load(tally + 2, mask=last, other=0) - 1
        tail = tl.maximum(tail, (lost + ENVS) // ENVS * ENVS)
        tl.store(closings_at, tl.load(closings_at) + tl.load(tally + 1), mask=last)
        tl.store(tally + 1, 0, mask=last)
        tl.store(tally + 2, 0, mask=last)
    tl.store(tail_at, tail, mask=last)
    tl.store(head_at, head + n, mask=last)
    tl.store(tally, 0, mask=last)
