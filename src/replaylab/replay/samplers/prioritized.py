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
from replaylab.arguments import FRACTION, NOT_NEGATIVE, check, number, one_of
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.basic import COUNT, FeedbackKind, Sampler

Normalize = Literal["buffer", "batch", "none"]
NORMALIZE: tuple[Normalize, ...] = ("buffer", "batch", "none")
NewSteps = Literal["largest_stored", "largest_ever"]
NEW_STEPS: tuple[NewSteps, ...] = ("largest_stored", "largest_ever")
ADDED = {"said_if_changed": True}
"""Of an option that came later: settings written down before are those with its default."""

WEIGHTING = {"alpha": FRACTION, "beta": scheduled(FRACTION), "normalize": one_of(*NORMALIZE)}
"""What α, β and the normalisation must be."""
ABSOLUTE, CLIPPED, POSITIVE = range(3)
"""What the core makes of a TD error: |δ| + ε, max(|δ|, 1), or max(δ, 0) + ε."""


@dataclass(frozen=True)
class Prioritized(Sampler):
    """Proportional prioritized replay.

    Law: P(i) = pᵢ^α / Σ p^α with p = |δ| + ε. A batch is one draw from each of B equal segments of the
    total. A step of priority 0 is never drawn. Source: Schaul et al. 2016.

    Importance weights: wᵢ = (N·P(i))^−β, divided by the largest weight of the buffer (default), of the
    batch, or by nothing.

    With blocks, L = `block_length`: a batch is B/L draws of that kind, and each stands for L rows. The stored steps, in
    order of age, are cut into cells of L neighbours with one random offset a batch (at the two ends they may be
    shorter). A draw chooses the cell its step lies in; of that, L rows are taken at equal distances in the running sum
    of p^α, with one random offset a block. So P(i) stays the law of every row, whatever L is, and only the dependence
    between the rows changes; L steps of equal priority come once each, as with `Blocks`.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the law uniform. Default: 0.6.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress. With a
            schedule that is not constant, `sample` needs ``progress``. Default: Linear(0.4, 1.0).
        epsilon: ε ≥ 0, added to every |δ|. Default: 1e-6.
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none". Default: "buffer".
        block_length: L, which must divide B; 1 draws every row by itself. Default: 1.
        new_steps: The priority of a step that had no feedback yet: the "largest_stored" now, or the "largest_ever" that
            any step had (1 to begin with), as most other libraries do it. Default: "largest_stored".
    """

    alpha: float = 0.6
    beta: float | Schedule = field(default=Linear(0.4, 1.0))
    epsilon: float = 1e-6
    normalize: Normalize = "buffer"
    block_length: int = 1
    new_steps: NewSteps = field(default="largest_stored", metadata=ADDED)

    wants_feedback: ClassVar[bool] = True
    _kind: ClassVar[str] = "prioritized"
    _sign: ClassVar[float] = 1.0
    _feedback: ClassVar[int] = ABSOLUTE

    def __post_init__(self) -> None:
        check(self, **WEIGHTING, epsilon=NOT_NEGATIVE, block_length=COUNT, new_steps=one_of(*NEW_STEPS))

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
class AntiPrioritized(Prioritized):
    """A placebo: the smallest TD errors most often.

    Law: P(i) ∝ (|δ| + ε)^−α. With ``priority=`` given, P(i) ∝ p^−α, and 0 is never drawn. A new step is as likely as
    the stored step of the smallest error, so that it comes at all. Source: none, a placebo of this library; attributes
    and defaults: those of `Prioritized`.
    """

    _sign: ClassVar[float] = -1.0


@dataclass(frozen=True)
class Permuted(Prioritized):
    """A placebo: prioritized replay's priorities, each given to another step.

    The same multiset of priorities, so the same entropy and as many repeated draws, but no information about
    a step's TD error. Law: P(i) = P_prioritized(π⁻¹(i)) with π a uniformly random permutation of the stored
    steps that changes a little with every added step. Source: none, a placebo of this library; attributes and
    defaults: those of `Prioritized`, and one more.

    Attributes:
        bins: 1: any step may get any priority. More: only steps of about the same age change places, so that
            what recency contributes is kept; the ring is cut into so many stretches. Default: 1.
    """

    bins: int = 1

    _kind: ClassVar[str] = "permuted"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, bins=COUNT)

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """With bins, which are stretches of the ring, or blocks."""
        return self.bins > 1 or super().needs_order

    def _options(self) -> dict[str, float]:
        return super()._options() | {"bins": self.bins}


@dataclass(frozen=True)
class Dispersed(Prioritized):
    """A placebo: prioritized replay with at most one step of each episode in a batch.

    The information of the priorities without the dependence inside an episode. Rows are drawn one by one by the law
    of `Prioritized`, a step whose episode has given one again; when every episode that has a positive priority has
    given one, a new round begins. Without fields ``terminated`` and ``truncated`` an environment's steps are one
    episode. Law of the first row: P(i) = pᵢ^α / Σ p^α, which is also every row's ``probability`` and what its
    weight is made of.

    Later rows depend on the rows before. Source: none, a placebo of this library; attributes and defaults: those of
    `Prioritized`, but `block_length` is 1.
    """

    no_law: ClassVar[str] = "a row depends on the episodes of the rows before; batch.probability is a first row's"
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    _kind: ClassVar[str] = "dispersed"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "1, for a batch takes one step of an episode and a block takes neighbours"
        check(self, block_length=number(rule, lambda length: length == 1))

    def _options(self) -> dict[str, float]:
        return super()._options() | {"episodes": 1.0}


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

    def __post_init__(self) -> None:
        check(self, alpha=FRACTION, new_steps=one_of(*NEW_STEPS))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        options = {"exponent": self.alpha, "epsilon": 0.0, "feedback": CLIPPED, "normalize": 0, "block_length": 1}
        return _core.SamplerConfig("prioritized", options | {"ever": NEW_STEPS.index(self.new_steps)})


@dataclass(frozen=True)
class RankBased(Sampler):
    """Rank-based prioritized replay, with exact ranks.

    Law: P(i) = rank(i)^−α / Σ k^−α, rank 1 the largest |δ|, of equal ones the lower slot. A batch is one draw
    from each of B equal segments of the total. A step of priority 0 has no rank and is never drawn; one of δ = 0 comes
    last. Draws and updates take O(log N); with `Sequence`, weights take O(N) a batch. Source: Schaul et al. 2016.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the law uniform. Default: 0.7.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress.
            Default: Linear(0.5, 1.0).
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none". Default: "buffer".
        new_steps: As for `Prioritized`. Default: "largest_stored".
    """

    alpha: float = 0.7
    beta: float | Schedule = field(default=Linear(0.5, 1.0))
    normalize: Normalize = "buffer"
    new_steps: NewSteps = field(default="largest_stored", metadata=ADDED)

    wants_feedback: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, **WEIGHTING, new_steps=one_of(*NEW_STEPS))

    @property
    def scheduled(self) -> float | Schedule:
        """β."""
        return self.beta

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        options = {"alpha": self.alpha, "normalize": NORMALIZE.index(self.normalize)}
        return _core.SamplerConfig("rank", options | {"ever": NEW_STEPS.index(self.new_steps)})


@dataclass(frozen=True)
class Greedy(Sampler):
    """The B largest |δ| that are stored: for studies, where its failures show.

    Law: P(i) = 1/B for those B (of equal ones the lower slots), else 0. A step of priority 0 is never drawn; a batch
    needs B others. With `Sequence`: the B blocks that hold the largest. Source: the "greedy TD-error prioritization" of
    Schaul et al. 2016.
    """

    wants_feedback: ClassVar[bool] = True
    law_needs_batch_size: ClassVar[bool] = True

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("greedy", {"ever": 0})
