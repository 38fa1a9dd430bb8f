"""Numbers as text: on pages, in figures and tables, on terminals. Every minus sign is a true one (−).

Which function to use: `decimals` for numbers that stand in a column or a sentence with others of the same unit,
`at_scale` where that unit may be any, `significant` for numbers of any size, `compact` where there is hardly room,
`tick` for axes.
"""

from __future__ import annotations

import math

MINUS = "−"
"""U+2212, as wide as a digit."""


def decimals(value: float, scale: float | None = None) -> str:
    """Return a number with about three digits.

    Args:
        value: the number.
        scale: the largest size among the numbers it stands beside, so that all get the same decimals; its own by
            default.

    Example:
        >>> [decimals(v) for v in (0.1234, -12.34, 1234.5)], decimals(0.5, scale=100.0)
        (['0.12', '−12.3', '1,234'], '0')
    """
    size = abs(value if scale is None else scale)
    text = f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else _with_true_minus(text)


def at_scale(value: float, scale: float) -> str:
    """Return a number with the decimals of a scale: about three digits of it, however small or large the unit is.

    Args:
        value: the number.
        scale: the largest size among the numbers that it stands beside.

    Example:
        >>> at_scale(0.5, 100.0), at_scale(0.00123, 0.02), at_scale(-0.00002, 0.00005), at_scale(2e7, 2e7)
        ('0', '0.0012', '−2.00e−05', '2.00e+07')
    """
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) >= _LARGE or 0 < scale < _SMALL:
        return _with_true_minus(f"{value:.2e}") if value else "0"
    if not 0 < scale < _TENTH:
        return decimals(value, scale)
    text = f"{value:.{2 - math.floor(math.log10(scale))}f}"
    return _with_true_minus(text) if float(text) else text.lstrip("-")


_LARGE, _TENTH, _SMALL = 1e7, 0.0995, 1e-4
"""Sizes from which `at_scale` writes powers of ten, below which two decimals are too few, and below which it writes
powers of ten again."""


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, and from 1,000 on as a whole number.

    Example:
        >>> [significant(v) for v in (0.012345, -1.5, 12345.0, 0.0000012, 0.0, -math.inf)]
        ['0.0123', '−1.5', '12,345', '1.2e−06', '0', '−∞']
    """
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) >= 1000.0 - 0.5 * 10.0 ** (3 - digits):  # what would be rounded to 1e+03
        return _with_true_minus(f"{value:,.0f}")
    return _with_true_minus(f"{value:.{digits}g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.1e}")


def signed(text: str, value: float) -> str:
    """Return a number's text with a plus sign where the number is above 0.

    Example:
        >>> signed(decimals(3.0), 3.0), signed(decimals(-3.0), -3.0)
        ('+3.00', '−3.00')
    """
    return f"+{text}" if value > 0 else text


def signed_decimals(value: float, scale: float | None = None) -> str:
    """Return `decimals` with the sign always there; an infinite number is +∞ or −∞."""
    if math.isinf(value):
        return "+∞" if value > 0 else f"{MINUS}∞"
    return signed(decimals(value, scale), value)


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
    """Return a p-value as written in a table.

    Example:
        >>> p_value(0.0004), p_value(0.0456)
        ('< 0.001', '0.046')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def equals_p(p: float) -> str:
    """Return a p-value as written in a sentence, after ``p``: ``= 0.046`` or ``< 0.001``."""
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 run``, ``40 runs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _with_true_minus(text: str) -> str:
    return text.replace("-", MINUS)
