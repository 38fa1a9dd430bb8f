"""Comparison of a published mean return with that of a study's runs."""

import numpy as np

from replaylab.claims.claim import ReplicatedFigure, agreement
from replaylab.claims.cleanrl import t_interval
from replaylab.study import Study


def mean_return(study: Study, query: str, quantity: str, published: float | None) -> ReplicatedFigure:
    """Return the mean over runs; it counts as reproduced unless its 95 % interval is below the published return.

    Args:
        study: The study with the results.
        query: SQL that gives one return for each run.
        quantity: The quantity, in words.
        published: The published return; None: there is nothing to compare with.
    """
    returns = np.array(study.query(query).fetchall(), np.float64)[:, 0]
    low, high = t_interval(returns)
    return ReplicatedFigure(
        quantity,
        "" if published is None else f"{published:g}",
        float(returns.mean()),
        low,
        high,
        f"mean of {len(returns)} runs, 95 %",
        None if published is None else agreement(high >= published),
    )
