"""A published mean return beside that of a study's runs."""

import numpy as np

from replaylab.claims.claim import ReplicatedFigure, agreement
from replaylab.claims.cleanrl import t_interval
from replaylab.study import Study


def mean_return(study: Study, query: str, what: str, published: float | None) -> ReplicatedFigure:
    """Return the mean over runs; it counts as reached unless its 95 % interval lies below the published one.

    Args:
        study: Whose results are asked.
        query: SQL that gives one return for each run.
        what: The quantity, in words.
        published: What the source has; None: there is nothing to compare.
    """
    ours = np.array(study.query(query).fetchall(), np.float64)[:, 0]
    low, high = t_interval(ours)
    return ReplicatedFigure(
        what,
        "" if published is None else f"{published:g}",
        float(ours.mean()),
        low,
        high,
        f"mean of {len(ours)} runs, 95 %",
        None if published is None else agreement(high >= published),
    )
