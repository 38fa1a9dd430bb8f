"""Triton's kernel of a batch: what `Draws.draw` and `Assembly.columns` do by PyTorch's operations."""

import triton
import triton.language as tl

from replaylab.torch.drawing.kernels import exp2, log2_1p, power, random_number, random_target
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED

_TERMINATED, _TRUNCATED, _MOST = tl.constexpr(TERMINATED), tl.constexpr(TRUNCATED), tl.constexpr(2**62)


@triton.jit
def slot_of(age, top, CAPACITY: tl.constexpr):
    """Return the slots of steps by age: 0 is the newest one, in slot `top`."""
    slot = top - age
    return tl.where(slot < 0, slot + CAPACITY, slot)


@triton.jit
def random_ages(
    keys, draws, scheduled_at, call_at, row, rows, size,
    KIND: tl.constexpr, STRATIFIED: tl.constexpr, BURST: tl.constexpr, LEAST: tl.constexpr, LOG_KEPT: tl.constexpr,
):  # fmt: skip
    """Return the ages of drawn steps and their probabilities; see `samplers.Draws`."""
    full = tl.zeros(row.shape, tl.float64)
    stored = full + size.to(tl.float64)
    if KIND == 2:  # Geometric
        number = random_number(keys, draws, row)
        uniform = ((number >> 12).to(tl.int64).to(tl.float64) + 0.5) * 2.220446049250313e-16
        log_kept = tl.full(row.shape, LOG_KEPT, tl.float64)
        cut = exp2(stored * log_kept, True)
        age = tl.minimum((log2_1p(uniform * cut) / log_kept).to(tl.int64), size - 1)
        probability = exp2(log_kept, True) / cut * exp2(age.to(tl.float64) * log_kept, False)
    elif KIND == 3:  # Recency
        exponent = (full + 1000.0) * tl.load(call_at).to(tl.float64) / (full + BURST)
        wanted = (stored * power(full + tl.load(scheduled_at), exponent)).to(tl.int64)
        window = tl.minimum(tl.max(tl.maximum(wanted, LEAST), 0), size)
        age = random_target(keys, draws, row, rows, window, False)
        probability = 1.0 / (full + window.to(tl.float64))
    else:  # Uniform, and Combined, whose last row is the newest step
        age = size - 1 - random_target(keys, draws, row, rows, size, STRATIFIED)
        probability = 1.0 / stored
        if KIND == 4:
            age = tl.where(row == rows - 1, 0, age)
            uniform_rows = full + (rows - 1).to(tl.float64)
            probability = (uniform_rows / stored + tl.where(age == 0, 1.0, 0.0)) / (uniform_rows + 1.0)
    return age, probability


@triton.jit
def weights_of(leaf, live, least, size, scheduled_at, WEIGHTED: tl.constexpr, BY_BATCH: tl.constexpr):
    """Return probabilities and weights of drawn leaves; see `samplers.weigh_leaves`."""
    live = live.to(tl.float64)
    full = tl.zeros(leaf.shape, tl.float64)
    probability = tl.where(live > 0.0, leaf.to(tl.float64) / tl.maximum(live, 1.0), 0.0)
    weight = full + 1.0
    if WEIGHTED:
        largest = tl.maximum(least, 1).to(tl.float64) if BY_BATCH else live / size.to(tl.float64)
        weight = power(largest / tl.maximum(leaf, 1).to(tl.float64), full + tl.load(scheduled_at))
    return probability, tl.where(live > 0.0, weight, 0.0).to(tl.float32)


@triton.jit
def drawn_ages(
    draws, counts, call_at, scratch, keys, scheduled_at, head, tail, out, row, rows, once,
    KIND: tl.constexpr, COPIED: tl.constexpr, STRATIFIED: tl.constexpr, WEIGHTED: tl.constexpr, BY_BATCH: tl.constexpr,
    BURST: tl.constexpr, LEAST: tl.constexpr, LOG_KEPT: tl.constexpr,
):  # fmt: skip
    """Return the ages of drawn steps, write what a batch says of the draw, and count it, in one program."""
    size = head - tail
    numbers = out.to(tl.pointer_type(tl.int64))
    floats = out.to(tl.pointer_type(tl.float32)) + rows * (6 + COPIED)
    odds = out.to(tl.pointer_type(tl.float64)) + rows + row
    if KIND == 1:  # `draw_kernel` drew them
        age = head - 1 - tl.maximum(tl.load(numbers + row, mask=row < rows, other=0), tail)
        turn = tl.load(scratch + 4)
        if tl.program_id(1) == 0:
            leaf = tl.load(numbers + rows + row, mask=once, other=1)
            live, least = tl.load(scratch), tl.load(scratch + 1 + turn)
            probability, weight = weights_of(leaf, live, least, size, scheduled_at, WEIGHTED, BY_BATCH)
            tl.store(odds, probability, mask=once)
            tl.store(floats + row, weight, mask=once)
        counting = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
        tl.store(scratch + 2 - turn, _MOST, mask=counting)
        tl.store(scratch + 3, 1 - turn, mask=counting)
    else:
        age, probability = random_ages(
            keys, draws, scheduled_at, call_at, row, rows, size, KIND, STRATIFIED, BURST, LEAST, LOG_KEPT
        )
        tl.store(odds, probability, mask=once)
        tl.store(floats + row, tl.full(row.shape, 1.0, tl.float32), mask=once)
        tl.store(numbers + row, head - 1 - age, mask=row < rows)
        tl.debug_barrier()  # this program has read what the last program, which counts, changes
        programs = tl.num_programs(0) * tl.num_programs(1)
        counting = tl.atomic_add(scratch + 5, 1, sem="acq_rel") == programs - 1
        tl.store(scratch + 5, 0, mask=counting)
        if KIND == 3:
            call = tl.load(call_at)
            tl.store(call_at, tl.where(call >= BURST, 1, call + 1), mask=counting)
    tl.store(draws, tl.load(draws) + 1, mask=counting)
    tl.store(counts, tl.load(counts) + rows, mask=counting)
    return age


@triton.jit
def followed_steps(
    rest, flags, side, powers, out, age, top, row, rows, inside, once,
    CAPACITY: tl.constexpr, ENVS: tl.constexpr, WIDTH: tl.constexpr, COLUMN: tl.constexpr, STEPS: tl.constexpr,
    DERIVED: tl.constexpr, COPIED: tl.constexpr,
):  # fmt: skip
    """Write returns and ends; return the ages and slots of last steps, and the rows of `frames` that follow them.

    What is loaded of one step does not wait for the step before.
    """
    last_age, last = age, slot_of(age, top, CAPACITY)
    flag = tl.load(flags + last, mask=inside, other=0).to(tl.int32)
    going = inside
    count = tl.full(row.shape, 1, tl.int32)
    total = tl.zeros(row.shape, tl.float64)
    for k in tl.static_range(STEPS):
        ahead = age - ENVS * k
        stored = inside & (ahead >= 0)
        slot = slot_of(ahead, top, CAPACITY)
        if k > 0:
            going = going & (flag == 0) & stored
            flag = tl.where(going, tl.load(flags + slot, mask=stored, other=0).to(tl.int32), flag)
            last_age, last = tl.where(going, ahead, last_age), tl.where(going, slot, last)
            count += going.to(tl.int32)
        if COLUMN >= 0:
            reward = tl.load(rest + slot.to(tl.int64) * WIDTH + COLUMN, mask=stored, other=0)
            reward = reward.to(tl.float32, bitcast=True).to(tl.float64)
            total += tl.where(going, tl.load(powers + k) * reward, 0.0)
    terminated = (flag & _TERMINATED) != 0
    if COLUMN >= 0:
        discount = tl.where(terminated, 0.0, tl.load(powers + count, mask=inside, other=0.0))
        floats = out.to(tl.pointer_type(tl.float32)) + rows * (7 + COPIED) + row
        tl.store(out.to(tl.pointer_type(tl.int64)) + 2 * rows + row, count.to(tl.int64), mask=once)
        tl.store(floats, total.to(tl.float32), mask=once)
        tl.store(floats + rows, discount.to(tl.float32), mask=once)
    ends = out + rows * (4 * (11 + COPIED)) + row
    tl.store(ends, terminated.to(tl.uint8), mask=once)
    tl.store(ends + rows, ((flag & _TRUNCATED) != 0).to(tl.uint8), mask=once)
    following = last
    if DERIVED:
        place = tl.load(side + last, mask=inside, other=-1)
        after = last_age - ENVS
        following = tl.where(after >= 0, slot_of(after, top, CAPACITY), CAPACITY + ENVS - 1 - last_age)
        following = tl.where(place >= 0, CAPACITY + ENVS + place, following)
        following = tl.where(terminated, last, following)
    return last_age, last, following


@triton.jit
def earlier_frames(
    flags, age, top, size, inside, CAPACITY: tl.constexpr, ENVS: tl.constexpr, STACK: tl.constexpr
):  # fmt: skip
    """Return the number of earlier steps of the episode that a stack of frames can show."""
    shown = age * 0
    going = inside
    for k in tl.static_range(1, STACK):
        earlier = age + ENVS * k
        flag = tl.load(flags + slot_of(earlier, top, CAPACITY), mask=inside & (earlier < size), other=1)
        going = going & (flag == 0)
        shown += going.to(tl.int32)
    return shown


@triton.jit
def copy_words(
    frames, rest, flags, plan, out, word, row, rows, inside, size, age, last_age, top, slot, last, following,
    CAPACITY: tl.constexpr, ENVS: tl.constexpr, WIDTH: tl.constexpr, FRAME_WIDTH: tl.constexpr, STEPS: tl.constexpr,
    STACK: tl.constexpr, ZERO: tl.constexpr, COPIED: tl.constexpr,
):  # fmt: skip
    """Copy words of some rows of a batch.

    Words are the first axis, along which neighboring threads read and write neighboring words.
    """
    known = word < COPIED
    mask = inside[None, :] & known
    start = rest + tl.load(plan + word, mask=known, other=0)
    first = tl.load(plan + COPIED + word, mask=known, other=0)
    nbytes = tl.load(plan + 2 * COPIED + word, mask=known, other=0).to(tl.int64)
    width, taken, shown = tl.full(word.shape, 4 * WIDTH, tl.int32), slot[None, :], mask  # in bytes
    if STEPS > 1 or FRAME_WIDTH > 0:
        source = tl.load(plan + 3 * COPIED + word, mask=known, other=0)
        of_last, from_rest = (source & 1) == 1, source < 2
        taken = tl.where(of_last, last[None, :], taken)
    if FRAME_WIDTH > 0:
        start = tl.where(from_rest, start, frames + tl.load(plan + word, mask=known, other=0))
        width = tl.where(from_rest, 4 * WIDTH, 4 * FRAME_WIDTH)
        taken = tl.where(of_last & (source >= 2), following[None, :], taken)
        if STACK > 1:  # of the drawn step (4), or of the last one (5)
            drawn_most = earlier_frames(flags, age, top, size, inside, CAPACITY, ENVS, STACK)
            last_most = earlier_frames(flags, last_age, top, size, inside, CAPACITY, ENVS, STACK)
            most = tl.where(of_last, last_most[None, :], drawn_most[None, :])
            behind = tl.load(plan + 4 * COPIED + word, mask=known, other=0)
            older = tl.where(of_last, last_age[None, :], age[None, :]) + ENVS * tl.minimum(behind, most)
            taken = tl.where(source >= 4, slot_of(older, top, CAPACITY), taken)
            if ZERO:
                shown = mask & ((source < 4) | (behind <= most))
    place = start.to(tl.pointer_type(tl.int8)) + taken.to(tl.int64) * width.to(tl.int64)
    value = tl.load(place.to(tl.pointer_type(tl.int32)), mask=shown, other=0)
    column = out + 4 * (rows * (6 + first) + (word - first))
    tl.store((column + row.to(tl.int64)[None, :] * nbytes).to(tl.pointer_type(tl.int32)), value, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def gather_kernel(
    draws, counts, call_at, scratch, keys, scheduled_at, head_at, tail_at, frames, rest, flags, side, powers, plan,
    out, rows,
    KIND: tl.constexpr, CAPACITY: tl.constexpr, ENVS: tl.constexpr, WIDTH: tl.constexpr, FRAME_WIDTH: tl.constexpr,
    COLUMN: tl.constexpr, STEPS: tl.constexpr, STACK: tl.constexpr, ZERO: tl.constexpr, DERIVED: tl.constexpr,
    COPIED: tl.constexpr, STRATIFIED: tl.constexpr, WEIGHTED: tl.constexpr, BY_BATCH: tl.constexpr,
    BURST: tl.constexpr, LEAST: tl.constexpr, LOG_KEPT: tl.constexpr, SIZE: tl.constexpr, WORDS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Draw steps, or take those that `draw_kernel` drew (`KIND` 1), and copy what a batch has of them.

    `KIND` is a `samplers.Kind`. `out` is laid out as `Block` says.
    """
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < rows
    once = inside & (row >= tl.program_id(1) * rows)
    head, tail, rows = tl.load(head_at), tl.load(tail_at), rows.to(tl.int64)
    age = drawn_ages(
        draws, counts, call_at, scratch, keys, scheduled_at, head, tail, out, row, rows, once,
        KIND, COPIED, STRATIFIED, WEIGHTED, BY_BATCH, BURST, LEAST, LOG_KEPT,
    )  # fmt: skip
    age = tl.where(inside, age, 0).to(tl.int32)
    top = ((head - 1) % CAPACITY).to(tl.int32)
    slot = slot_of(age, top, CAPACITY)
    last_age, last, following = followed_steps(
        rest, flags, side, powers, out, age, top, row, rows, inside, once,
        CAPACITY, ENVS, WIDTH, COLUMN, STEPS, DERIVED, COPIED,
    )  # fmt: skip
    # What was written is read again, or it would be computed again for each thread's rows.
    links = out.to(tl.pointer_type(tl.int32)) + rows * (9 + COPIED) + row
    if STEPS > 1 or DERIVED:
        tl.store(links, last_age, mask=inside)
        tl.store(links + rows, following, mask=inside)
    tl.debug_barrier()
    drawn = tl.load(out.to(tl.pointer_type(tl.int64)) + row, mask=inside, other=0)
    age = (head - 1 - tl.maximum(drawn, tail)).to(tl.int32)
    slot = slot_of(age, top, CAPACITY)
    last_age, last, following = age, slot, slot
    if STEPS > 1 or DERIVED:
        last_age = tl.load(links, mask=inside, other=0)
        last, following = slot_of(last_age, top, CAPACITY), tl.load(links + rows, mask=inside, other=0)
    for part in tl.static_range(PARTS):
        word = ((tl.program_id(1) * PARTS + part) * WORDS + tl.arange(0, WORDS))[:, None]
        copy_words(
            frames, rest, flags, plan, out, word, row, rows, inside, head - tail, age, last_age, top, slot, last,
            following, CAPACITY, ENVS, WIDTH, FRAME_WIDTH, STEPS, STACK, ZERO, COPIED,
        )  # fmt: skip
