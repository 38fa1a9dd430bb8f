"""Placebos: prioritized replay with one of its properties taken away or reversed, to find causes."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import check, number, option
from replaylab.errors import ConfigError
from replaylab.replay.samplers.prioritized import Prioritized
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

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """With bins, which are stretches of the ring, or blocks."""
        return self.bins > 1 or super().needs_order

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return super().core_options() | {"bins": self.bins}


@dataclass(frozen=True)
class Dispersed(Prioritized):
    """A placebo: prioritized replay with at most one step of each episode in a batch.

    The information of the priorities without the dependence inside an episode. Rows are drawn one by one by the
    distribution of `Prioritized`, a step whose episode has given one again; when every episode that has a positive
    priority has given one, a new round begins. Without fields ``terminated`` and ``truncated`` an environment's steps
    are one episode. Sampling probability of the first row: P(i) = pᵢ^α / Σ p^α, which is also every row's
    ``probability`` and what its weight is made of.

    Later rows depend on the rows before. Source: none, a placebo of this library; attributes and defaults: those of
    `Prioritized`, but `block_length` is 1, and `stratified` says nothing.
    """

    no_closed_form: ClassVar[str] = (
        "a row depends on the episodes of the rows before; batch.probability is a first row's"
    )
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    core_kind: ClassVar[str] = "dispersed"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "1, for a batch takes one step of an episode and a block takes neighbours"
        check(self, block_length=number(rule, lambda length: length == 1))
        if not self.stratified:
            raise ConfigError("`stratified` of Dispersed must be left out, since its rows are drawn one by one")
        if not self.replace:
            raise ConfigError("`replace` of Dispersed must be left out, since no episode comes twice in a round anyway")
