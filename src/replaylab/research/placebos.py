"""Placebos of prioritized replay, and a dial for the dependence inside a batch."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import option
from replaylab.replay import Prioritized, Sampler
from replaylab.replay.samplers.sampler import COUNT


@dataclass(frozen=True)
class AntiPrioritized(Prioritized):
    """A placebo: the smallest TD errors most often.

    Sampling probability: P(i) ∝ (|δ| + ε)^−α. With ``priority=`` given, P(i) ∝ p^−α, and 0 is never drawn. A new step
    is as likely as the stored step of the smallest error, so that it comes at all. Source: none, a placebo of this
    library; attributes and defaults: those of `Prioritized`. With ε = 0 an error of exactly 0 counts as the least
    positive one there is.
    """

    _sign: ClassVar[float] = -1.0


@dataclass(frozen=True)
class Permuted(Prioritized):
    """A placebo: prioritized replay's priorities, each given to another step.

    The same multiset of priorities, so the same entropy and as many repeated draws, but no information about
    a step's TD error. Sampling probability: P(i) = P_prioritized(π⁻¹(i)) with π a uniformly random permutation of the
    stored steps that changes a little with every added step. Source: none, a placebo of this library; attributes and
    defaults: those of `Prioritized`, and one more.

    Attributes:
        bins: 1: any step may get any priority. More: only steps of about the same age change places, so that
            what recency contributes is kept; the ring is cut into so many stretches. Default: 1.
    """

    bins: int = option(COUNT, 1)

    core_kind: ClassVar[str] = "permuted"
    allows_removal: ClassVar[bool] = False

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """With bins, which are stretches of the ring, or blocks."""
        return self.bins > 1 or super().needs_order

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return super().core_options() | {"bins": self.bins}


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
