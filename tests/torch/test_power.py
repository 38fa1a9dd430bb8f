import random

import pytest
import torch

from replaylab.torch.drawing.power import power


def test_powers_are_near_those_of_python():
    rng = random.Random(0)
    x = [2.0 ** rng.uniform(-300, 300) for _ in range(2_000)] + [1.0, 0.5, 2.0**0.5, 0.5**0.5]
    for y in (0.0, 0.3, 0.6, 0.999, 1.0):
        powers = power(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)).tolist()
        assert powers == pytest.approx([value**y for value in x], rel=1e-8 if y else 0.0)
        if y in (0.0, 1.0):
            assert powers == [value**y for value in x]
