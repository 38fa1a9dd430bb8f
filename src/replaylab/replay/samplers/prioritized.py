"""Samplers that learn from feedback: the larger a step's priority, the more often it is drawn.

N is the number of stored steps, B the batch size, δ a TD error. A new step gets the largest priority now in
the buffer, 1 if there is none; or, with ``new_steps="largest_ever"``, the largest that any step ever had, at least 1.
So it is as likely as the likeliest. Priorities, and p^α, are held as float32 inside its normal range.

Where sequences are drawn, a row is a block of steps, and so is everything its weight is made of: P is the block's, N
counts the stored blocks, and the largest weight is that of all blocks, or of those in the batch.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from replaylab.arguments import FRACTION, NOT_NEGATIVE, flag, one_of, option
from replaylab.errors import ConfigError
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.sampler import COUNT, FeedbackKind, Sampler

Normalize = Literal["buffer", "batch", "none"]

NORMALIZE: tuple[Normalize, ...] = ("buffer", "batch", "none")

NewSteps = Literal["largest_stored", "largest_ever"]

NEW_STEPS: tuple[NewSteps, ...] = ("largest_stored", "largest_ever")

ABSOLUTE, CLIPPED, POSITIVE = range(3)
"""Conversions of a TD error by the core: |δ| + ε, max(|δ|, 1), or max(δ, 0) + ε."""


@dataclass(frozen=True)
class Prioritized(Sampler):
    """Proportional prioritized replay.

    Sampling probability: P(i) = pᵢ^α / Σ p^α with p = |δ| + ε, with `stratified` or without. A step of priority 0 is
    never drawn, whatever α is; with ε = 0 that is one whose TD error is exactly 0. Source: Schaul et al. 2016.

    Importance weights: wᵢ = (N·P(i))^−β, divided by the largest weight of the buffer (default), of the
    batch, or by nothing.

    With blocks, L = `block_length`: a batch is B/L draws of that kind, and each gives L rows. The stored steps, in
    order of age, are cut into cells of L neighbours with one random offset a batch (at the two ends they may be
    shorter). A draw chooses the cell that holds its step; of that, L rows are taken at equal distances in the running
    sum of p^α, with one random offset a block. So P(i) stays the sampling probability of every row for any L, and only
    the dependence between the rows changes; L steps of equal priority are drawn once each.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the distribution uniform over the steps of positive priority. Default: 0.6.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress. With a
            schedule, pass ``progress`` to `sample`; without it β keeps its start value. Default: Linear(0.4, 1.0).
        epsilon: ε ≥ 0, added to every |δ|. Default: 1e-6.
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none". Default: "buffer".
        block_length: L, which must divide B; 1 draws every row by itself. Default: 1.
        new_steps: The priority of a step that had no feedback yet: the "largest_stored" now, or the "largest_ever" that
            any step had (1 to begin with), as most other libraries do it. Default: "largest_stored".
        stratified: Whether a batch (of blocks: B/L) is one draw from each of as many equal segments of the total; if
            not, the draws are independent of each other. Without `replace` it has no effect. Default: True.
        replace: Whether a step may come twice in a batch. If not, each row is drawn by the distribution of the steps
            that are left, so that a batch needs B steps of positive priority; `batch.probability` and the weights are
            those of a first row, and the probability of a row of many has no closed form. Not with blocks or
            `Sequence`.
            Default: True.
    """

    alpha: float = option(FRACTION, 0.6)
    beta: float | Schedule = option(scheduled(FRACTION), Linear(0.4, 1.0))
    epsilon: float = option(NOT_NEGATIVE, 1e-6)
    normalize: Normalize = option(one_of(*NORMALIZE), "buffer")
    block_length: int = option(COUNT, 1)
    new_steps: NewSteps = option(one_of(*NEW_STEPS), "largest_stored")
    stratified: bool = option(flag, True)
    replace: bool = option(flag, True)

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True
    core_kind: ClassVar[str] = "prioritized"
    _sign: ClassVar[float] = 1.0
    _feedback: ClassVar[int] = ABSOLUTE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.replace:
            reason = "each row depends on the rows before; batch.probability is a first row's"
            object.__setattr__(self, "no_closed_form", reason)
        if not self.replace and self.block_length > 1:
            raise ConfigError(
                f"`replace` of {type(self).__name__} must be True with blocks, but got replace=False, "
                f"block_length={self.block_length}; leave one of them out"
            )

    @property
    def draws_sequences(self) -> bool:  # type: ignore[override]
        """Unless no step comes twice."""
        return self.replace

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """With blocks: their steps are neighbours in age."""
        return self.block_length > 1

    @property
    def scheduled(self) -> float | Schedule:
        """Exponent β of the importance weights."""
        return self.beta

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {
            "exponent": self._sign * self.alpha,
            "epsilon": self.epsilon,
            "feedback": self._feedback,
            "normalize": NORMALIZE.index(self.normalize),
            "block_length": self.block_length,
            "ever": NEW_STEPS.index(self.new_steps),
            "stratified": self.stratified,
            "replace": self.replace,
        }


@dataclass(frozen=True)
class ReLo(Prioritized):
    """Prioritizing by reducible loss: the loss of the online network minus that of the target network.

    Sampling probability: P(i) = pᵢ^α / Σ p^α with p = max(0, L_online − L_target) + ε, both losses to the same target;
    give the difference to `update_priorities` as ``td_error``. Source: Sujit et al. 2023; attributes and defaults:
    those of `Prioritized`.
    """

    feedback_kind: ClassVar[FeedbackKind] = "reducible_loss"
    _feedback: ClassVar[int] = POSITIVE


@dataclass(frozen=True)
class LAP(Sampler):
    """Loss-adjusted prioritized replay: for the Huber loss, without weights.

    Sampling probability: P(i) ∝ max(|δ|, 1)^α. Source: Fujimoto, Meger & Precup 2020.

    Attributes:
        alpha: Exponent α in [0, 1]. Default: 0.4.
        new_steps: As for `Prioritized`. Default: "largest_stored".
    """

    alpha: float = option(FRACTION, 0.4)
    new_steps: NewSteps = option(one_of(*NEW_STEPS), "largest_stored")

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True
    core_kind: ClassVar[str] = "prioritized"

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        fixed = {"epsilon": 0.0, "feedback": CLIPPED, "normalize": 0, "block_length": 1, "stratified": 1, "replace": 1}
        return fixed | {"exponent": self.alpha, "ever": NEW_STEPS.index(self.new_steps)}


@dataclass(frozen=True)
class RankBased(Sampler):
    """Rank-based prioritized replay, with exact ranks.

    Sampling probability: P(i) = rank(i)^−α / Σ k^−α, rank 1 the largest |δ|, and for equal ones the lower slot first. A
    batch is one draw from each of B equal segments of the total. A step of priority 0 has no rank and is never drawn;
    one of δ = 0 comes last. Draws and updates take O(log N); with `Sequence`, weights take O(N) a batch. Source: Schaul
    et al. 2016.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the sampling distribution uniform. Default: 0.7.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress.
            Default: Linear(0.5, 1.0).
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none". Default: "buffer".
        new_steps: As for `Prioritized`. Default: "largest_stored".
    """

    alpha: float = option(FRACTION, 0.7)
    beta: float | Schedule = option(scheduled(FRACTION), Linear(0.5, 1.0))
    normalize: Normalize = option(one_of(*NORMALIZE), "buffer")
    new_steps: NewSteps = option(one_of(*NEW_STEPS), "largest_stored")

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True
    core_kind: ClassVar[str] = "rank"

    @property
    def scheduled(self) -> float | Schedule:
        """Exponent β of the importance weights."""
        return self.beta

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {
            "alpha": self.alpha,
            "normalize": NORMALIZE.index(self.normalize),
            "ever": NEW_STEPS.index(self.new_steps),
        }


@dataclass(frozen=True)
class Greedy(Sampler):
    """The B largest |δ| that are stored: for studies, where its failures show.

    Sampling probability: P(i) = 1/B for those B (of equal ones the lower slots), else 0. A step of priority 0 is never
    drawn; a batch needs B others. With `Sequence`: the B blocks that hold the largest. Source: the "greedy TD-error
    prioritization" of Schaul et al. 2016.
    """

    wants_feedback: ClassVar[bool] = True
    keeps_priorities: ClassVar[bool] = True
    distribution_needs_batch_size: ClassVar[bool] = True
    core_kind: ClassVar[str] = "greedy"

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"ever": 0}
