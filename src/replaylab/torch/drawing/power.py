"""x^y from additions, multiplications and divisions of IEEE 754, so that every device has the same result.

The library's compiled core does the same (`cpp/support/power.hpp`): absolute errors of log2 and relative errors of
2^x are below 1e-11.
"""

import torch
from torch import Tensor

ONE_BITS = 0x3FF0000000000000
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
LOG_SCALE = 2.885390081777926814719849362  # 2 / ln 2
LN_2 = 0.693147180559945309417232121458
SHIFT = 6755399441055744.0
"""1.5·2^52: adding it leaves the nearest integer in the low bits."""


def power(x: Tensor, y: Tensor) -> Tensor:
    """Return x^y of normal x > 0, float64, held between 2^−1000 and 2^1000; where y = 1, x itself."""
    bits = x.view(torch.int64)
    biased = (bits + (ONE_BITS - ROOT_HALF_BITS)) >> 52
    m = (bits - (biased << 52) + ONE_BITS).view(torch.float64)  # in [√½, √2)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    series = q * (1.0 / 13)
    for divisor in (11, 9, 7, 5, 3):
        series = q * (1.0 / divisor + series)
    log2 = (biased.to(torch.float64) - 1023.0) + LOG_SCALE * s * (1.0 + series)
    exponent = (y * log2).clamp(-1000.0, 1000.0)
    shifted = exponent + SHIFT
    f = (exponent - (shifted - SHIFT)) * LN_2
    low = 1.0 + f * (1.0 + f * (1.0 / 2 + f * (1.0 / 6 + f * (1.0 / 24))))
    high = 1.0 / 120 + f * (1.0 / 720 + f * (1.0 / 5040 + f * (1.0 / 40320 + f * (1.0 / 362880))))
    squared = f * f
    scale = ((shifted.view(torch.int64) + 1023) << 52).view(torch.float64)
    return torch.where(y == 1.0, x, (low + squared * squared * f * high) * scale)
