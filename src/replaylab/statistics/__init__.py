"""The statistics of a study: levels, intervals, paired tests. NumPy and SciPy only, vectorised, seeded.

Every function is pure: the same arrays and the same ``seed`` give the same numbers. Shapes: ``N`` seeds
(runs), ``T`` points of a learning curve, ``M`` strata (environments), ``K`` hypotheses. docs/statistics.md
tells which to use, and how often the intervals hold the true value.
"""

from replaylab.statistics.curves import area_under_curve, on_grid
from replaylab.statistics.levels import (
    bootstrap_interval,
    curve_band,
    interquartile_mean,
    paired_difference,
    unpaired_difference,
)
from replaylab.statistics.permutation import EXACT_SEEDS, PERMUTATIONS, holm, max_t, paired_permutation_test
from replaylab.statistics.resampling import RESAMPLES, Band, Interval

__all__ = [
    "EXACT_SEEDS",
    "PERMUTATIONS",
    "RESAMPLES",
    "Band",
    "Interval",
    "area_under_curve",
    "bootstrap_interval",
    "curve_band",
    "holm",
    "interquartile_mean",
    "max_t",
    "on_grid",
    "paired_difference",
    "paired_permutation_test",
    "unpaired_difference",
]
