"""The comparison of two studies, as lines for a terminal and as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from replaylab import statistics
from replaylab.files.atomic import write_text
from replaylab.number_format import counted, equals_p, p_value
from replaylab.plotting import palette, svg
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import ReportedInterval
from replaylab.study.report import figures, page, sentences, tables, verdict_matrix
from replaylab.study.report.compare.two_studies import FolderDifference, TwoStudies
from replaylab.study.report.page import KEY_COLUMNS, Column, PageFiles, ReportFigure, ReportTable
from replaylab.study.report.verdict_matrix import VerdictMatrix

LEGEND = (
    "B minus A. ▲ higher, ▼ lower: a difference is shown, both by the test corrected for all comparisons of the "
    "measure and by the uncorrected 95 % interval (small). ○ inconclusive: no difference is shown, but there may be "
    "one. The uncorrected interval beside it may exclude 0, because the verdict is corrected. = same runs: their "
    "values are equal, one by one."
)


def lines(studies: TwoStudies) -> list[str]:
    """Return the comparison as lines for a terminal."""
    return [
        f"A: {studies.first.folder}",
        f"B: {studies.second.folder}",
        *(_line(d) for d in studies.differences),
        *(f"not compared: {what}: {why}" for what, why in studies.not_compared),
        *(f"only in {where}: {what}" for what, where in studies.unmatched),
        *(f"setting {name}: A {a}, B {b}" for name, a, b in studies.settings),
        *(f"version {name}: A {a}, B {b}" for name, a, b in studies.versions),
    ]


def _line(d: FolderDifference) -> str:
    where = f"{d.environment}, {d.learner}, {d.strategy}, {sentences.MEASURE_PHRASES[d.measure]}"
    size, interval = sentences.effect(d.size), sentences.effect_interval(d.size, d.fewest)
    tested = "" if d.same else f"; p {equals_p(d.p_holm)} after Holm’s correction"
    few = "; p is the least that so few runs can have: add seeds" if d.too_few else ""
    numbers = f"B minus A {size} ({comparisons.UNCORRECTED} interval {interval}; {_how(d)}{tested})"
    return f"{where}: {d.verdict}: {numbers}{few}"


def _how(d: FolderDifference) -> str:
    return counted(d.pairs, "pair") if d.pairs else f"unpaired, {d.runs[0]} and {d.runs[1]} runs"


def write(studies: TwoStudies, out: Path) -> Path:
    """Write ``comparison.html`` and its ``tables/`` into a folder, made where it is missing; return the page's path."""
    names = ("A", "B")
    files = PageFiles(out, figure_files=False)
    with svg.style():
        picture = _curves(studies, files, palette.line_styles(names, "A"))
    html = page.render(
        "comparison",
        figure_files=False,
        swatches={},
        first=studies.first,
        second=studies.second,
        matrix_of=_matrix(studies),
        legend=LEGEND,
        picture=picture,
        not_compared=studies.not_compared,
        unmatched=studies.unmatched,
        table_of=_table(studies, files),
        settings=studies.settings,
        versions=studies.versions,
    )
    path = out / "comparison.html"
    write_text(path, html)
    return path


def _matrix(studies: TwoStudies) -> VerdictMatrix:
    """Return the verdicts by the average return: strategies × environments and learners."""
    compared = [d for d in studies.differences if d.measure == "area"]
    several = len({d.learner for d in compared}) > 1
    cells = {
        d.key: verdict_matrix.cell(d.verdict, ReportedInterval(d.size, comparisons.UNCORRECTED), d.fewest)
        for d in compared
    }
    return verdict_matrix.matrix(
        "B vs A, average return",
        cells,
        {d.strategy: d.strategy for d in compared},
        lambda environment, learner: f"{environment}, {learner}" if several else environment,
    )


def _curves(studies: TwoStudies, files: PageFiles, styles: dict[str, palette.LineStyle]) -> ReportFigure:
    every = [a for a, _ in studies.curves]
    cells = []
    for pair in studies.curves:
        place = f"{figures.place_of(pair[0], every)}, {pair[0].strategy}"
        named = [replace(c, environment=place, learner="", strategy=name) for c, name in zip(pair, "AB", strict=True)]
        cells.append([(c, statistics.curve_band(c.values)) for c in named])
    style = figures.CurveStyle(styles, "A", tables.RETURN_UNIT, studies.first.spec.budget.counted)
    return files.figure(
        "curves",
        "Learning curves of both",
        "Evaluation return: interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
        figures.curves(cells, style, small=True),
        page.BAND,
        page.band_rows(cells),
    )


def _table(studies: TwoStudies, files: PageFiles) -> ReportTable:
    columns: list[Column[FolderDifference]] = [
        *KEY_COLUMNS,
        Column("Measure", lambda d: sentences.MEASURE_NAMES[d.measure], "measure", lambda d: d.measure),
        Column("A", lambda d: sentences.estimate(d.first), "a a_low a_high", lambda d: d.first),
        Column("B", lambda d: sentences.estimate(d.second), "b b_low b_high", lambda d: d.second),
        Column("Compared", _how, "runs_a runs_b pairs", lambda d: (*d.runs, d.pairs)),
        Column("B − A", lambda d: sentences.effect(d.size), "difference low high", lambda d: d.size),
        Column(tables.UNCORRECTED_HEAD, lambda d: sentences.effect_interval(d.size, d.fewest), "p", lambda d: d.p),
        Column("p (Holm)", lambda d: p_value(d.p_holm), "p_holm", lambda d: d.p_holm),
        Column("Verdict", lambda d: d.verdict, "verdict", lambda d: d.verdict),
    ]
    return files.table(
        "comparison",
        "Every comparison",
        "Interquartile means over runs with their 95 % bootstrap intervals, uncorrected. Paired: over the seeds that "
        "both have, by the sign-flip permutation test and the interval. Unpaired: by the interval, each group "
        "resampled on its own; p is at least what exchanging runs between the groups could give, of which 4 and 4 "
        "runs, or 3 and 5, are the fewest that show a difference. Holm’s correction is over all comparisons of one "
        "measure but those of the same runs.",
        studies.differences,
        columns,
    )
