"""A table of published figures beside ours, which each script of this folder prints."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.stats


@dataclass(frozen=True)
class Figure:
    """A published figure and ours.

    Attributes:
        quantity: The quantity and its unit, in words.
        published: The published figure, in words; empty: none.
        value: Our figure.
        agrees: Whether the two agree, by the rule in the script's docstring; None: nothing was published.
        interval: The ends of our figure's interval; None: the figure is exact.
        kind: Kind of interval, such as "range of 10 runs".
    """

    quantity: str
    published: str
    value: float
    agrees: bool | None
    interval: tuple[float, float] | None = None
    kind: str = "exact"

    def __str__(self) -> str:
        ends = "" if self.interval is None else f" [{self.interval[0]:,.4g}, {self.interval[1]:,.4g}]"
        verdict = {True: "reproduced", False: "not reproduced", None: "–"}[self.agrees]
        published = self.published or "–"
        return f"{self.quantity:58}  {published:>14}  {self.value:10,.4g}{ends} ({self.kind})  {verdict}"


def show(figures: Iterable[Figure]) -> int:
    """Print each figure as soon as it is measured, and return the exit code: 1 if one is not reproduced, else 0."""
    print(f"{'figure':58}  {'published':>14}  {'here':>10} [interval]  verdict")
    failed = 0
    for figure in figures:
        print(figure, flush=True)
        failed |= figure.agrees is False
    return failed


def t_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of values (N,)."""
    half = scipy.stats.t.ppf((1.0 + level) / 2.0, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
