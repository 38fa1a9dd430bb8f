"""Numbers as tables, sheets and axes write them."""

import math

import pytest

from replaylab.number_format import compact, signed_significant, significant, tick

CASES = [
    (significant, 999.4, "999"),
    (significant, 999.7, "1,000"),
    (significant, -999.6, "−1,000"),
    (signed_significant, 999.7, "+1,000"),
    (compact, 2.5e9, "2.5G"),
    (compact, 1e12, "1T"),
    (compact, -0.001, "0"),
    (compact, math.inf, "∞"),
    (compact, -math.inf, "−∞"),
    (compact, math.nan, "NaN"),
    (tick, 123_456.5, "123.4565k"),
    (tick, 100_000.25, "100.00025k"),
]


@pytest.mark.parametrize(("form", "value", "text"), CASES)
def test_numbers_at_the_edges(form, value, text):
    assert form(value) == text
