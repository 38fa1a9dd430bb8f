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
    from replaylab.study.execution.reporter import Reporter
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
        print(f"reading the study {self.study}", flush=True)  # the first imports after an installation take long
        from rich.console import Console

        from replaylab.study import Study
        from replaylab.study.execution.progress import reporter_for, showing
        from replaylab.study.live import LivePage

        if self.live and not self.report:
            raise SpecError("study run: --live shows the report; leave out --no-report")
        study = Study.from_toml(self.study, self.out)
        executor = self._executor()
        console_reporter = reporter_for(Console())
        if self.dry_run:
            with showing(console_reporter, "training each cell for a moment"):
                estimate = study.estimate(executor=executor)
            print(estimate)
            return 1 if estimate.failing else 0
        page = LivePage(study.folder, console_reporter) if self.live else nullcontext(console_reporter)
        with page as reporter:
            summary = study.run(executor=executor, reporter=reporter, checkpoint_every=self.checkpoint_every)
            self._summarise(study, summary)
            if self.report and study.present:
                report_and_print(study, reporter)
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
        from rich.console import Console

        from replaylab.study import Study
        from replaylab.study.execution.progress import reporter_for

        study = Study.from_folder(self.folder)
        report_and_print(study, reporter_for(Console()), self.out, figure_files=self.figure_files)
        return 0


def report_and_print(study: Study, reporter: Reporter, out: Path | None = None, *, figure_files: bool = True) -> None:
    """Write the report, then print the results in words, and where the report is."""
    from replaylab.study.execution.progress import showing

    with showing(reporter, "writing the report"):
        from replaylab.study.report import caveats, earlier_reports  # with matplotlib, which takes seconds
        from replaylab.study.report.sections import visits

        report = study.report(out, figure_files=figure_files)
        rows, curves = study.results(), study.curves()
        before = earlier_reports.warning(study, earlier_reports.seeds_of(curves))
        warnings = filter(None, [before, caveats.diverged(rows, curves)])
        lines = [*study.answers(), *visits.lines(rows, study.spec), *warnings]
    print(*lines, f"report: {report}", sep="\n")
