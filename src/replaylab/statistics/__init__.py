"""The statistics of a study: interquartile means, intervals, paired tests; vectorised and seeded.

Every function is pure: the same arrays and the same ``seed`` give the same numbers. Shapes: ``N`` seeds
(runs), ``T`` points of a learning curve, ``M`` strata (environments), ``K`` hypotheses. docs/explanation/statistics.md
describes when to use which, and the coverage of the intervals.

"""

from replaylab.statistics.effect_sizes import (
    performance_profile,
    probability_of_improvement,
    standardised_difference,
)
from replaylab.statistics.equivalence import Bounds, Equivalence, Verdict, paired_equivalence
from replaylab.statistics.interquartile_means import (
    bootstrap_interval,
    curve_band,
    interquartile_mean,
    paired_difference,
    unpaired_difference,
)
from replaylab.statistics.learning_curves import area_under_curve, normalised_score, on_grid
from replaylab.statistics.paired import PairedTest, paired_test, sign_flip_test
from replaylab.statistics.permutation import (
    EXACT_SEEDS,
    PERMUTATIONS,
    holm,
    max_t,
    paired_permutation_test,
    share_distance_test,
)
from replaylab.statistics.power_analysis import ContrastPower, Power, contrast_power, power
from replaylab.statistics.proportions import Shares, wilson_interval
from replaylab.statistics.resampling import RESAMPLES, Band, Interval, interval_p, interval_t
from replaylab.statistics.simultaneous import Heterogeneity, Means, decisions, heterogeneity_test, mean_intervals

__all__ = [
    "Band",
    "Bounds",
    "ContrastPower",
    "EXACT_SEEDS",
    "Equivalence",
    "Heterogeneity",
    "Interval",
    "Means",
    "PERMUTATIONS",
    "PairedTest",
    "Power",
    "RESAMPLES",
    "Shares",
    "Verdict",
    "area_under_curve",
    "bootstrap_interval",
    "contrast_power",
    "decisions",
    "curve_band",
    "heterogeneity_test",
    "holm",
    "interquartile_mean",
    "interval_p",
    "interval_t",
    "max_t",
    "mean_intervals",
    "normalised_score",
    "on_grid",
    "paired_difference",
    "paired_equivalence",
    "paired_permutation_test",
    "paired_test",
    "performance_profile",
    "power",
    "probability_of_improvement",
    "share_distance_test",
    "sign_flip_test",
    "standardised_difference",
    "unpaired_difference",
    "wilson_interval",
]
