"""What a report is made of: figures and tables, each with its numbers in a file beside the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from replaylab import palette
from replaylab.study import figures, svg
from replaylab.study.analysis import Curve
from replaylab.study.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from replaylab.study.study import Study

KEYS = ("environment", "learner", "strategy")
"""First columns of every CSV file of a report."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure on the page: its words, and its two drawings, for wide and for narrow screens."""

    key: str
    title: str
    caption: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class ReportTable:
    """A table on the page, in text for people; its CSV file has the numbers in full precision."""

    key: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Page:
    """A study with its curves, and the way its files are written."""

    def __init__(self, study: Study, curves: Sequence[Curve], out: Path) -> None:
        self.study = study
        self.out = out
        self.spec = study.spec
        self.curves = curves
        self.looks = palette.looks(list(self.spec.strategies), self.spec.baseline)

    def figure(
        self,
        key: str,
        title: str,
        caption: str,
        draw: Callable[[figures.Layout], Figure],
        header: Sequence[str],
        numbers: Iterable[Sequence[Any]],
    ) -> ReportFigure:
        """Draw a figure twice for the page, once for its own file, and write its numbers."""
        with svg.style():
            wide, narrow = draw(figures.WIDE), draw(figures.NARROW)
            write_text(self.out / "figures" / f"{key}.svg", svg.to_svg(wide))
            inline = [svg.to_inline(f, f"{key}-{n}", title) for f, n in ((wide, "w"), (narrow, "n"))]
        write_text(self.out / "figures" / f"{key}.csv", _csv(header, numbers))
        return ReportFigure(key, title, caption, *map(Markup, inline))

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
        """Write a table's numbers in full precision and return it for the page.

        The page leaves out the environment and the learner where the study has only one.
        """
        write_text(self.out / "tables" / f"{key}.csv", _csv(header, numbers))
        only = {"Environment": len(self.spec.environments) == 1, "Learner": len(self.spec.learners) == 1}
        kept = [i for i, column in enumerate(columns) if not only.get(column, False)]
        return ReportTable(key, title, caption, [columns[i] for i in kept], [[r[i] for i in kept] for r in rows])


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
