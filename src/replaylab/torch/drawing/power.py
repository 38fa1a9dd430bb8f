"""Powers and logarithms from additions, multiplications and divisions of IEEE 754: the same on every device.

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


def log2(x: Tensor) -> Tensor:
    """Return log2 x of normal x > 0, float64."""
    bits = x.view(torch.int64)
    biased = (bits + (ONE_BITS - ROOT_HALF_BITS)) >> 52
    m = (bits - (biased << 52) + ONE_BITS).view(torch.float64)  # in [√½, √2)
    return (biased.to(torch.float64) - 1023.0) + _log2_of_ratio((m - 1.0) / (m + 1.0))


def _log2_of_ratio(s: Tensor) -> Tensor:
    """Return log2((1 + s) / (1 − s))."""
    q = s * s
    series = q * (1.0 / 13)
    for divisor in (11, 9, 7, 5, 3):
        series = q * (1.0 / divisor + series)
    return LOG_SCALE * s * (1.0 + series)


def log2_1p(x: Tensor) -> Tensor:
    """Return log2(1 + x) of −1 < x ≤ 0, float64, with a small relative error also near 0."""
    if x.dtype != torch.float64:
        return torch.log1p(x) / LN_2
    return torch.where(x < -0.25, log2(1.0 + x), _log2_of_ratio(x / (2.0 + x)))


def _exp2_parts(exponent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return g, h and a power of 2 such that (1 + g + h)·power = 2^exponent; held between 2^−1000 and 2^1000."""
    exponent = exponent.clamp(-1000.0, 1000.0)
    shifted = exponent + SHIFT
    f = (exponent - (shifted - SHIFT)) * LN_2
    low = f * (1.0 + f * (1.0 / 2 + f * (1.0 / 6 + f * (1.0 / 24))))
    high = 1.0 / 120 + f * (1.0 / 720 + f * (1.0 / 5040 + f * (1.0 / 40320 + f * (1.0 / 362880))))
    squared = f * f
    scale = ((shifted.view(torch.int64) + 1023) << 52).view(torch.float64)
    return low, squared * squared * f * high, scale


def exp2(exponent: Tensor) -> Tensor:
    """Return 2^exponent, float64, held between 2^−1000 and 2^1000."""
    if exponent.dtype != torch.float64:
        return torch.exp2(exponent)
    low, high, scale = _exp2_parts(exponent)
    return (1.0 + low + high) * scale


def exp2_m1(exponent: Tensor) -> Tensor:
    """Return 2^exponent − 1, float64, with a small relative error also near 0."""
    if exponent.dtype != torch.float64:
        return torch.expm1(exponent * LN_2)
    low, high, scale = _exp2_parts(exponent)
    return torch.where(scale == 1.0, low + high, (1.0 + low + high) * scale - 1.0)


def power(x: Tensor, y: Tensor) -> Tensor:
    """Return x^y of normal x > 0, held between 2^−1000 and 2^1000; where y = 1, x itself."""
    return torch.where(y == 1.0, x, exp2(y * log2(x))) if x.dtype == torch.float64 else x.pow(y)
