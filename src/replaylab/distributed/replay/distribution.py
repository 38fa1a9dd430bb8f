"""The distribution over all shards: each one's share of a batch, and each row's true probability.

Shard s holds steps of masses m (1 each, or p^α), in all T_s. Over one buffer that held everything the distribution were
P(i) = m_i / ΣT. The shards' totals move while a draw is on its way, so the share is made from those last told, T̂_s, and
the shard draws from what it holds when the call arrives. The chance of a row is then

    q_i = (T̂_s / ΣT̂) · (m_i / T_s),

and it is q that is reported, and q that weights are made from. So stale totals change what is drawn a little, and
bias nothing: Σ q_i · f_i/(N·q_i) is the mean of f, whatever T̂ is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.shard import Tally
from replaylab.replay import Sampler

Floats = npt.NDArray[np.float64]


def split(totals: Sequence[float], rows: int, rng: np.random.Generator, stratified: bool) -> list[int]:
    """Return how many rows each shard gives.

    Stratified: one draw from each of B equal strata of the line of all totals. Else B independent draws from all of it,
    so that the shares are multinomial, as those of one buffer are: P(c) = B!/Πcₛ! · Π(T̂ₛ/ΣT̂)^cₛ.

    Args:
        totals: T̂ (S,), their sum positive.
        rows: B.
        rng: Where in its stratum each draw lies, or on the line.
        stratified: Which of both.

    Example:
        >>> split([3.0, 0.0, 1.0], 8, np.random.default_rng(0), stratified=True)
        [6, 0, 2]
    """
    counts = [0] * len(totals)
    if not stratified:
        candidates = [s for s, total in enumerate(totals) if total > 0.0]  # the last has all that is left
        total_mass = sum(totals)
        for s, count in zip(
            candidates, rng.multinomial(rows, [totals[s] / total_mass for s in candidates]).tolist(), strict=True
        ):
            counts[s] = count
        return counts
    line = list(accumulate(totals))
    ends = [end * (rows / line[-1]) for end in line]
    last = ends.index(ends[-1])  # has all that is left, however sums are rounded
    assigned, stratum, mark = 0, -1, 0.0
    for s, end in enumerate(ends[:last]):
        if int(end) != stratum:  # where two ends lie in one stratum, its one mark is the same
            stratum, mark = int(end), rng.random()
        below = stratum + (mark < end - stratum)  # marks before this end: those of all strata before, and maybe its own
        counts[s], assigned = below - assigned, below
    counts[last] = rows - assigned
    return counts


@dataclass(frozen=True)
class Portion:
    """Rows that were asked for at one time, as they came.

    Attributes:
        totals: T̂ of each shard when they were asked for; 0 of those that did not answer.
        answers: Of the shards that gave rows: probabilities in the shard's own distribution, and its tally right after.
        known: The newest tally of each shard that answers; of one that was not asked it is an older one.
    """

    totals: Sequence[float]
    answers: Mapping[int, tuple[Floats, Tally]]
    known: Mapping[int, Tally]

    @cached_property
    def probabilities(self) -> list[Floats]:
        """Q of the rows, shard by shard."""
        line = sum(self.totals)
        return [distribution * (self.totals[s] / line) for s, (distribution, _) in self.answers.items()]

    @cached_property
    def now(self) -> dict[int, Tally]:
        """The tally of each shard that answers, that of the draw where it gave rows."""
        return {**self.known, **{s: tally for s, (_, tally) in self.answers.items()}}


def weights_of(sampler: Sampler, beta: float | None, portions: list[Portion]) -> npt.NDArray[np.float32]:
    """Return the importance weights of all rows.

    With β: w_i = (N·q_i)^−β, divided by the largest of the buffer, of the batch, or by nothing. Samplers without β
    (`Uniform`, `LAP`) are not corrected, except for totals that were stale: w_i = P(i)/q_i, 1 where they were not.
    """
    if beta is None:
        return np.concatenate([_staleness(portion) for portion in portions]).astype(np.float32)
    rows = [sum(tally.rows for tally in portion.now.values()) for portion in portions]
    scaled = [
        distribution * count
        for portion, count in zip(portions, rows, strict=True)
        for distribution in portion.probabilities
    ]
    values, normalize = np.concatenate(scaled), getattr(sampler, "normalize", "none")
    reference = 1.0
    if normalize == "batch":
        reference = values.min()
    if normalize == "buffer":
        reference = min(_least(portion) for portion in portions)
    weights: npt.NDArray[np.float32] = ((reference / values) ** beta).astype(np.float32)
    return weights


def _staleness(portion: Portion) -> Floats:
    """Return P(i)/q_i, which depends only on the shard."""
    now = portion.now
    line, true_line = sum(portion.totals), sum(tally.total for tally in now.values())
    return np.concatenate(
        [
            np.full(len(distribution), (tally.total / true_line) * (line / portion.totals[s]))
            for s, (distribution, tally) in portion.answers.items()
        ]
    )


def _least(portion: Portion) -> float:
    """Return the least N·q of any row that could have been drawn."""
    now, line = portion.now, sum(portion.totals)
    rows = sum(tally.rows for tally in now.values())
    shares = [portion.totals[s] / line * tally.least / tally.total for s, tally in now.items() if tally.total > 0.0]
    return float(rows * min(share for share in shares if share > 0.0))
