"""Samplers by the rank of a step's priority."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import FRACTION, one_of, option
from replaylab.replay.data.schedules import Linear, Schedule, scheduled
from replaylab.replay.samplers.prioritized import NEW_STEPS, NORMALIZE, NewSteps, Normalize
from replaylab.replay.samplers.sampler import Sampler


@dataclass(frozen=True)
class RankBased(Sampler):
    """Rank-based prioritized replay, with exact ranks.

    Sampling probability: P(i) = rank(i)^−α / Σ k^−α, rank 1 the largest |δ|, of equal ones the lower slot. A batch is
    one draw from each of B equal segments of the total. A step of priority 0 has no rank and is never drawn; one of δ
    = 0 comes last. Draws and updates take O(log N); with `Sequence`, weights take O(N) a batch. Source: Schaul et al.
    2016.

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
