"""Every public call of the statistics, with one senseless argument at a time."""

import numpy as np
import pytest

from replaylab import statistics
from replaylab.errors import ShapeError
from tests.senseless import ARRAY, NUMBERS, TRUTH, Call, misshapen, wrongs

RUNS = np.array([1.0, 2.0, 4.0, 7.0, 11.0])
PAIR = {"treated": RUNS, "baseline": RUNS[::-1]}
TABLE = np.arange(12.0).reshape(3, 2, 2) ** 2
FEW = {"resamples": 20}
STEADY = {"resamples": "None"}
INTERVAL = statistics.Interval(1.0, 0.5, 2.0)
AGAIN = {"seed": "0 huge", "calibrated": TRUTH}
CALLS = [
    Call(statistics.Bounds, {"low": -1.0, "high": 1.0}, {"low": "-1", "high": "3.5 huge inf"}),
    Call(statistics.area_under_curve, {"steps": [1, 2, 3], "values": [1.0, 2.0, 3.0]}),
    Call(statistics.bootstrap_interval, {"values": RUNS, **FEW}, AGAIN | STEADY),
    Call(
        statistics.contrast_power,
        {"pilot": RUNS, "seeds": 9, "effect": 0.0, "bound": 0.1, "studies": 3, "resamples": 20},
        {"seed": "0 huge", "effect": NUMBERS, "bound": "3.5 huge"},
    ),
    Call(statistics.curve_band, {"values": TABLE[0], **FEW}, AGAIN),
    Call(statistics.holm, {"p_values": [0.1, 0.2]}, {"p_values": "[]"}),
    Call(statistics.interquartile_mean, {"values": TABLE}, {"axis": "0 -1"}),
    Call(statistics.interval_p, {"interval": INTERVAL, "runs": 5}),
    Call(statistics.interval_t, {"interval": INTERVAL, "runs": 5}),
    Call(statistics.max_t, {"differences": TABLE[0], "permutations": 20}, AGAIN | {"limits": "None"}),
    Call(statistics.decisions, {"values": TABLE, "resamples": 20}, {"seed": "0 huge"}),
    Call(statistics.heterogeneity_test, {"values": TABLE[0], "resamples": 20}, {"seed": "0 huge"}),
    Call(statistics.mean_intervals, {"values": TABLE[0], "resamples": 20}, {"seed": "0 huge"}),
    Call(
        statistics.normalised_score,
        {"values": TABLE, "low": 0.0, "high": 1.0},
        {"values": f"{ARRAY} []", "low": NUMBERS, "high": "-1 3.5 huge"},
    ),
    Call(statistics.on_grid, {"steps": [1, 2], "values": [1.0, 2.0], "grid": [1, 2, 3]}),
    Call(statistics.paired_difference, PAIR | FEW, AGAIN | STEADY),
    Call(statistics.paired_equivalence, PAIR | FEW | {"bounds": statistics.Bounds(-1, 1)}, AGAIN | STEADY),
    Call(statistics.paired_test, PAIR | FEW, AGAIN | STEADY),
    Call(statistics.paired_permutation_test, PAIR, AGAIN),
    Call(statistics.performance_profile, {"values": RUNS, "thresholds": [1.0, 2.0], **FEW}, AGAIN),
    Call(
        statistics.power,
        PAIR | {"seeds": 9, "studies": 3},
        AGAIN | {"effect": f"None {NUMBERS}"},
    ),
    Call(statistics.probability_of_improvement, PAIR | FEW, AGAIN | {"paired": TRUTH}),
    Call(statistics.share_distance_test, {"treated": TABLE[0] + 1, "baseline": TABLE[1]}, AGAIN),
    Call(statistics.sign_flip_test, {"values": RUNS, "permutations": 20, **FEW}, AGAIN | STEADY),
    Call(statistics.standardised_difference, PAIR | FEW, AGAIN),
    Call(statistics.unpaired_difference, PAIR | FEW, AGAIN | STEADY),
    Call(
        statistics.wilson_interval,
        {"successes": 1, "trials": 2},
        {"successes": "0 True []", "trials": "3.5 inf True []"},
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call):
    assert wrongs(call) == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_arrays_of_other_shapes(call):
    assert misshapen(call) == []


MADE = {
    "Band",
    "ContrastPower",
    "Equivalence",
    "Heterogeneity",
    "Interval",
    "Means",
    "PairedTest",
    "Power",
    "Shares",
    "Verdict",
}


def test_nothing_is_left_out():
    every = {name for name in statistics.__all__ if callable(getattr(statistics, name))}
    assert {call.name for call in CALLS} == every - MADE


def test_power_of_one_pair_raises():
    with pytest.raises(ShapeError, match="at least two pairs"):
        statistics.power([5.0], [3.0], 10)
