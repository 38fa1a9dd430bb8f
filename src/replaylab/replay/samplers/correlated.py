"""Dials: samplers that change one property of uniform batches and leave the rest unchanged, to find causes."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab import _core
from replaylab.arguments import FRACTION, check
from replaylab.replay.samplers.sampler import COUNT, Sampler


@dataclass(frozen=True)
class Blocks(Sampler):
    """A dial for the dependence inside a batch: B/L uniform starts, L consecutive steps each.

    The ring is taken as a circle, so every step's chance stays exactly uniform and only the dependence
    between the rows changes. Law: P(i) = 1/N. Source: none, a dial of this library.

    Attributes:
        length: L, which must divide B; 1 is uniform sampling. Default: 8.
    """

    length: int = 8

    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, length=COUNT)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("blocks", {"length": self.length})


@dataclass(frozen=True)
class Sticky(Sampler):
    """A dial for the dependence between batches: a fraction of the last batch is drawn again.

    ⌊φB⌋ rows of the last batch, picked at random among those still stored, and uniform draws. Law of one
    row, with m repeated rows, of which a live last batch of M rows holds step i cᵢ times:
    ``P(i) = (m·cᵢ/M + (B − m)/N) / B``. Source: none, a dial of this library.

    Attributes:
        fraction: φ in [0, 1]; 0 is uniform sampling. Default: 0.5.
    """

    fraction: float = 0.5

    law_needs_batch_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, fraction=FRACTION)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("sticky", {"fraction": self.fraction})
