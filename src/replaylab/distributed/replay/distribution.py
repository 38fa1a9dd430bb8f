"""The distribution over all shards: each one's share of a batch, and each row's true probability.

Shard s holds steps of masses m (1 each, or p^α) with the sum T_s. In one buffer that held everything, the distribution
would be P(i) = m_i / ΣT. The totals change while a call is on its way: shares follow those reported last, T̂_s, and the
shard draws from what it holds when the call arrives. The probability of a row is then

    q_i = (T̂_s / ΣT̂) · (m_i / T_s).

Batches report q, and weights follow from q. So stale totals change slightly what is drawn, but bias nothing:
Σ q_i · f_i/(N·q_i) is the mean of f for any T̂.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shard import Tally

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


def staleness(shares: Floats, tallies: Sequence[Tally | None]) -> Floats:
    """Return P(i)/q_i of each shard's rows: 1 where the totals have not changed.

    Args:
        shares: T̂_s/ΣT̂ (S,).
        tallies: The tally of each shard at the draw; None of those that did not answer.
    """
    totals = np.array([0.0 if tally is None else tally.total for tally in tallies])
    ratios = np.ones(len(totals))
    drawn = (shares > 0.0) & (totals > 0.0)
    ratios[drawn] = totals[drawn] / totals.sum() / shares[drawn]
    return ratios


def least_scaled(shares: Floats, tallies: Sequence[Tally | None]) -> float:
    """Return the smallest N·q of any row that could have been drawn; arguments as of `staleness`."""
    known = [(share, tally) for share, tally in zip(shares, tallies, strict=True) if tally is not None]
    chances = [share * tally.least / tally.total for share, tally in known if share > 0.0 and tally.total > 0.0]
    return float(min(chances) * sum(tally.rows for _, tally in known))
