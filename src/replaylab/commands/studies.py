"""The command that writes the report of a results folder again."""

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


def tell(study: Study, report: Path) -> None:
    """Print the results in words, and where the report is."""
    from replaylab.study.report import caveats, earlier_reports
    from replaylab.study.report.sections import visits

    rows, curves = study.results(), study.curves()
    before = earlier_reports.warning(study, earlier_reports.seeds_of(curves))
    warnings = filter(None, [before, caveats.diverged(rows, curves)])
    for line in (*study.answers(), *visits.lines(rows, study.spec), *warnings, f"report: {report}"):
        print(line)
