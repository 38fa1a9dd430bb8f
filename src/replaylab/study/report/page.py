"""The parts of a page: sections of figures and tables, each with its numbers in a file beside the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from replaylab import statistics
from replaylab.files.atomic import whole_file, write_text
from replaylab.plotting import palette, readout, svg
from replaylab.plotting.drawing import MEDIUM, SMALL, WIDE, Drawing, Key
from replaylab.statistics import Band
from replaylab.study.analysis import comparisons, seed_values
from replaylab.study.analysis.comparisons import Curve, MeasureResult
from replaylab.study.analysis.seed_values import StrategyResult
from replaylab.study.report import figures, sentences

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from replaylab.study.report.reported_study import ReportedStudy

_KINDS = {SMALL: "small", MEDIUM: "medium", WIDE: "wide"}

KEYS = seed_values.KEYS
"""First columns of every CSV file of a report."""

BAND = (*KEYS, "step", "iqm", "low", "high")
"""Columns of the CSV file of curves with their bands."""

WORD_COLUMNS = frozenset(
    ("Contrast", "Comparison", "Unit", "Environment", "Learner", "Strategy", "Measure", "Verdict", "Published")
) | {"Source", "Outcome"}
"""Heads of columns that hold words, aligned to the left; numbers are aligned to the right."""

MOST_ON_PAGE = 600_000
"""Bytes of a figure on the page; a larger one is a separate file beside it."""


def keys_of(kind: str, names: Sequence[str]) -> list[str]:
    """Return a key for each name's figure or table: its letters and digits, and a number where others have the same."""
    keys: list[str] = []
    for name in names:
        key = f"{kind}_{re.sub(r'[^A-Za-z0-9]', '_', name)[:80]}"
        others = (f"{key}_{k}" for k in count(1))
        keys.append(key if key not in keys else next(other for other in others if other not in keys))
    return keys


@dataclass(frozen=True)
class ReportFigure:
    """A figure on the page: its title and caption, its legend, and the SVG elements of its panels, by group."""

    key: str
    title: str
    caption: str
    legend: Sequence[Key]
    groups: Sequence[tuple[str, Sequence[Markup]]]
    kind: str
    """Width of its panels, "small", "medium" or "wide": on a narrow screen, small ones are in a row that scrolls."""

    folded: bool
    """Whether the page shows it only when asked to."""

    readout: Markup | None = None
    """The numbers behind its curves (`replaylab.plotting.readout.to_json`); None without curves."""

    files: Sequence[str] = ("svg", "png", "csv")
    """Kinds of the files beside the page, if there are any."""

    beside: bool = False
    """Whether the page only links to its file; it has no panels and no numbers then."""

    @property
    def panels(self) -> int:
        """Number of panels; a figure with many takes the whole width of the page."""
        return sum(len(panels) for _, panels in self.groups)


@dataclass(frozen=True)
class ReportTable:
    """A table on the page, in text for people; its CSV file has the numbers in full precision."""

    key: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


Shown = ReportFigure | ReportTable
"""A figure or table of a section."""


@dataclass(frozen=True)
class Section:
    """A part of the page, under its own heading: words first, then figures and tables in their order."""

    title: str
    shown: Sequence[Shown] = ()
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    terms: Sequence[tuple[str, str]] = ()
    """Terms, each with its meaning in one line."""

    note: str = ""
    subtitle: str = ""
    """Heading of what it adds to the section before it, which has the same title."""

    @property
    def anchor(self) -> str:
        """Its name in links of the page."""
        return "part-" + "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))


T = TypeVar("T", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: what the page shows of a row, and what the CSV file has of it."""

    head: str = ""
    """On the page; empty: it is in the file only."""

    text: Callable[[T], str] = str
    """For people."""

    names: str = ""
    """Names of the columns of the file, separated by spaces."""

    numbers: Callable[[T], Any] | None = None
    """Their values, one, or a tuple of several; None: it is on the page only."""

    def numbers_of(self, row: T) -> tuple[Any, ...]:
        """Return the values of a row in the file."""
        values = self.numbers(row) if self.numbers is not None else ()
        return tuple(values) if isinstance(values, tuple) else (values,)


KEY_COLUMNS: list[Column[StrategyResult]] = [
    Column("Environment", lambda result: result.environment, "environment", lambda result: result.environment),
    Column("Learner", lambda result: result.learner, "learner", lambda result: result.learner),
    Column("Strategy", lambda result: result.strategy, "strategy", lambda result: result.strategy),
]
"""First columns of tables with a row of each strategy."""


M = TypeVar("M", bound=MeasureResult)


class Page:
    """A study with its numbers; its tables leave out the environment and the learner where it has only one."""

    def __init__(
        self,
        study: ReportedStudy,
        rows: duckdb.DuckDBPyRelation,
        curves: Sequence[Curve],
        out: Path,
        *,
        figure_files: bool = True,
    ) -> None:
        spec = study.spec
        needed = {"Environment": len(spec.environments) > 1, "Learner": spec.names_learners}
        self._left_out = [column for column, is_needed in needed.items() if not is_needed]
        self._titles = {"Strategy": spec.titles.strategies, "Learner": spec.titles.learners}
        self.out = out
        self._figure_files = figure_files
        self.study = study
        self.spec = spec
        self.rows = rows
        self.curves = curves
        self._read = {comparisons.RETURN: list(curves)}
        self.line_styles = palette.line_styles(
            list(spec.strategies),
            spec.baseline,
            kinds={name: part.type for name, part in spec.strategies.items()},
            titles=spec.titles.strategies,
        )

    def figure(
        self,
        key: str,
        title: str,
        caption: str,
        drawing: Drawing,
        header: Sequence[str],
        numbers: Iterable[Sequence[Any]],
        *,
        folded: bool = False,
    ) -> ReportFigure:
        """Write a figure's files (SVG, PNG, and its numbers as CSV), if wanted, and return it for the page.

        A folded one is shown only when asked for. The SVG file of one that is too large for the page is always written.
        """
        if self._figure_files:
            self._write_files(key, drawing, _csv([header, *numbers]))
        groups = [
            (
                group.title,
                [
                    Markup(
                        svg.on_page(panel.body, panel.size, ": ".join(filter(None, (title, group.title, panel.title))))
                    )
                    for panel in group.panels
                ],
            )
            for group in drawing.groups
        ]
        axes = f" {sentences.capital(drawing.axes)}." if drawing.axes else ""
        numbers_of = [panel.readout for group in drawing.groups for panel in group.panels]
        read = Markup(readout.to_json(numbers_of)) if any(numbers_of) else None
        beside = sum(len(panel) for _, panels in groups for panel in panels) + len(read or "") > MOST_ON_PAGE
        if beside:
            groups, read = [], None
            if not self._figure_files:
                self._write_svg(key, drawing)
        kind = _KINDS[drawing.width]
        return ReportFigure(key, title, caption + axes, drawing.legend, groups, kind, folded, read, beside=beside)

    def _write_svg(self, key: str, drawing: Drawing) -> None:
        write_text(self.out / "figures" / f"{key}.svg", drawing.sheet.svg())

    def _write_files(self, key: str, drawing: Drawing, numbers: str) -> None:
        sheet = drawing.sheet
        self._write_svg(key, drawing)
        with whole_file(self.out / "figures" / f"{key}.png") as temporary:
            dense = (svg.PIXELS_PER_INCH, svg.PIXELS_PER_INCH)
            Image.fromarray(sheet.pixels()).save(temporary, format="png", dpi=dense, compress_level=3)
        write_text(self.out / "figures" / f"{key}.csv", numbers)

    def table(
        self,
        key: str,
        title: str,
        caption: str,
        rows: Sequence[T],
        columns: Sequence[Column[T]],
        numbers: Iterable[Sequence[Any]] | None = None,
    ) -> ReportTable:
        """Write a table's numbers in full precision and return it for the page.

        Args:
            key: names the file.
            title: above the table.
            caption: below it.
            rows: what there is a row of.
            columns: of the page and of the file.
            numbers: rows of the file, its header first, where these are not those of the page.
        """
        if numbers is None:
            filed = [column for column in columns if column.numbers is not None]
            header = [name for column in filed for name in column.names.split()]
            numbers = [header, *([value for column in filed for value in column.numbers_of(row)] for row in rows)]
        write_text(self.out / "tables" / f"{key}.csv", _csv(numbers))
        shown = [column for column in columns if column.head and column.head not in self._left_out]
        heads = [column.head for column in shown]
        cells = [[self._titled(column.head, column.text(row)) for column in shown] for row in rows]
        return ReportTable(key, title, caption, heads, cells)

    def _titled(self, head: str, text: str) -> str:
        return self._titles.get(head, {}).get(text, text)

    def curves_of(self, metric: str) -> list[Curve]:
        """Return the curves of a metric, read when they are first asked for; empty where nothing logged it."""
        if metric not in self._read:
            self._read[metric] = comparisons.curves_of(self.rows, self.spec, metric)
        return list(self._read[metric])

    @property
    def swatches(self) -> dict[str, str]:
        """CSS variables of colours, by what begins a row: a strategy, or its comparison with the baseline."""
        base = self.spec.title_of(self.spec.baseline)
        variables = {}
        for strategy, style in self.line_styles.items():
            variables[style.title] = variables[sentences.versus(self.spec.title_of(strategy), base)] = style.variable
        return variables

    @property
    def versus_columns(self) -> list[Column[StrategyResult]]:
        """The first columns of tables of differences: where, and what each row compares."""

        def versus(result: StrategyResult) -> str:
            return sentences.versus(self.spec.title_of(result.strategy), self.spec.title_of(self.spec.baseline))

        compared = Column("Comparison", versus, "strategy", lambda result: result.strategy)
        return [*KEY_COLUMNS[:2], compared, Column(names="baseline", numbers=lambda _: self.spec.baseline)]

    @property
    def many_strategies(self) -> bool:
        """Whether there are too many strategies to draw them in one panel."""
        return len(self.line_styles) > figures.MOST_TOGETHER

    def dots_by_measure(
        self,
        results: Sequence[M],
        row: Callable[[M], figures.Row],
        *,
        reference: float | None = None,
        limits: tuple[float, float] | None = None,
        ends: tuple[str, str] | None = None,
    ) -> list[tuple[str, list[figures.Dots]]]:
        """Return a group of panels for each environment and learner: one of each measure, with a row of each result."""
        return [
            (
                self.spec.place_of(*cell),
                [
                    figures.Dots(
                        sentences.MEASURE_TITLES[measure],
                        [row(result) for result in results if (result.cell, result.measure) == (cell, measure)],
                        reference,
                        limits,
                        ends,
                    )
                    for measure in comparisons.MEASURES
                ],
            )
            for cell in dict.fromkeys(result.cell for result in results)
        ]

    def curve_style(self, unit: str) -> figures.CurveStyle:
        """Return how curves of strategies are drawn."""
        return figures.CurveStyle(self.line_styles, self.spec, unit)

    def row(
        self, strategy: str, middle: statistics.Interval, runs: NDArray[np.float64] = figures.NO_RUNS
    ) -> figures.Row:
        """Return a row of a panel of dots in the colour of its strategy."""
        style = self.line_styles[strategy]
        return figures.Row(style.title, style.light, middle, runs)


BandedCurves = list[list[tuple[Curve, Band]]]
"""Curves with their bands, by environment and learner."""


def cells_of(curves: Sequence[Curve]) -> BandedCurves:
    """Return curves with their bands, grouped by environment and learner."""
    grouped: dict[tuple[str, str], list[tuple[Curve, Band]]] = {}
    for curve in curves:
        grouped.setdefault(curve.cell, []).append((curve, statistics.curve_band(curve.values)))
    return list(grouped.values())


def seed_rows(key: Sequence[str], seeds: NDArray[np.int64], values: NDArray[np.float64]) -> Iterable[tuple[Any, ...]]:
    """Yield a row of a CSV file for each seed: the key, the seed and its value."""
    return ((*key, seed, value) for seed, value in zip(seeds.tolist(), values.tolist(), strict=True))


def point_rows(key: Sequence[str], x: NDArray[Any], band: Band) -> Iterable[tuple[Any, ...]]:
    """Yield a row of a CSV file for each point of a curve: the key, where it is, and the band there."""
    return ((*key, *point) for point in zip(x.tolist(), *(side.tolist() for side in band), strict=True))


def band_rows(cells: BandedCurves) -> Iterable[Sequence[Any]]:
    """Yield the rows of a CSV file with the columns `BAND`."""
    for curve, band in (pair for cell in cells for pair in cell):
        yield from point_rows(curve.key, curve.steps, band)


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def render(**values: Any) -> str:
    """Return the report as HTML, of the values that its template takes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("replaylab", "study/report/templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.jinja").render(
        fonts=svg.FONTS,
        variables=palette.variables(),
        is_figure=lambda part: isinstance(part, ReportFigure),
        word_columns=WORD_COLUMNS,
        **values,
    )
