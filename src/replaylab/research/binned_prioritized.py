"""Draws of bins of stored steps, and of the steps of a bin, by two powers of TD errors."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import POSITIVE, number, option
from replaylab.episode_ends import ENDS
from replaylab.replay import Sampler

EXPONENT = number("in [0, 2]", lambda exponent: 0.0 <= exponent <= 2.0)


@dataclass(frozen=True)
class BinnedPrioritized(Sampler):
    """Two dials: how much TD errors decide from which bins steps come, and how much which steps of a bin come.

    A bin holds the stored steps of the same kind of episode (running, truncated or terminated), the same number of
    steps to its end and the same age, each in 0, 1, 2–3, 4–7, .... Sampling probability of a step i of bin b, with
    p = |δ| + ε: P(i) = Σ_{j in b} p_j^between / Σ_{all j} p_j^between · p_i^within / Σ_{j in b} p_j^within. Rows are
    independent, and all weights are 1.

    With both exponents 0 draws are uniform. With ``within=0`` each bin is drawn as often as by TD error, and its steps
    evenly. With ``between=0`` each bin is drawn as often as by uniform draws, and its steps by TD error. With both
    equal to α the distribution is that of ``Prioritized(alpha=α, stratified=False)``.

    A new step has the largest p^between and p^within now stored, 1 if there is none. Ages count removed steps. Powers
    are float32 numbers. The buffer must have ``terminated`` or ``truncated``, or ``episodes="manual"``. Source: none,
    of this library.

    Attributes:
        between: Exponent in [0, 2] of a bin's share. Default: 0.6.
        within: Exponent in [0, 2] of a step's share of its bin. Default: 0.6.
        epsilon: ε > 0, added to every |δ|. Default: 1e-6.
    """

    between: float = option(EXPONENT, 0.6)
    within: float = option(EXPONENT, 0.6)
    epsilon: float = option(POSITIVE, 1e-6)

    wants_feedback: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    end_fields: ClassVar[tuple[str, ...]] = ENDS
    draws_sequences: ClassVar[bool] = False
    core_kind: ClassVar[str] = "binned_prioritized"

    @property
    def takes_priorities(self) -> bool:
        """False: two powers of a TD error are kept, so a priority would not say which."""
        return False

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"between": self.between, "within": self.within, "epsilon": self.epsilon}
