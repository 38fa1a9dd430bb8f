"""Commands about the folders of studies: reports and comparisons."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from replaylab.study import Study

with suppress(ModuleNotFoundError):  # `main` says that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class StudyReport:
    """Write the report of a results folder again; needs neither the study file nor the training code.

    Example: replaylab study report results/quick

    Example: replaylab study report results/quick --out docs/results/quick
    """

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """Folder that `replaylab study run` wrote; it may have been moved here from another machine."""

    out: Path | None = None
    """Folder for the page, its figures and tables; None: next to the results. With another one FOLDER may be
    read-only."""

    figure_files: bool = True
    """Also write each figure as SVG, PNG and CSV files next to the page, which contains them all."""

    def __call__(self) -> int:
        """Write the report and return the exit code."""
        from replaylab.study import Study

        study = Study.from_folder(self.folder)
        print("writing the report", flush=True)
        tell(study, study.report(self.out, figure_files=self.figure_files))
        return 0


@dataclass(frozen=True)
class StudyCompare:
    """Compare the results of two folders: the same strategies, with other settings, code or seeds.

    Each difference is B minus A, in pairs of the same seed where most of A or of B have it, else between groups.

    Example: replaylab study compare results/before results/after

    Example: replaylab study compare results/before results/after --out before-after
    """

    a: Annotated[Positional[Path], arg(metavar="A")]
    """Folder that `replaylab study run` wrote."""

    b: Annotated[Positional[Path], arg(metavar="B")]
    """The other one."""

    out: Path | None = None
    """Folder for a page, comparison.html, with its table as CSV; None: print the comparison, and write nothing."""

    def __call__(self) -> int:
        """Compare them and return the exit code."""
        from replaylab.study import Study
        from replaylab.study.report.compare import comparison_page, two_studies

        comparison = two_studies.compared(Study.from_folder(self.a), Study.from_folder(self.b))
        for line in comparison_page.lines(comparison):
            print(line)
        if self.out is not None:
            print(f"page: {comparison_page.write(comparison, self.out)}")
        return 0


def tell(study: Study, report: Path) -> None:
    """Print the results in words, and where the report is."""
    from replaylab.study.report import caveats, earlier_reports
    from replaylab.study.report.sections import visits

    rows, curves = study.results(), study.curves()
    before = earlier_reports.warning(study, earlier_reports.seeds_of(curves))
    warnings = filter(None, [before, caveats.diverged(rows, curves)])
    for line in (*study.answers(), *visits.lines(rows, study.spec), *warnings, f"report: {report}"):
        print(line)
