"""Priorities as integers: p^α in multiples of 2^−20, so that sums are exact on every device."""

import torch
from torch import Tensor

from replaylab.replay import LAP, ReLo, Sampler
from replaylab.torch.drawing.power import power

ONE = 2**20
"""The leaf of p^α = 1."""

MOST_TOTAL = 2**62
"""Exclusive upper limit of totals."""

ABSOLUTE, CLIPPED, POSITIVE, GIVEN = range(4)
"""Kinds of feedback: TD errors with p = |δ| + ε, max(|δ|, 1) or max(δ, 0) + ε; or p itself."""


def largest_leaf(capacity: int) -> int:
    """Return the largest leaf that a tree of C leaves can hold; larger priorities become this one."""
    return min(MOST_TOTAL // capacity - 1, 2**50)


def feedback_kind(sampler: Sampler, priorities: bool) -> int:
    """Return what a sampler's feedback means: `priorities`, or TD errors."""
    if priorities:
        return GIVEN
    return CLIPPED if isinstance(sampler, LAP) else POSITIVE if isinstance(sampler, ReLo) else ABSOLUTE


def fixed_point(powered: Tensor, most: int) -> Tensor:
    """Return p^α as leaves, int64: 0 only where it is 0, so that every positive priority can be drawn."""
    leaves = (powered * ONE).round().clamp(1, most).to(torch.int64)
    return torch.where(powered > 0, leaves, 0)


def leaves_of(values: Tensor, kind: int, numbers: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the leaves of feedback, and whether each value is valid.

    Args:
        values: TD errors or priorities.
        kind: Kind of the values, as `feedback_kind` returns it.
        numbers: α and ε.
        most: The largest leaf.
    """
    values = values.to(numbers.dtype)
    valid = torch.isfinite(values)
    if kind == GIVEN:
        valid = valid & (values >= 0)
        priority = values
    elif kind == CLIPPED:
        priority = values.abs().clamp(min=1.0)
    else:
        priority = (values.abs() if kind == ABSOLUTE else values.clamp(min=0.0)) + numbers[1]
    sound = torch.where(valid, priority, 0.0)
    tiny = torch.finfo(numbers.dtype).tiny
    raised = power(sound.clamp(min=tiny), numbers[0])
    return fixed_point(torch.where(sound > 0, raised, 0.0), most), valid
