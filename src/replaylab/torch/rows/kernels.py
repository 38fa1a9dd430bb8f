"""Triton's kernels of `following` and `gathering`: bit for bit the same, in one launch each."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from replaylab.torch.rows.step_ring import TERMINATED

_TERMINATED = tl.constexpr(TERMINATED)

OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
BLOCK = 128
"""Rows of a program."""

GATHERED_ROWS, GATHERED_WORDS = 32, 64
"""Rows and words of a program that copies."""


@triton.jit
def follow_kernel(
    flags, side, rest, head_at, ids, powers, lasts, counts, rewards, discounts, last_flags, next_rows,
    rows, capacity, width, column, envs,
    STEPS: tl.constexpr, REWARDS: tl.constexpr, DERIVED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """See `replaylab.torch.rows.following.follow_steps`."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < rows
    head = tl.load(head_at)
    step = tl.load(ids + row, mask=inside, other=0)
    last = step
    count = step * 0
    flag = count
    total = tl.zeros((SIZE,), tl.float64)
    taken = inside
    for k in tl.static_range(STEPS):
        if k > 0:
            step += envs
            taken = taken & (flag == 0) & (step < head)
        slot = step % capacity
        if REWARDS:
            reward = tl.load(rest + slot * width + column, mask=taken, other=0).to(tl.float32, bitcast=True)
            total += tl.where(taken, tl.load(powers + k) * reward.to(tl.float64), 0.0)
        flag = tl.where(taken, tl.load(flags + slot, mask=taken, other=0).to(tl.int64), flag)
        last = tl.where(taken, step, last)
        count += taken.to(tl.int64)
    slot = last % capacity
    terminated = (flag & _TERMINATED) != 0
    discount = tl.where(terminated, 0.0, tl.load(powers + count, mask=inside, other=0.0))
    following = slot
    if DERIVED:
        place = tl.load(side + slot, mask=inside, other=-1).to(tl.int64)
        after = last + envs
        following = tl.where(after < head, after % capacity, capacity + last % envs)
        following = tl.where(place >= 0, capacity + envs + place, following)
        following = tl.where(terminated, slot, following)
    tl.store(lasts + row, last, mask=inside)
    tl.store(counts + row, count, mask=inside)
    tl.store(rewards + row, total.to(tl.float32), mask=inside)
    tl.store(discounts + row, discount.to(tl.float32), mask=inside)
    tl.store(last_flags + row, flag.to(tl.uint8), mask=inside)
    tl.store(next_rows + row, following, mask=inside)


@triton.jit
def gather_kernel(
    table, at, plan, out, rows, modulus, width, words,
    SIZE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """See `replaylab.torch.rows.gathering.gather_fields`."""
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    inside = row < rows
    source = tl.load(at + row, mask=inside, other=0) % modulus
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    known = word < words
    place = tl.load(plan + word, mask=known, other=0)
    before = tl.load(plan + words + word, mask=known, other=0)
    count = tl.load(plan + 2 * words + word, mask=known, other=0)
    offset = tl.load(plan + 3 * words + word, mask=known, other=0)
    mask = inside[:, None] & known[None, :]
    value = tl.load(table + source[:, None] * width + place[None, :], mask=mask, other=0)
    tl.store(out + before[None, :] * rows + row[:, None] * count[None, :] + offset[None, :], value, mask=mask)


def gather(table: Tensor, at: Tensor, modulus: int, plan: Tensor) -> Tensor:
    """See `gathering.gather_fields`."""
    rows, words = len(at), plan.shape[1]
    out = torch.empty(rows * words, dtype=torch.int32, device=table.device)
    grid = (triton.cdiv(rows, GATHERED_ROWS), triton.cdiv(words, GATHERED_WORDS))
    gather_kernel[grid](
        *(table, at.contiguous(), plan, out, rows, modulus, table.shape[1], words),
        **{"SIZE": GATHERED_ROWS, "WORDS": GATHERED_WORDS, **OPTIONS},
    )
    return out


def follow(
    flags: Tensor, side: Tensor, rest: Tensor, head: Tensor, ids: Tensor, powers: Tensor, column: int, envs: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `following.follow_steps`."""
    rows = len(ids)
    last, count, next_rows = (torch.empty(rows, dtype=torch.int64, device=ids.device) for _ in range(3))
    reward, discount = (torch.empty(rows, dtype=torch.float32, device=ids.device) for _ in range(2))
    last_flags = torch.empty(rows, dtype=torch.uint8, device=ids.device)
    made = (last, count, reward, discount, last_flags, next_rows)
    follow_kernel[(triton.cdiv(rows, BLOCK),)](
        *(flags, side, rest, head, ids.contiguous(), powers, *made, rows, len(flags), rest.shape[1], column, envs),
        **{"STEPS": len(powers) - 1, "REWARDS": column >= 0, "DERIVED": len(side) > 0, "SIZE": BLOCK, **OPTIONS},
    )
    return made
