"""Samplers of the stream as it comes: the newest step, the newest B, the oldest that was not drawn yet."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.replay.samplers.sampler import Sampler


@dataclass(frozen=True)
class Online(Sampler):
    """Only the newest step: learning without replay. A batch has one row, whatever B is.

    Sampling probability: P(newest) = 1. Source: none, it is learning without replay.
    """

    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "newest"

    def rows(self, batch_size: int) -> int:  # noqa: ARG002
        """Return 1."""
        return 1


@dataclass(frozen=True)
class SlidingWindow(Sampler):
    """The newest B steps, newest first; sampling while fewer are stored is an error.

    With `Sequence`: the newest B sequences. Sampling probability: P(i) = 1/B for the newest B, else 0. Source: none,
    the usual window of a stream.
    """

    distribution_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "window"


@dataclass(frozen=True)
class Queue(Sampler):
    """The oldest step that was not drawn yet, so that each step is drawn once, in the order of storage.

    Sampling probability: P(i) = 1/B for the oldest B that were not drawn, else 0. A batch needs that many: with fewer,
    `sample` raises `EmptyBufferError` until more are added. A step that is overwritten before it was drawn is lost.
    `Sequence` is refused: a sequence may still grow after it was drawn. Source: none, the usual queue of a stream.
    """

    distribution_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = False
    core_kind: ClassVar[str] = "queue"
