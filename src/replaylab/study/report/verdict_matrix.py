"""The answer at a glance: each strategy against the baseline, in each environment, as a matrix of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from replaylab.number_format import counted, significant
from replaylab.statistics import Interval
from replaylab.study.analysis.comparisons import Difference, Measure
from replaylab.study.report import sentences
from replaylab.study.report.page import Page
from replaylab.study.spec.study_file import Spec

SIGNS = {
    "better": "▲",
    "worse": "▼",
    "higher": "▲",
    "lower": "▼",
    "equivalent": "≈",
    "undecided": "○",
    "passed": "✓",
    "failed": "✗",
    "not interpretable": "–",
    "same runs": "=",
}
"""By the word of a cell, which also names its class on the page: colour, sign and word say the same."""

_LEGEND = (
    "▲ better, ▼ worse: shown by the corrected test and by the 95 % interval (small).{equivalent} ○ undecided: no "
    "difference was shown, which does not mean that there is none; the interval says what the data leave open."
)
_EQUIVALENT = (
    " ≈ equivalent: any difference is within what was declared not to matter ({bounds}), by an interval of its own, "
    "corrected."
)


_WORDS = {"higher": "better", "lower": "worse", "no difference shown": "undecided", "equivalent": "equivalent"}


@dataclass(frozen=True)
class MatrixCell:
    """The verdict on a strategy in an environment, with the difference and its 95 % interval in words."""

    word: str
    sign: str
    effect: str
    interval: str


@dataclass(frozen=True)
class VerdictMatrix:
    """What was judged (strategies, say) × where (environments); a cell is None where there is nothing to compare."""

    title: str
    corner: str
    """What a row is."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]

    @property
    def summary(self) -> str:
        """How many cells have which verdict."""
        words = Counter(cell.word for _, cells in self.rows for cell in cells if cell)
        counts = [f"{words[word]} {word}" for word in SIGNS if words[word]]
        return f"{counted(words.total(), 'comparison')}: {', '.join(counts)}." if counts else "Nothing is compared."


def legend(spec: Spec) -> str:
    """Return what the words of a study's matrices mean."""
    bounds = ", ".join(f"{name} ±{significant(bound)}" for name, bound in spec.equivalence.items())
    return _LEGEND.format(equivalent=_EQUIVALENT.format(bounds=bounds) if bounds else "")


def matrices(page: Page, differences: Sequence[Difference]) -> list[VerdictMatrix]:
    """Return the matrices of a study: by the average over training, then by the final level."""
    measures: tuple[Measure, ...] = ("area", "final")
    return [
        _matrix(page, differences, measure) for measure in measures if any(d.measure == measure for d in differences)
    ]


def _matrix(page: Page, differences: Sequence[Difference], measure: Measure) -> VerdictMatrix:
    found = {(d.environment, d.learner, d.strategy): d for d in differences if d.measure == measure}
    cells = list(dict.fromkeys(key[:2] for key in found))
    strategies = [s for s in page.spec.strategies if any(key[2] == s for key in found)]
    rows = [(s, [_cell(found.get((*cell, s))) for cell in cells]) for s in strategies]
    phrase = sentences.MEASURE_PHRASES[measure]
    title = f"Against {page.spec.baseline}, by the {phrase}"
    return VerdictMatrix(title, "Strategy", [page.heading(*c) for c in cells], rows)


def _cell(difference: Difference | None) -> MatrixCell | None:
    if difference is None:
        return None
    return cell(_WORDS[sentences.verdict(difference)], difference.iqm, difference.pairs)


def cell(word: str, size: Interval, runs: int) -> MatrixCell:
    """Return the cell of a verdict, which is one of `SIGNS`, from so many pairs or, at least, runs."""
    return MatrixCell(word, SIGNS[word], sentences.effect(size), sentences.effect_interval(size, runs))
