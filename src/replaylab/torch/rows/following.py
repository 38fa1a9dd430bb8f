"""The steps that follow drawn ones: what n-step returns and derived next observations are made of."""

from typing import NamedTuple

import torch
from torch import Tensor

from replaylab.torch.operators import operator
from replaylab.torch.rows.step_ring import TERMINATED, StepRing

MOST_UNROLLED = 16
"""Longer returns are computed without a kernel."""


class Followed(NamedTuple):
    """What follows each drawn step (B,).

    Attributes:
        last: The id of the last step that is taken together with it, int64.
        steps: How many are taken together, int64.
        reward: Σ γ^k·r, float32; 0 if no rewards were asked for.
        discount: γ^steps, 0 if the last one terminated, float32.
        flags: Of the last one, uint8.
        next_rows: The row of `StepRing.frames` that holds the next observation of the last one, int64.
    """

    last: Tensor
    steps: Tensor
    reward: Tensor
    discount: Tensor
    flags: Tensor
    next_rows: Tensor


def follow(ring: StepRing, ids: Tensor, powers: Tensor, column: int, triton: bool) -> Followed:
    """Return what follows stored steps.

    Args:
        ring: The steps.
        ids: int64 (B,).
        powers: γ^k for k = 0 .. K, (K + 1,).
        column: The column of rewards in the rows, −1: none.
        triton: Whether kernels of Triton run.
    """
    triton = triton and len(powers) - 1 <= MOST_UNROLLED
    return Followed(*follow_steps(ring.flags, ring.side, ring.rest, ring.head, ids, powers, column, ring.envs, triton))


@operator(
    "follow_steps(Tensor flags, Tensor side, Tensor rest, Tensor head, Tensor ids, Tensor powers, int column, "
    "int envs, bool triton) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def follow_steps(
    flags: Tensor,
    side: Tensor,
    rest: Tensor,
    head: Tensor,
    ids: Tensor,
    powers: Tensor,
    column: int,
    envs: int,
    triton: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the members of `Followed`; see `follow`."""
    if triton:
        from replaylab.torch.rows import kernels

        followed: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
        followed = kernels.follow(flags, side, rest, head, ids, powers, column, envs)
        return followed
    capacity, steps_taken = len(flags), len(powers) - 1
    steps = ids[:, None] + envs * torch.arange(steps_taken, device=ids.device)
    ended = flags[steps % capacity] != 0
    taken = leading((steps[:, 1:] < head) & ~ended[:, :-1])
    count = taken.sum(1)
    last = ids + (count - 1) * envs
    total = torch.zeros_like(ids, dtype=powers.dtype)
    if column >= 0:
        rewards = rest[steps % capacity, column].view(torch.float32).to(powers.dtype)
        for k in range(steps_taken):
            total = total + torch.where(taken[:, k], powers[k] * rewards[:, k], 0.0)
    slots = last % capacity
    last_flags = flags[slots]
    terminated = last_flags & TERMINATED != 0
    discount = torch.where(terminated, 0.0, powers[count]).to(torch.float32)
    rows = slots.clone()
    if len(side):
        place, after = side[slots], last + envs
        rows = torch.where(after < head, after % capacity, capacity + last % envs)
        rows = torch.where(place >= 0, capacity + envs + place, rows)
        rows = torch.where(terminated, slots, rows)
    return last, count, total.to(torch.float32), discount, last_flags, rows


def leading(follows: Tensor) -> Tensor:
    """Return bool (B, K): True, and then whether all of `follows` (B, K − 1) up to there are."""
    first = follows.new_ones((len(follows), 1))
    return torch.cat((first, follows), 1).to(torch.int64).cumprod(1) != 0
