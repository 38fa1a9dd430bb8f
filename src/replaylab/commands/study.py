"""``replaylab study run`` and ``study report``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from replaylab.errors import SpecError

if TYPE_CHECKING:
    from replaylab.study import Executor, Study
    from replaylab.study.execution.study_run import RunSummary


with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class StudyRun:
    """Run a study, then write its report. Only missing runs are trained.

    You can stop or kill it at any moment: the same command continues where it stopped.

    Example: replaylab study run quick

    Example: replaylab study run my_study.toml --out results/mine --workers 4

    Example: replaylab study run classic-control --dry-run

    Example: replaylab study run classic-control --live

    Example: replaylab study run classic-control --executor ray --address head:6379

    Example: python -m pdb -m replaylab study run my_study.toml --executor in-process
    """

    study: Annotated[Positional[str], arg(metavar="STUDY")]
    """A shipped study's name (see `replaylab study list`), or the path of a TOML file."""

    out: Path | None = None
    """Folder for the results. Default: results/NAME."""

    executor: Literal["local", "in-process", "ray"] = "local"
    """Where runs are trained. local: worker processes on this machine. in-process: this process, so that a debugger
    stops in your own code. ray: a cluster. Changes the time, not the numbers."""

    workers: int | None = None
    """Number of groups of seeds that are trained at once, one thread each. Default: one for each core (of the cluster).
    Changes the time, not the numbers."""

    address: str | None = None
    """With --executor ray: HOST:PORT of the cluster, or auto for the one on this machine. Default: start Ray here."""

    cores: float | None = None
    """With --executor ray: cores for each group of seeds. Default: 1."""

    gpus: float | None = None
    """With --executor ray: GPUs for each group of seeds; 0.5 puts two groups on one GPU. Default: no GPU."""

    checkpoint_every: float | None = 300.0
    """Seconds between two checkpoints, from which a killed study continues; None: write no checkpoints. Changes no
    number."""

    report: bool = True
    """Write the report at the end."""

    live: bool = False
    """Write the report every 30 seconds while the study runs, and open it in the browser, where it reloads itself."""

    dry_run: bool = False
    """Train for five seconds only, to estimate time and disk space; print the estimate and the list of runs. The exit
    code is 1 if something cannot be trained."""

    def __call__(self) -> int:
        """Run the study and return the exit code."""
        from rich.console import Console

        from replaylab.study import Study
        from replaylab.study.execution.progress import reporter_for
        from replaylab.study.live import LivePage

        if self.live and not self.report:
            raise SpecError("study run: --live shows the report; leave out --no-report")
        study = Study.from_toml(self.study, self.out)
        executor = self._executor()
        if self.dry_run:
            estimate = study.estimate(executor=executor)
            print(estimate)
            return 1 if estimate.failing else 0
        reporter = reporter_for(Console())
        with LivePage(study.folder, reporter) if self.live else nullcontext(reporter) as reporter:
            summary = study.run(executor=executor, reporter=reporter, checkpoint_every=self.checkpoint_every)
            self._summarise(study, summary)
            if self.report and study.present:
                reporter.note("writing the report")
                print_results(study, study.report())
        return 0 if summary.complete else 1

    def _summarise(self, study: Study, summary: RunSummary) -> None:
        """Print what was done, and what failed."""
        from replaylab.number_format import duration

        ran, previous = (sum(len(p.seeds) for p in some) for some in (summary.ran, summary.skipped))
        print(f"{ran} runs in {duration(summary.seconds)}, {previous} were there already: {study.folder}", flush=True)
        for damage in summary.damaged:
            print(f"\nDAMAGED {damage.file}: {damage.why}. It is now {damage.moved_to}.", file=sys.stderr)
        for failure in summary.failures:
            print(f"\nFAILED {failure.chunk.label}\n{failure.traceback.rstrip()}", file=sys.stderr)

    def _executor(self) -> Executor:
        from replaylab.study import InProcess, LocalProcesses

        name = self.executor
        if name == "ray":
            from replaylab.distributed.studies import RayExecutor

            cores = 1.0 if self.cores is None else self.cores
            return RayExecutor(self.address, workers=self.workers, cores=cores, gpus=self.gpus or 0.0)
        for option in ("address", "cores", "gpus"):
            if getattr(self, option) is not None:
                raise SpecError(f"study run: --{option} needs --executor ray, but got --executor {name}; leave it out")
        if name == "local":
            return LocalProcesses(self.workers)
        if self.workers is not None:
            raise SpecError(
                f"study run: --workers needs --executor local or ray, but got --executor {name}; leave it out"
            )
        return InProcess()


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
        print_results(study, study.report(self.out, figure_files=self.figure_files))
        return 0


def print_results(study: Study, report: Path) -> None:
    """Print the results in words, and where the report is."""
    from replaylab.study.report import caveats, earlier_reports
    from replaylab.study.report.sections import visits

    rows, curves = study.results(), study.curves()
    before = earlier_reports.warning(study, earlier_reports.seeds_of(curves))
    warnings = filter(None, [before, caveats.diverged(rows, curves)])
    for line in (*study.answers(), *visits.lines(rows, study.spec), *warnings, f"report: {report}"):
        print(line)


with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg
