"""Numbers as text: on pages, in figures and tables, on terminals. Every minus sign is a true one (−).

Which function to use: `together` for an estimate with its interval, `decimals` for single numbers of about the size of
1 to 1,000, `significant` for single numbers of any size, `compact` if there is hardly room, `tick` for axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MINUS = "−"
"""U+2212, as wide as a digit."""


def decimals(value: float) -> str:
    """Return a number with about three digits.

    Example:
        >>> [decimals(v) for v in (0.1234, -12.34, 1234.5)]
        ['0.12', '−12.3', '1,234']
    """
    size = abs(value)
    return _fixed(value, 0 if size >= 99.95 else 1 if size >= 9.995 else 2)


def together(values: Sequence[float]) -> list[str]:
    """Return numbers that stand beside each other, all with the same decimals.

    They have two significant digits of the largest number. If the numbers differ by less than that shows, they have
    up to two digits more. Numbers from ten million on or below 0.0001 are powers of ten.

    Args:
        values: such as an estimate with the ends of its interval; infinite ones have no influence on the others.

    Example:
        >>> together([407.3, 398.2, 411.9]), together([0.0481, 0.0123, 0.0839]), together([7.931, 7.912, 7.954])
        (['407', '398', '412'], ['0.048', '0.012', '0.084'], ['7.93', '7.91', '7.95'])
        >>> together([12.3, 3.2, math.inf]), together([2e-5, -1e-6]), together([0.0, 0.0])
        (['12', '3', '∞'], ['2.0e−05', '−1.0e−06'], ['0', '0'])
    """
    finite = [value for value in values if math.isfinite(value)]
    largest = max(map(abs, finite), default=0.0)
    if largest >= _LARGE or 0 < largest < _SMALL:
        return [_special(value) or (_with_true_minus(f"{value:.1e}") if value else "0") for value in values]
    needed, width = _decimals_of(largest, 2), max(finite, default=0.0) - min(finite, default=0.0)
    if width > _ROUNDING * largest:
        needed = min(max(needed, _decimals_of(width, 1)), needed + 2)
    texts = [_special(value) or _fixed(value, needed) for value in values]
    return [text if text.strip("0.") else "0" for text in texts]


_ROUNDING = 1e-9
"""Share of the largest number, up to which differences are only rounding of sums."""

_LARGE, _SMALL = 1e7, 1e-4
"""Sizes from which, and below which, `together` writes powers of ten."""


def _decimals_of(size: float, digits: int) -> int:
    """Return with how many decimals a size has so many significant digits; whole numbers have none."""
    return max(0, digits - 1 - math.floor(math.log10(size))) if size > 0 else 0


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else _with_true_minus(text)


def _special(value: float) -> str:
    """Return the text of an infinite number or NaN; empty for others."""
    return "" if math.isfinite(value) else "NaN" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"


def significant(value: float) -> str:
    """Return a number with three significant digits, and from 1,000 on as a whole number.

    Example:
        >>> [significant(v) for v in (0.012345, -1.5, 12345.0, 0.0000012, 0.0, -math.inf)]
        ['0.0123', '−1.5', '12,345', '1.2e−06', '0', '−∞']
    """
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) >= 999.5:  # what would be rounded to 1e+03
        return _with_true_minus(f"{value:,.0f}")
    return _with_true_minus(f"{value:.3g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.1e}")


def signed(text: str, value: float) -> str:
    """Return a number's text with a plus sign if the number is above 0.

    Example:
        >>> signed(decimals(3.0), 3.0), signed(decimals(-3.0), -3.0)
        ('+3.00', '−3.00')
    """
    return f"+{text}" if value > 0 else text


def signed_significant(value: float) -> str:
    """Return `significant` with the sign always there."""
    return signed(significant(value), value)


def compact(value: float) -> str:
    """Return a number in at most five characters.

    Example:
        >>> [compact(v) for v in (0.0, 0.042, 3.14159, 4.0, 52.3, 1234.0, 35210.0, -12.96, 2.5e6)]
        ['0', '0.04', '3.1', '4', '52', '1.2k', '35k', '−13', '2.5M']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return compact(value / size) + letter
    digits = 0 if value == round(value) or abs(value) >= 9.95 else 1 if abs(value) >= 0.995 else 2
    rounded = round(value, digits)
    return _with_true_minus(f"{rounded if rounded else 0.0:.{digits if rounded else 0}f}")


def tick(value: float) -> str:
    """Return the number at a tick of an axis: all its digits, thousands as ``k``, millions as ``M``.

    Example:
        >>> [tick(v) for v in (0.25, -20_000.0, 1_500.0, 1_250.0, 750_000.0, 1_250_000.0)]
        ['0.25', '−20k', '1.5k', '1250', '750k', '1.25M']
    """
    if abs(value) >= 1_000_000:
        return _with_true_minus(f"{value / 1_000_000:.9g}M")
    thousands = abs(value) >= 10_000 or (abs(value) >= 1_000 and value % 100 == 0)
    return _with_true_minus(f"{value / 1000:.9g}k" if thousands else f"{value + 0.0:.9g}")


def p_value(p: float) -> str:
    """Return a p-value as written in a table, with two digits.

    Example:
        >>> p_value(0.0004), p_value(0.0456)
        ('< 0.001', '0.046')
    """
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def equals_p(p: float) -> str:
    """Return a p-value as written in a sentence, after ``p``: ``= 0.046`` or ``< 0.001``."""
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 run``, ``40 runs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a span of time for people: ``8 s``, ``2 min 05 s``, ``1 h 04 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def _with_true_minus(text: str) -> str:
    return text.replace("-", MINUS)
