"""What a report is made of: sections of figures and tables, each with its numbers in a file beside the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from PIL import Image

from replaylab import statistics
from replaylab.files.atomic import whole_file, write_text
from replaylab.plotting import palette, readout, svg
from replaylab.plotting.drawing import MEDIUM, SMALL, WIDE, Drawing, Key
from replaylab.statistics import Band
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import figures

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from replaylab.study.report.reported_study import ReportedStudy

_KINDS = {SMALL: "small", MEDIUM: "medium", WIDE: "wide"}

BAND = ("environment", "learner", "strategy", "step", "iqm", "low", "high")
"""Columns of the CSV file of curves with their bands."""

WORD_COLUMNS = frozenset(("Contrast", "Unit", "Environment", "Learner", "Strategy", "Measure", "Verdict", "Compared"))
"""Heads of columns that hold words; the others' numbers stand to the right."""

MOST_ON_PAGE = 600_000
"""Bytes of a figure on the page; a larger one stands beside it, as a picture of its own."""

KEYS = ("environment", "learner", "strategy")
"""First columns of every CSV file of a report."""


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
    """Width of its panels, "small", "medium" or "wide": on a narrow screen small ones stand in a row that scrolls."""

    folded: bool
    """Whether the page shows it only when asked to."""

    readout: Markup | None = None
    """The numbers behind its curves (`replaylab.plotting.readout.to_json`); None without curves."""

    files: Sequence[str] = ("svg", "png", "csv")
    """Kinds of the files beside the page, if there are any."""

    beside: bool = False
    """Whether the page only says where its picture is; it has no panels and no numbers then."""

    @property
    def panels(self) -> int:
        """How many it has; one with many stands over the whole width of the page."""
        return sum(len(panels) for _, panels in self.groups)


@dataclass(frozen=True)
class ReportTable:
    """A table on the page, in text for people; its CSV file has the numbers in full precision."""

    key: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of the page, under a heading of its own: words first, then figures and tables in their order."""

    title: str
    shown: Sequence[ReportFigure | ReportTable] = ()
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    terms: Sequence[tuple[str, str]] = ()
    """Terms, each with what it means in a line."""

    note: str = ""

    @property
    def anchor(self) -> str:
        """Its name in links of the page."""
        return "part-" + "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))


class PageFiles:
    """Figures and tables of a page, and the way their files are written beside it.

    Args:
        out: the page's folder.
        figure_files: whether each figure is written there, too.
        left_out: columns that no table of the page shows.
    """

    def __init__(self, out: Path, *, figure_files: bool = True, left_out: Collection[str] = ()) -> None:
        self.out = out
        self.figure_files = figure_files
        self.left_out = left_out

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
        if self.figure_files:
            self._write_files(key, drawing, _csv(header, numbers))
        groups = [
            (
                group.title,
                [
                    Markup(svg.on_page(one.body, one.size, f"{key}-{i}-{j}", _label(title, group.title, one.title)))
                    for j, one in enumerate(group.panels)
                ],
            )
            for i, group in enumerate(drawing.groups)
        ]
        axes = f" {drawing.axes[0].upper()}{drawing.axes[1:]}." if drawing.axes else ""
        numbers_of = [one.readout for group in drawing.groups for one in group.panels]
        read = Markup(readout.to_json(numbers_of)) if any(numbers_of) else None
        beside = sum(len(panel) for _, panels in groups for panel in panels) + len(read or "") > MOST_ON_PAGE
        if beside:
            groups, read = [], None
            if not self.figure_files:
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
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        header: Sequence[str],
        numbers: Iterable[Sequence[Any]],
    ) -> ReportTable:
        """Write a table's numbers in full precision and return it for the page."""
        write_text(self.out / "tables" / f"{key}.csv", _csv(header, numbers))
        kept = [i for i, column in enumerate(columns) if column not in self.left_out]
        return ReportTable(key, title, caption, [columns[i] for i in kept], [[r[i] for i in kept] for r in rows])


class Page(PageFiles):
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
        only = {"Environment": study.spec.environments, "Learner": study.spec.learners}
        left_out = [column for column, names in only.items() if len(names) == 1]
        super().__init__(out, figure_files=figure_files, left_out=left_out)
        self.study = study
        self.spec = study.spec
        self.rows = rows
        self.curves = curves
        self._read = {comparisons.RETURN: list(curves)}
        self.line_styles = palette.line_styles(list(self.spec.strategies), self.spec.baseline)

    def curves_of(self, metric: str) -> list[Curve]:
        """Return the curves of a metric, read when they are first asked for; empty where nothing logged it."""
        if metric not in self._read:
            self._read[metric] = comparisons.curves_of(self.rows, self.spec, metric)
        return list(self._read[metric])

    @property
    def many_strategies(self) -> bool:
        """Whether there are too many strategies to draw them in one panel."""
        return len(self.line_styles) > figures.MOST_TOGETHER

    def heading(self, environment: str, learner: str) -> str:
        """Return the name of an environment and learner, the learner's only where the study has several."""
        return f"{environment}, {learner}" if len(self.spec.learners) > 1 else environment


BandedCurves = list[list[tuple[Curve, Band]]]
"""Curves with their bands, by environment and learner."""


def cells_of(curves: Sequence[Curve]) -> BandedCurves:
    """Return curves with their bands, grouped by environment and learner."""
    grouped: dict[tuple[str, str], list[tuple[Curve, Band]]] = {}
    for curve in curves:
        grouped.setdefault(curve.cell, []).append((curve, statistics.curve_band(curve.values)))
    return list(grouped.values())


def band_rows(cells: BandedCurves) -> Iterable[Sequence[Any]]:
    """Yield the rows of a CSV file with the columns `BAND`."""
    for curve, band in (pair for cell in cells for pair in cell):
        for point in zip(curve.steps.tolist(), *(side.tolist() for side in band), strict=True):
            yield (*curve.cell, curve.strategy, *point)


def _label(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
