"""Numbers in sentences: two digits of the interval, or what distinguishes its ends, whatever the unit."""

import math

import pytest

from replaylab.statistics import Interval
from replaylab.study.report import sentences


@pytest.mark.parametrize(
    ("interval", "estimate", "ends"),
    [
        (Interval(312.4, 280.0, 341.2), "312", "280 to 341"),
        (Interval(-12.34, -20.5, 3.0), "−12", "−20 to 3"),
        (Interval(0.74, 0.5, 0.92), "0.74", "0.50 to 0.92"),
        (Interval(0.0123, -0.0001, 0.0456), "0.012", "0 to 0.046"),
        (Interval(0.00031, 0.00012, 0.00052), "0.00031", "0.00012 to 0.00052"),
        (Interval(3.1e-7, -1e-8, 5.2e-7), "3.1e−07", "−1.0e−08 to 5.2e−07"),
        (Interval(-2_327_038_004_591_262_171_136.0, -3e21, 12.0), "−2.3e+21", "−3.0e+21 to 1.2e+01"),
        (Interval(1_234_567.0, 1_000_000.0, 2_000_000.0), "1,234,567", "1,000,000 to 2,000,000"),
        (Interval(0.0, 0.0, 0.0), "0", "0 to 0"),
        (Interval(7.931, 7.912, 7.954), "7.93", "7.91 to 7.95"),
        (Interval(0.2 / 3, 0.2 / 3 - 1e-17, 0.2 / 3), "0.067", "0.067 to 0.067"),
        (Interval(0.35, -math.inf, math.inf), "0.35", "−∞ to ∞"),
    ],
)
def test_levels_have_two_digits_of_their_scale(interval, estimate, ends):
    assert sentences.estimate(interval) == estimate
    assert sentences.interval(interval, 5) == ends
    assert sentences.with_interval(interval, 5) == f"{estimate} ({ends})"


@pytest.mark.parametrize(
    ("interval", "effect", "ends"),
    [
        (Interval(30.0, -5.0, 50.0), "+30", "−5 to +50"),
        (Interval(0.0012, 0.0004, 0.0021), "+0.0012", "+0.0004 to +0.0021"),
        (Interval(3e9, -1e6, 5e9), "+3.0e+09", "−1.0e+06 to +5.0e+09"),
        (Interval(0.35, -math.inf, math.inf), "+0.35", "−∞ to +∞"),
    ],
)
def test_differences_have_their_sign(interval, effect, ends):
    assert sentences.effect(interval) == effect
    assert sentences.effect_interval(interval, 5) == ends
