"""Samplers that learn from feedback: the larger a step's priority, the more often it is drawn.

N is the number of stored steps, B the batch size, δ a TD error. A new step gets the largest priority now in
the buffer, 1 if there is none; or, with ``new_steps="largest_ever"``, the largest that any step ever had, at least 1.
It is as likely as the likeliest: with `AntiPrioritized`, whose priority is (|δ| + ε)^−α, as the one of the smallest
error. Priorities, and p^α, are held as float32 inside its normal range.

Where sequences are drawn, a row is a block of steps, and so is everything its weight is made of: P is the block's, N
counts the stored blocks, and the largest weight is that of all blocks, or of those in the batch.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from replaylab import _core
from replaylab.arguments import FRACTION, NOT_NEGATIVE, check, flag, one_of
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.sampler import ADDED, COUNT, FeedbackKind, Sampler

Normalize = Literal["buffer", "batch", "none"]

NORMALIZE: tuple[Normalize, ...] = ("buffer", "batch", "none")

NewSteps = Literal["largest_stored", "largest_ever"]

NEW_STEPS: tuple[NewSteps, ...] = ("largest_stored", "largest_ever")

WEIGHTING = {"alpha": FRACTION, "beta": scheduled(FRACTION), "normalize": one_of(*NORMALIZE)}
"""What α, β and the normalisation must be."""

ABSOLUTE, CLIPPED, POSITIVE = range(3)
"""What the core makes of a TD error: |δ| + ε, max(|δ|, 1), or max(δ, 0) + ε."""


@dataclass(frozen=True)
class Prioritized(Sampler):
    """Proportional prioritized replay.

    Law: P(i) = pᵢ^α / Σ p^α with p = |δ| + ε, with `stratified` or without. A step of priority 0 is never drawn,
    whatever α is; with ε = 0 that is one whose TD error is exactly 0. Source: Schaul et al. 2016.

    Importance weights: wᵢ = (N·P(i))^−β, divided by the largest weight of the buffer (default), of the
    batch, or by nothing.

    With blocks, L = `block_length`: a batch is B/L draws of that kind, and each stands for L rows. The stored steps, in
    order of age, are cut into cells of L neighbours with one random offset a batch (at the two ends they may be
    shorter). A draw chooses the cell its step lies in; of that, L rows are taken at equal distances in the running sum
    of p^α, with one random offset a block. So P(i) stays the law of every row, whatever L is, and only the dependence
    between the rows changes; L steps of equal priority come once each, as with `Blocks`.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the law uniform over the steps of positive priority. Default: 0.6.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress. With a
            schedule that is not constant, `sample` needs ``progress``. Default: Linear(0.4, 1.0).
        epsilon: ε ≥ 0, added to every |δ|. Default: 1e-6.
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none". Default: "buffer".
        block_length: L, which must divide B; 1 draws every row by itself. Default: 1.
        new_steps: The priority of a step that had no feedback yet: the "largest_stored" now, or the "largest_ever" that
            any step had (1 to begin with), as most other libraries do it. Default: "largest_stored".
        stratified: Whether a batch (of blocks: B/L) is one draw from each of as many equal segments of the total; if
            not, the draws are independent of each other. Default: True.
    """

    alpha: float = 0.6
    beta: float | Schedule = field(default=Linear(0.4, 1.0))
    epsilon: float = 1e-6
    normalize: Normalize = "buffer"
    block_length: int = 1
    new_steps: NewSteps = field(default="largest_stored", metadata=ADDED)
    stratified: bool = field(default=True, metadata=ADDED)

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True
    _kind: ClassVar[str] = "prioritized"
    _sign: ClassVar[float] = 1.0
    _feedback: ClassVar[int] = ABSOLUTE

    def __post_init__(self) -> None:
        check(self, **WEIGHTING, epsilon=NOT_NEGATIVE, block_length=COUNT, new_steps=one_of(*NEW_STEPS))
        check(self, stratified=flag)

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """With blocks: their steps are neighbours in age."""
        return self.block_length > 1

    @property
    def scheduled(self) -> float | Schedule:
        """β."""
        return self.beta

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig(self._kind, self._options())

    def _options(self) -> dict[str, float]:
        return {
            "exponent": self._sign * self.alpha,
            "epsilon": self.epsilon,
            "feedback": self._feedback,
            "normalize": NORMALIZE.index(self.normalize),
            "block_length": self.block_length,
            "ever": NEW_STEPS.index(self.new_steps),
            "stratified": int(self.stratified),
        }


@dataclass(frozen=True)
class ReLo(Prioritized):
    """Prioritizing by reducible loss: what the online network still loses against the target network.

    Law: P(i) = pᵢ^α / Σ p^α with p = max(0, L_online − L_target) + ε, both losses to the same target; give
    the difference to `update_priorities` as ``td_error``. Source: Sujit et al. 2023; attributes and defaults: those
    of `Prioritized`.
    """

    feedback_kind: ClassVar[FeedbackKind] = "reducible_loss"
    _feedback: ClassVar[int] = POSITIVE


@dataclass(frozen=True)
class LAP(Sampler):
    """Loss-adjusted prioritized replay: for the Huber loss, without weights.

    Law: P(i) ∝ max(|δ|, 1)^α. Source: Fujimoto, Meger & Precup 2020.

    Attributes:
        alpha: Exponent α in [0, 1]. Default: 0.4.
        new_steps: As for `Prioritized`. Default: "largest_stored".
    """

    alpha: float = 0.4
    new_steps: NewSteps = field(default="largest_stored", metadata=ADDED)

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, alpha=FRACTION, new_steps=one_of(*NEW_STEPS))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        options = {"exponent": self.alpha, "epsilon": 0.0, "feedback": CLIPPED, "normalize": 0, "block_length": 1}
        return _core.SamplerConfig("prioritized", options | {"ever": NEW_STEPS.index(self.new_steps), "stratified": 1})
