"""Triton's kernels of `step_ring`: bit for bit the same, in few launches."""

import triton
import triton.language as tl

from replaylab.torch.rows.packing import TERMINATED

_TERMINATED = tl.constexpr(TERMINATED)


@triton.jit(do_not_specialize=["n"])
def apart_kernel(
    flags, head_at, tail_at, led_to, new_frames, new_flags, following, apart, counted, n,
    CAPACITY: tl.constexpr, ENVS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Find the steps before new ones whose next observation is not the new one, and count them by program.

    `led_to` holds the observations that the newest stored steps led_to to. See `step_ring.store_steps`.
    """
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    inside = row < n
    early = row < ENVS
    before = tl.load(head_at) + row - ENVS
    stored = inside & (before >= tl.load(tail_at))
    differ = tl.zeros((SIZE,), tl.int32)
    for start in range(0, WIDTH, WORDS):
        word = start + tl.arange(0, WORDS)[None, :]
        mask = stored[:, None] & (word < WIDTH)
        new = tl.load(new_frames + row[:, None] * WIDTH + word, mask=mask, other=0)
        first = tl.load(led_to + row[:, None] * WIDTH + word, mask=mask & early[:, None], other=0)
        later = tl.load(following + (row[:, None] - ENVS) * WIDTH + word, mask=mask & (row >= ENVS)[:, None], other=0)
        differ += tl.sum((tl.where(early[:, None], first, later) != new).to(tl.int32), 1)
    end = tl.load(flags + before % CAPACITY, mask=stored & early, other=0)
    end = tl.where(early, end, tl.load(new_flags + row - ENVS, mask=stored & (row >= ENVS), other=0))
    lie_apart = stored & (differ > 0) & ((end & _TERMINATED) == 0)
    tl.store(apart + row, lie_apart.to(tl.int32), mask=inside)
    tl.store(counted + tl.program_id(0), tl.sum(lie_apart.to(tl.int64), 0))


@triton.jit(do_not_specialize=["n"])
def store_kernel(
    frames, rest, flags, side, owners, head_at, closings_at, led_to, new_frames, new_rest, new_flags, following,
    apart, counted, lost, ids, n,
    CAPACITY: tl.constexpr, ENVS: tl.constexpr, SIDES: tl.constexpr, FRAME_WIDTH: tl.constexpr, WIDTH: tl.constexpr,
    DERIVED: tl.constexpr, SIZE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Write steps; see `step_ring.store_steps`."""
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    inside = row < n
    step = tl.load(head_at) + row
    slot = step % CAPACITY
    tl.store(ids + row, step, mask=inside)
    tl.store(flags + slot, tl.load(new_flags + row, mask=inside, other=0), mask=inside)
    newest = inside & (row >= n - ENVS)
    moved = inside & (row < 0)
    aside = slot
    if DERIVED:
        moved = tl.load(apart + row, mask=inside, other=0) != 0
        earlier = tl.zeros((WORDS,), tl.int64)
        start = 0
        while start < tl.program_id(0):
            part = start + tl.arange(0, WORDS)
            earlier += tl.load(counted + part, mask=part < tl.program_id(0), other=0)
            start += WORDS
        place = tl.load(closings_at) + tl.sum(earlier, 0) + tl.cumsum(moved.to(tl.int64), 0) - 1
        place = (place + SIDES) % SIDES
        owner = tl.load(owners + place, mask=moved, other=-1)
        tl.store(lost + tl.program_id(0), tl.max(tl.where(moved, owner, -1), 0))
        tl.store(owners + place, step - ENVS, mask=moved)
        # Where the ring is filled at once, the slots of the steps before are those of the newest ones.
        index = tl.where(moved, place, -1).to(tl.int32)
        tl.store(
            side + (step - ENVS + CAPACITY) % CAPACITY, index, mask=inside & ((row >= ENVS) | (n + ENVS <= CAPACITY))
        )
        tl.store(side + slot, row.to(tl.int32) * 0 - 1, mask=newest)
        aside = CAPACITY + ENVS + place
    for start in range(0, WIDTH, WORDS):
        word = start + tl.arange(0, WORDS)[None, :]
        mask = inside[:, None] & (word < WIDTH)
        value = tl.load(new_rest + row[:, None] * WIDTH + word, mask=mask, other=0)
        tl.store(rest + slot[:, None] * WIDTH + word, value, mask=mask)
    for start in range(0, FRAME_WIDTH, WORDS):
        word = start + tl.arange(0, WORDS)[None, :]
        source = row[:, None] * FRAME_WIDTH + word
        mask = inside[:, None] & (word < FRAME_WIDTH)
        value = tl.load(new_frames + source, mask=mask, other=0)
        tl.store(frames + slot[:, None] * FRAME_WIDTH + word, value, mask=mask)
        if DERIVED:
            early = (row < ENVS)[:, None]
            first = tl.load(led_to + source, mask=mask & moved[:, None] & early, other=0)
            before = source - ENVS * FRAME_WIDTH
            later = tl.load(following + before, mask=mask & moved[:, None] & (row >= ENVS)[:, None], other=0)
            first = tl.where(early, first, later)
            tl.store(frames + aside[:, None] * FRAME_WIDTH + word, first, mask=mask & moved[:, None])
            tail = (CAPACITY + row - (n - ENVS))[:, None]
            value = tl.load(following + source, mask=mask & newest[:, None], other=0)
            tl.store(frames + tail * FRAME_WIDTH + word, value, mask=mask & newest[:, None])


@triton.jit(do_not_specialize=["parts", "n"])
def close_kernel(
    head_at, tail_at, closings_at, counted, lost, parts, n,
    CAPACITY: tl.constexpr, ENVS: tl.constexpr, DERIVED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Move head and tail when all steps are written; one program."""
    head = tl.load(head_at) + n
    first = tl.maximum(tl.load(tail_at), head - CAPACITY)
    if DERIVED:
        total = tl.zeros((SIZE,), tl.int64)
        latest = tl.full((SIZE,), -1, tl.int64)
        start = 0
        while start < parts:
            part = start + tl.arange(0, SIZE)
            total += tl.load(counted + part, mask=part < parts, other=0)
            latest = tl.maximum(latest, tl.load(lost + part, mask=part < parts, other=-1))
            start += SIZE
        first = tl.maximum(first, (tl.max(latest, 0) + ENVS) // ENVS * ENVS)
        tl.store(closings_at, tl.load(closings_at) + tl.sum(total, 0))
    tl.store(tail_at, first)
    tl.store(head_at, head)
