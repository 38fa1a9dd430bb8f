"""The command line: ``replaylab study``, ``train``, ``watch``, ``claims``, ``cluster``.

Exit codes: 0 success; 1 a run failed, the others are stored; 2 invalid input, or results cannot be read or written; 130
interrupted; 143 terminated.
Heavy libraries are imported inside the commands, so that ``--help`` and error messages appear at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

from replaylab import __version__
from replaylab.commands.catalog import StudyList, StudyShow
from replaylab.commands.cluster import ClusterCommand
from replaylab.commands.places import check_place, with_local_paths
from replaylab.commands.studies import StudyCompare, StudyExport, StudyReport, tell
from replaylab.commands.train_command import TrainCommand
from replaylab.errors import ReplayError, SpecError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from replaylab.study import Executor, Study
    from replaylab.study.execution.reporter import Reporter
    from replaylab.study.execution.study_run import RunSummary

try:
    import tyro
    from tyro.conf import OmitSubcommandPrefixes, Positional, arg, subcommand
except ModuleNotFoundError:
    _HAS_LAB = False
else:
    _HAS_LAB = True

_NO_LAB = 'the command line needs the lab extra, which is not installed. Run: pip install "replaylab[lab]"'
_NOBODY_READS = 141
"""The shell's exit code for a program ended by SIGPIPE."""

_STUDY = """Compare replay strategies: run a study, write its report, compare two, list and show the shipped ones.

Example: replaylab study run quick"""


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
    """How many groups of seeds are trained at once, one thread each. Default: one for each core (of the cluster).
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
    """Serve the report while the study runs, at http://127.0.0.1:PORT/ (this machine only). It grows as runs end."""

    port: int = 8765
    """Port for --live; 0: any free port."""

    dry_run: bool = False
    """Train for five seconds only, to estimate time and disk space; print the estimate and the list of runs. The exit
    code is 1 if something cannot be trained."""

    def __call__(self) -> int:
        """Run the study and return the exit code."""
        from rich.console import Console

        from replaylab.study import Study
        from replaylab.study.execution.progress import reporter_for
        from replaylab.study.live import LivePage

        console = Console()
        study = Study.from_toml(self.study, self.out)
        executor = self._executor()
        if self.dry_run:
            estimate = study.estimate(executor=executor)
            print(estimate)
            return 1 if estimate.failing else 0
        with self._live(study, reporter_for(console)) as console_reporter:
            summary = study.run(executor=executor, reporter=console_reporter, checkpoint_every=self.checkpoint_every)
            self._summarise(study, summary)
            if self.report and study.present:
                page = study.report()
                tell(study, page)
                if isinstance(console_reporter, LivePage):
                    console_reporter.finish(page)
        return 0 if summary.complete else 1

    def _live(self, study: Study, console_reporter: Reporter) -> AbstractContextManager[Reporter]:
        """Return the reporter of the run: with --live a page around the console's."""
        from replaylab.study.live import LivePage

        if not self.live:
            return nullcontext(console_reporter)
        if not self.report:
            raise SpecError("study run: --live shows the report; leave out --no-report")
        page = LivePage(study, console_reporter, self.port)
        print(f"live: {page.address}", flush=True)
        return page

    def _summarise(self, study: Study, summary: RunSummary) -> None:
        """Print what was done, and what failed."""
        from replaylab.study.results.durations import duration

        ran, previous = (sum(len(p.seeds) for p in some) for some in (summary.ran, summary.skipped))
        print(f"{ran} runs in {duration(summary.seconds)}, {previous} were there already: {study.folder}", flush=True)
        for damage in summary.damaged:
            print(f"\nDAMAGED {damage.file}: {damage.why}. It is now {damage.moved_to}.", file=sys.stderr)
        for failure in summary.failures:
            print(f"\nFAILED {failure.chunk.label}\n{failure.traceback.rstrip()}", file=sys.stderr)

    def _executor(self) -> Executor:
        from replaylab.commands.executors import chosen_executor

        return chosen_executor(self.executor, self.workers, self.address, self.cores, self.gpus)


@dataclass(frozen=True)
class WatchCommand:
    """Look at a run that was saved: what its agent does, and what its replay holds and replays most.

    Writes a video of a greedy episode and, where observations are pictures (Atari, MinAtar), a sheet of the replay's
    frames: the steps of highest and lowest priority and those replayed most, with age, replay count and TD error. Train
    with --save first; while that continues, what is shown is the last checkpoint.

    Example: replaylab watch runs/mine

    Example: replaylab watch runs/mine --seed 3 --video greedy.mp4

    Example: replaylab watch runs/mine --sheet replay.png --places 12
    """

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """The folder that `replaylab train --save FOLDER` wrote, or still writes."""

    seed: int | None = None
    """Whose agent and replay; None: the run's first seed."""

    sheet: Path | None = None
    """Write the sheet to this PNG or SVG file, and the video only if --video is given, too; None: without --video to
    FOLDER/replay-SEED.png."""

    video: Path | None = None
    """Write the video to this file (mp4, or GIF without PyAV; .gif and .webp as they say), and the sheet only if
    --sheet is given, too; None: without --sheet to FOLDER/greedy-SEED.mp4."""

    places: int = 6
    """Steps in each row of the sheet."""

    max_steps: int = 3_000
    """Where the episode is cut."""

    def __call__(self) -> int:
        """Write what can be shown and return the exit code."""
        from replaylab.commands.watch import SavedRun, watch

        for name in ("places", "max_steps"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise SpecError(f"watch: --{option} must be at least 1, but got {getattr(self, name)}")
        saved = SavedRun(self.folder, self.seed)
        for option in ("sheet", "video"):
            check_place("watch", option, getattr(self, option), is_file=True)
        for line in watch(saved, self.sheet, self.video, self.places, self.max_steps):
            print(line)
        return 0


@dataclass(frozen=True)
class ClaimsCommand:
    """Test published statements about experience replay: claim, source, our figure with its interval, verdict.

    Example: replaylab claims 1 6 --json claims.json

    Example: replaylab claims --all
    """

    numbers: Annotated[Positional[tuple[int, ...]], arg(metavar="NUMBER ...")] = ()
    """Which claims; none: all of them, which takes long."""

    all: bool = False
    """Measure every claim again with this code, and end with a table. What is measured stays in results/claims/CODE, so
    that the same command continues where it was stopped, and measures again where the code has changed."""

    json: Path | None = None
    """Write all that is printed to this file as well, as JSON."""

    def __call__(self) -> int:
        """Run the claims and return the exit code, which does not depend on the verdicts."""
        from functools import partial

        from replaylab.claims import chosen, reporting

        if self.all and self.numbers:
            raise SpecError("claims: --all measures every claim; leave the numbers out")
        claims = chosen(self.numbers)
        check_place("claims", "json", self.json, is_file=True)
        say = partial(print, flush=True)
        results = reporting.rerun(claims, say, Path("results", "claims")) if self.all else reporting.run(claims, say)
        if self.json is not None:
            self.json.write_text(reporting.dump(results), encoding="utf-8")
        return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``arguments`` are those of the process by default."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--version"]:
        print(f"replaylab {__version__}")
        return 0
    if not _HAS_LAB:
        print(f"replaylab: {_NO_LAB}", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # letters that the terminal cannot show are escaped, and raise nothing
            stream.reconfigure(errors="backslashreplace")
    if str(Path.cwd()) not in sys.path:  # for custom samplers and environments; installed programs do not look here
        sys.path.append(str(Path.cwd()))
    try:
        try:
            return _run(_parsed(words))
        finally:  # what waits in the buffer may have no reader, also after `--help`, which exits
            sys.stdout.flush()
    except BrokenPipeError:
        return _nobody_reads()


def _parsed(words: Sequence[str]) -> Callable[[], int]:
    """Return the command of the arguments; `--help` and invalid arguments exit the process."""
    study = (
        Annotated[StudyRun, subcommand("run")]
        | Annotated[StudyReport, subcommand("report")]
        | Annotated[StudyCompare, subcommand("compare")]
        | Annotated[StudyExport, subcommand("export")]
        | Annotated[StudyList, subcommand("list")]
        | Annotated[StudyShow, subcommand("show")]
    )
    command: Callable[[], int] = tyro.cli(
        Annotated[study, subcommand("study", description=_STUDY)]
        | Annotated[TrainCommand, subcommand("train")]
        | Annotated[WatchCommand, subcommand("watch")]
        | Annotated[ClaimsCommand, subcommand("claims")]
        | Annotated[ClusterCommand, subcommand("cluster")],
        prog="replaylab",
        description="The laboratory of experience replay: which replay strategy should you use?\n\n"
        "Example: replaylab study run quick\n\n"
        "replaylab --version prints the version.",
        args=list(words),
        config=(OmitSubcommandPrefixes,),
    )
    return command


def _run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; known errors are printed as a sentence, other exceptions are raised."""
    sigterm = _Sigterm()
    try:
        with sigterm:
            return with_local_paths(command)()
    except BrokenPipeError:
        raise  # `main` handles it
    except (ReplayError, OSError, MemoryError) as error:
        print(f"replaylab: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        continues = isinstance(command, StudyRun) or (isinstance(command, ClaimsCommand) and command.all)
        goes_on = "; the same command continues, from what was finished and the last checkpoints" if continues else ""
        if isinstance(command, TrainCommand) and (command.resume or command.save):
            goes_on = f"; replaylab train --resume {command.resume or command.save} continues from the last checkpoint"
        print(f"replaylab: {'terminated' if sigterm.received else 'interrupted'}{goes_on}.", file=sys.stderr)
        return 143 if sigterm.received else 130


class _Sigterm:
    """Context manager in which SIGTERM ends a command as Ctrl-C does.

    Attributes:
        received: Whether a SIGTERM was received.
    """

    def __init__(self) -> None:
        self.received, self._process = False, os.getpid()
        self._before: Any = None

    def __enter__(self) -> _Sigterm:
        if current_thread() is main_thread():
            self._before = signal.signal(signal.SIGTERM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _interrupt(self, *_: object) -> None:
        if os.getpid() != self._process:  # a fork, such as a subprocess of a vector environment
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self.received = True
        raise KeyboardInterrupt


def _nobody_reads() -> int:
    """Discard the output that is not yet flushed, as its reader has closed the pipe, and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _NOBODY_READS


def _sentence(error: Exception) -> str:
    if isinstance(error, ReplayError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}the system reports: {error.strerror or error}."
    return f"this machine has too little memory for this{f' ({error})' if str(error) else ''}."
