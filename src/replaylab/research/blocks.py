"""A dial: uniform batches whose rows depend on each other."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import option
from replaylab.replay import Sampler
from replaylab.replay.samplers.sampler import COUNT


@dataclass(frozen=True)
class Blocks(Sampler):
    """A dial for the dependence inside a batch: B/L uniform starts, L consecutive steps each.

    The ring is taken as a circle, so every step's chance stays exactly uniform and only the dependence
    between the rows changes. Sampling probability: P(i) = 1/N. Source: none, a dial of this library.

    Attributes:
        length: L, which must divide B; 1 is uniform sampling. Default: 8.
    """

    length: int = option(COUNT, 8)

    needs_order: ClassVar[bool] = True
    core_kind: ClassVar[str] = "blocks"

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"length": self.length}
