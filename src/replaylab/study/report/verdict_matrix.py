"""The answer at a glance: each strategy against the baseline, in each environment, as a matrix of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from replaylab.number_format import counted, significant
from replaylab.study.analysis.comparisons import Difference, Measure, ReportedInterval
from replaylab.study.report import sentences
from replaylab.study.spec.spec import Spec

SIGNS = {
    "higher": "▲",
    "lower": "▼",
    "equivalent": "≈",
    "inconclusive": "○",
    "passed": "✓",
    "failed": "✗",
    "not interpretable": "–",
}
"""Sign of each verdict; sign, word and color carry the same information."""

_LEGEND = (
    "▲ higher, ▼ lower: a difference is shown, both by the test corrected for all comparisons of the measure and by "
    "the uncorrected 95 % interval beside it.{equivalent} ○ inconclusive: no difference is shown, but there may be "
    "one. The uncorrected interval beside it may exclude 0, because the verdict is corrected."
)
_EQUIVALENT = (
    " ≈ equivalent: any difference is within the declared margin ({bounds}). The interval beside it decides that; its "
    "level is corrected for all comparisons with a margin."
)


@dataclass(frozen=True)
class MatrixCell:
    """The verdict on one comparison, with the difference and its interval in words."""

    verdict: str
    """One of `SIGNS`."""

    word: str
    """The verdict as readers see it."""

    kind: str
    """Class on the page, which gives the colour: better or worse if it is known which is which, else the verdict."""

    effect: str
    interval: str

    @property
    def sign(self) -> str:
        """The verdict as a sign."""
        return SIGNS[self.verdict]


@dataclass(frozen=True)
class VerdictMatrix:
    """Comparisons × environments and learners, or transposed; a cell is None if nothing is compared there."""

    title: str
    corner: str
    """Head of the column of row names."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]

    @property
    def summary(self) -> str:
        """Number of cells with each verdict."""
        words = Counter(cell.verdict for _, cells in self.rows for cell in cells if cell)
        counts = [f"{words[word]} {word}" for word in SIGNS if words[word]]
        return f"{counted(words.total(), 'comparison')}: {', '.join(counts)}." if counts else "Nothing is compared."


def legend(spec: Spec) -> str:
    """Return what the words of a study's matrices mean."""
    bounds = ", ".join(f"{name} ±{significant(bound)}" for name, bound in spec.equivalence.items())
    return _LEGEND.format(equivalent=_EQUIVALENT.format(bounds=bounds) if bounds else "")


def matrices(spec: Spec, differences: Sequence[Difference]) -> list[VerdictMatrix]:
    """Return the matrices of a study: by the average return, then by the final return."""
    measures: tuple[Measure, ...] = ("area", "final")
    of_measures = [[d for d in differences if d.measure == measure] for measure in measures]
    return [_matrix(spec, of_measure) for of_measure in of_measures if of_measure]


def _matrix(spec: Spec, differences: Sequence[Difference]) -> VerdictMatrix:
    """Return the matrix of one measure, with the fewer columns, so that it fits the page."""
    cells = {d.key: cell(sentences.verdict(d), d.reported, d.pairs, sentences.bounds(d), "higher") for d in differences}
    places = list(dict.fromkeys(d.cell for d in differences))
    strategies = [s for s in spec.strategies if any(s == d.strategy for d in differences)]
    compared = [sentences.versus(spec.title_of(s), spec.title_of(spec.baseline)) for s in strategies]
    where = [spec.place_of(*place) for place in places]
    title = sentences.MEASURE_TITLES[differences[0].measure]
    if len(places) <= len(strategies):
        rows = [[cells.get((*place, s)) for place in places] for s in strategies]
        return VerdictMatrix(title, "Comparison", where, list(zip(compared, rows, strict=True)))
    rows = [[cells.get((*place, s)) for s in strategies] for place in places]
    corner = "Environment, learner" if spec.names_learners else "Environment"
    return VerdictMatrix(title, corner, compared, list(zip(where, rows, strict=True)))


def cell(
    verdict: str, reported: ReportedInterval, pairs: int, margin: str = "", better: str | None = None
) -> MatrixCell:
    """Return the cell of a verdict, which is one of `SIGNS`.

    Args:
        verdict: on the comparison.
        reported: the interval to print.
        pairs: Number of pairs of runs.
        margin: the equivalence margin, such as "±0.05".
        better: which of "higher" and "lower" is the good one; None: neither.
    """
    size = reported.interval
    ends = sentences.effect_interval(size, pairs)
    kind = verdict if better is None or verdict not in ("higher", "lower") else _GOOD[verdict == better]
    interval = ends if pairs == 1 else f"{reported.label}: {ends}"
    return MatrixCell(verdict, sentences.in_words(verdict, margin), kind, sentences.effect(size), interval)


_GOOD = {True: "better", False: "worse"}
