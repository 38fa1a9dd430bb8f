"""Shuffled epochs: every step once before any comes again."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.replay.samplers.sampler import Sampler


@dataclass(frozen=True)
class ShuffledEpochs(Sampler):
    """Every step once an epoch, in random order: no repetition until all have come.

    An epoch is made of the steps stored when it begins; those overwritten meanwhile are passed over, those
    stored meanwhile wait for the next. With `Sequence` it is made of sequences, each passed over once the step that was
    its newest is overwritten. Sampling probability of one row, with M steps of the epoch still due:
    ``P(i) = (min(B, M)·[i is due]/M + max(B − M, 0)/N) / B``. Source: Fujita 2025.
    """

    distribution_needs_batch_size: ClassVar[bool] = True
    core_kind: ClassVar[str] = "epochs"
