"""What differs between two studies, as lines for a terminal and as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from replaylab import statistics
from replaylab.files.atomic import write_text
from replaylab.number_format import counted, equals_p, p_value
from replaylab.plotting import palette, svg
from replaylab.study.report import figures, pages, sentences, tables, verdict_matrix
from replaylab.study.report.compare.two_studies import FolderDifference, TwoStudies
from replaylab.study.report.page import KEYS, PageFiles, ReportFigure, ReportTable, band_rows
from replaylab.study.report.verdict_matrix import VerdictMatrix

_WORDS = {"higher": "higher", "lower": "lower", "same runs": "same runs"}

LEGEND = (
    "B minus A. ▲ higher, ▼ lower: shown by the corrected test and by the 95 % interval (small). ○ undecided: no "
    "difference was shown, which does not mean that there is none. = same runs: their values are equal, one by one."
)


def lines(found: TwoStudies) -> list[str]:
    """Return the comparison as lines for a terminal."""
    return [
        f"A: {found.first.folder}",
        f"B: {found.second.folder}",
        *(_line(d) for d in found.differences),
        *(f"not compared: {what}: {why}" for what, why in found.not_compared),
        *(f"only in {where}: {what}" for what, where in found.unmatched),
        *(f"setting {name}: A {a}, B {b}" for name, a, b in found.settings),
        *(f"version {name}: A {a}, B {b}" for name, a, b in found.versions),
    ]


def _line(d: FolderDifference) -> str:
    where = f"{d.environment}, {d.learner}, {d.strategy}, {sentences.MEASURE_PHRASES[d.measure]}"
    size, interval = sentences.effect(d.size), sentences.effect_interval(d.size, d.fewest)
    tested = "" if d.same else f"; p {equals_p(d.p_holm)} after Holm’s correction"
    few = "; p is the least that so few runs can have: add seeds" if d.too_few else ""
    return f"{where}: {d.verdict}: B minus A {size} (95 % interval {interval}; {_how(d)}{tested}){few}"


def _how(d: FolderDifference) -> str:
    return counted(d.pairs, "pair") if d.pairs else f"unpaired, {d.runs[0]} and {d.runs[1]} runs"


def write(found: TwoStudies, out: Path) -> Path:
    """Write ``comparison.html`` and its ``tables/`` into a folder, made where it is missing; return the page's path."""
    names = ("A", "B")
    files = PageFiles(out, figure_files=False)
    with svg.style():
        picture = _curves(found, files, palette.line_styles(names, "A"))
    html = pages.render(
        "comparison",
        figure_files=False,
        line_styles={},
        first=found.first,
        second=found.second,
        matrix_of=_matrix(found),
        legend=LEGEND,
        picture=picture,
        not_compared=found.not_compared,
        unmatched=found.unmatched,
        table_of=_table(found, files),
        settings=found.settings,
        versions=found.versions,
    )
    path = out / "comparison.html"
    write_text(path, html)
    return path


def _matrix(found: TwoStudies) -> VerdictMatrix:
    """Return the verdicts by the average over training: strategies × environments and learners."""
    of = {(d.environment, d.learner, d.strategy): d for d in found.differences if d.measure == "area"}
    cells = list(dict.fromkeys(key[:2] for key in of))
    several = len({learner for _, learner in cells}) > 1
    rows = [
        (strategy, [_cell(of.get((*cell, strategy))) for cell in cells])
        for strategy in dict.fromkeys(key[2] for key in of)
    ]
    columns = [f"{environment}, {learner}" if several else environment for environment, learner in cells]
    return VerdictMatrix("B minus A, by the average over training", "Strategy", columns, rows)


def _cell(d: FolderDifference | None) -> verdict_matrix.MatrixCell | None:
    return None if d is None else verdict_matrix.cell(_WORDS.get(d.verdict, "undecided"), d.size, d.fewest)


def _curves(found: TwoStudies, files: PageFiles, styles: dict[str, palette.LineStyle]) -> ReportFigure:
    several = len({a.learner for a, _ in found.curves}) > 1
    cells = []
    for pair in found.curves:
        place = f"{figures.title_of(pair[0], several)}, {pair[0].strategy}"
        named = [replace(c, environment=place, learner="", strategy=name) for c, name in zip(pair, "AB", strict=True)]
        cells.append([(c, statistics.curve_band(c.values)) for c in named])
    unit = found.first.spec.budget.counted
    return files.figure(
        "curves",
        "Learning curves of both",
        "Greedy return: interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
        figures.curves(cells, "A", styles, tables.RETURN_UNIT, unit, small=True),
        (*KEYS, "step", "iqm", "low", "high"),
        band_rows(cells),
    )


def _table(found: TwoStudies, files: PageFiles) -> ReportTable:
    return files.table(
        "comparison",
        "Every comparison",
        "Interquartile means over runs with their 95 % bootstrap intervals. Paired: over the seeds that both have, by "
        "the sign-flip permutation test and the interval. Unpaired: by the interval, each group resampled on its own; "
        "p is at least what exchanging runs between the groups could give, of which 4 and 4 runs, or 3 and 5, are the "
        "fewest that show a difference. Holm’s correction is over all comparisons of one measure but those of the same "
        "runs.",
        ("Environment", "Learner", "Strategy", "Measure", "A", "B", "Compared", "B − A", "95 %", "p (Holm)", "Verdict"),
        [
            (
                *(d.environment, d.learner, d.strategy, sentences.MEASURE_NAMES[d.measure]),
                *(sentences.estimate(d.first), sentences.estimate(d.second), _how(d)),
                *(sentences.effect(d.size), sentences.effect_interval(d.size, d.fewest), p_value(d.p_holm), d.verdict),
            )
            for d in found.differences
        ],
        (
            *(*KEYS, "measure", "a", "a_low", "a_high", "b", "b_low", "b_high", "runs_a", "runs_b", "pairs"),
            *("difference", "low", "high", "p", "p_holm", "verdict"),
        ),
        (
            (
                *(d.environment, d.learner, d.strategy, d.measure, *d.first, *d.second, *d.runs, d.pairs),
                *(*d.size, d.p, d.p_holm, d.verdict),
            )
            for d in found.differences
        ),
    )
