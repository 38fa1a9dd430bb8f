"""Numbers in sentences: about three digits of the interval, whatever the unit."""

import math

import pytest

from replaylab.statistics import Interval
from replaylab.study.report import sentences


@pytest.mark.parametrize(
    ("found", "estimate", "ends"),
    [
        (Interval(312.4, 280.0, 341.2), "312", "280 to 341"),
        (Interval(-12.34, -20.5, 3.0), "−12.3", "−20.5 to 3.0"),
        (Interval(0.74, 0.5, 0.92), "0.74", "0.50 to 0.92"),
        (Interval(0.0123, -0.0001, 0.0456), "0.0123", "−0.0001 to 0.0456"),
        (Interval(0.00031, 0.00012, 0.00052), "0.000310", "0.000120 to 0.000520"),
        (Interval(3.1e-7, -1e-8, 5.2e-7), "3.10e−07", "−1.00e−08 to 5.20e−07"),
        (Interval(-2_327_038_004_591_262_171_136.0, -3e21, 12.0), "−2.33e+21", "−3.00e+21 to 12"),
        (Interval(1_234_567.0, 1_000_000.0, 2_000_000.0), "1,234,567", "1,000,000 to 2,000,000"),
        (Interval(0.0, 0.0, 0.0), "0.00", "0.00 to 0.00"),
        (Interval(0.35, -math.inf, math.inf), "0.35", "−∞ to ∞"),
    ],
)
def test_levels_have_three_digits_of_their_scale(found, estimate, ends):
    assert sentences.estimate(found) == estimate
    assert sentences.interval(found, 5) == ends
    assert sentences.with_interval(found, 5) == f"{estimate} ({ends})"


@pytest.mark.parametrize(
    ("found", "effect", "ends"),
    [
        (Interval(30.0, -5.0, 50.0), "+30.0", "−5.0 to +50.0"),
        (Interval(0.0012, 0.0004, 0.0021), "+0.00120", "+0.00040 to +0.00210"),
        (Interval(3e9, -1e6, 5e9), "+3.00e+09", "−1,000,000 to +5.00e+09"),
        (Interval(0.35, -math.inf, math.inf), "+0.35", "−∞ to +∞"),
    ],
)
def test_differences_have_their_sign(found, effect, ends):
    assert sentences.effect(found) == effect
    assert sentences.effect_interval(found, 5) == ends
