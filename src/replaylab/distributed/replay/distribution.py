"""The distribution over all shards: each one's share of a batch, and each row's true probability.

Shard s holds steps of masses m (1 each, or p^α) with the sum T_s. In one buffer that held everything, the distribution
would be P(i) = m_i / ΣT. The totals change while a call is on its way: shares follow those reported last, T̂_s, and the
shard draws from what it holds when the call arrives. The probability of a row is then

    q_i = (T̂_s / ΣT̂) · (m_i / T_s).

Batches report q, and weights follow from q. So stale totals change slightly what is drawn, but bias nothing:
Σ q_i · f_i/(N·q_i) is the mean of f for any T̂.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shard import Tally

Floats = npt.NDArray[np.float64]


def split(
    totals: Sequence[float], rows: int, batches: int, rng: np.random.Generator, stratified: bool
) -> npt.NDArray[np.int64]:
    """Return how many rows each shard gives for each batch, (S, K).

    A mark on the line of all totals selects the shard of a row: one mark in each of B equal strata, or B independent
    marks, as in one buffer.

    Args:
        totals: T̂ (S,), their sum positive.
        rows: B.
        batches: K.
        rng: Where each mark lies.
        stratified: Which of both.

    Example:
        >>> split([3.0, 0.0, 1.0], 8, 2, np.random.default_rng(0), stratified=True).tolist()
        [[6, 6], [0, 0], [2, 2]]
    """
    marks = rng.random((batches, rows))
    if stratified:
        marks = (marks + np.arange(rows)) / rows
    drawable = np.flatnonzero(totals)
    line = np.cumsum(np.array(totals)[drawable])
    shards = drawable[np.searchsorted(line[:-1], marks * line[-1], side="right")]  # the last has all that is left
    return np.stack([(shards == s).sum(axis=1) for s in range(len(totals))])


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
