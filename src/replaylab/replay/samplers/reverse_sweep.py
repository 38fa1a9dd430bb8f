"""Reverse sweeps: the stored order backwards."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import option
from replaylab.replay.samplers.sampler import COUNT, Sampler


@dataclass(frozen=True)
class ReverseSweep(Sampler):
    """Stored order backwards, from the newest step to the oldest, then from the newest again.

    With a stride s every s-th step is taken, and each sweep begins one step further back than the last, so that s
    sweeps take every step. With `Sequence`, the same of its blocks. Sampling probability: the next B steps of the
    sweep are certain; P(i) is their share of the batch. Source: Lin 1992.

    Attributes:
        stride: Every how many steps one is taken. Default: 1.
    """

    stride: int = option(COUNT, 1)

    distribution_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "reverse"

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"stride": self.stride}
