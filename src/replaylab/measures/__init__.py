"""Measures of batches and of how a buffer is used, which show what a replay strategy does besides the return.

Pure functions of arrays that need only NumPy and preserve leading axes (replicas). A sampler's *distribution* is the
probability P(i) that one row of a batch is the stored step i, the same for each row; it adds up to 1 over the stored
steps. `ReplayBuffer.probabilities` returns it.
"""

from replaylab.measures.buffer_usage import (
    TdErrors,
    effective_batch_size,
    effective_sample_size,
    gini,
    mean_age,
    never_replayed_share,
    steps_to_end,
    td_errors,
    total_variance,
)
from replaylab.measures.dependence import (
    duplicate_share,
    energy_distance,
    excess_row_correlation,
    integrated_autocorrelation,
    legacy_correlated_pairs,
    mean_absolute_cosine,
    row_correlation,
    same_episode_share,
    smallest_gap,
    whitened,
)

__all__ = [
    "TdErrors",
    "duplicate_share",
    "effective_batch_size",
    "effective_sample_size",
    "energy_distance",
    "excess_row_correlation",
    "gini",
    "integrated_autocorrelation",
    "legacy_correlated_pairs",
    "mean_absolute_cosine",
    "mean_age",
    "never_replayed_share",
    "row_correlation",
    "same_episode_share",
    "smallest_gap",
    "steps_to_end",
    "td_errors",
    "total_variance",
    "whitened",
]
