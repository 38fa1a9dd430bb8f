import math
import random

import pytest
import torch

from replaylab.torch.drawing.power import exp2, exp2_m1, log2_1p, power


def test_powers_are_near_those_of_python():
    rng = random.Random(0)
    x = [2.0 ** rng.uniform(-300, 300) for _ in range(2_000)] + [1.0, 0.5, 2.0**0.5, 0.5**0.5]
    for y in (0.0, 0.3, 0.6, 0.999, 1.0):
        powers = power(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)).tolist()
        assert powers == pytest.approx([value**y for value in x], rel=1e-8 if y else 0.0)
        if y in (0.0, 1.0):
            assert powers == [value**y for value in x]


def test_logarithms_and_powers_of_2_are_near_those_of_python():
    """Also near 0, where their relative errors are small."""
    rng = random.Random(1)
    x = [-(2.0 ** rng.uniform(-60, -1e-9)) for _ in range(2_000)]
    x_tensor = torch.tensor(x, dtype=torch.float64)
    assert log2_1p(x_tensor).tolist() == pytest.approx([math.log1p(v) / math.log(2) for v in x], rel=1e-9, abs=0)
    assert exp2_m1(60 * x_tensor).tolist() == pytest.approx(
        [math.expm1(60 * v * math.log(2)) for v in x], rel=1e-9, abs=0
    )
    assert exp2(60 * x_tensor).tolist() == pytest.approx([2.0 ** (60 * v) for v in x], rel=1e-9, abs=0)
