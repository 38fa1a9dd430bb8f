"""The command line: ``replaylab study run|report|compare|export|list``, ``replaylab train``, ``watch`` and ``claims``.

Exit codes: 0 all went well; 1 a run failed, the rest is there; 2 the input is wrong, or the results can be neither
read nor written; 130 interrupted.
Heavy libraries are imported inside the commands, so that ``--help`` and mistakes answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from io import TextIOWrapper
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Literal

from replaylab.commands.studies import StudyCompare, StudyExport, StudyList, StudyReport, tell
from replaylab.errors import ReplayError, SpecError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from replaylab.study import Executor, Study
    from replaylab.study.execution.reporter import Reporter
    from replaylab.study.execution.study_run import RunSummary
    from replaylab.study.plan.populations import Population

try:
    import tyro
    from tyro.conf import OmitSubcommandPrefixes, Positional, arg, subcommand
except ModuleNotFoundError:
    _HAS_LAB = False
else:
    _HAS_LAB = True

_NO_LAB = 'the command line needs the lab extra, which is not installed. Run: pip install "replaylab[lab]"'
_NOBODY_READS = 141
"""The exit code that a shell gives to a program that SIGPIPE ended."""

_STUDY = """Compare replay strategies: run a study, write its report, compare two, list the shipped ones.

Example: replaylab study run quick"""


@dataclass(frozen=True)
class StudyRun:
    """Run what is missing of a study, then write its report.

    It can be stopped or killed at any moment: the same command continues where it stopped.

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
    """Folder for the results; None: results/NAME."""

    executor: Literal["local", "in-process", "ray"] = "local"
    """Where populations are trained: local: worker processes on this machine; in-process: this process, one after the
    other, so that a debugger stops in your own code; ray: a cluster. Changes the time, not the numbers."""

    workers: int | None = None
    """Populations at once, one thread each, of the executors local and ray; None: one for each core (of the cluster).
    Changes the time, not the numbers."""

    address: str | None = None
    """Of --executor ray: HOST:PORT of the cluster, or auto for the one on this machine; None: a Ray of its own here."""

    cores: float | None = None
    """Of --executor ray: cores that a population reserves; None: 1."""

    gpus: float | None = None
    """Of --executor ray: GPUs that a population reserves, 0.5 for two on one; None: none."""

    checkpoint_every: float | None = 300.0
    """Seconds between two checkpoints of a population in training, from which a killed one goes on; None: none are
    kept. Changes no number."""

    report: bool = True
    """Write the report at the end."""

    live: bool = False
    """Show the report in your browser while the study runs, at http://127.0.0.1:PORT/, which only this machine
    reaches; it fills up as runs end."""

    port: int = 8765
    """Where --live listens; 0: any port that is free."""

    dry_run: bool = False
    """Run nothing: print the grid, the steps, the time to expect from training for five seconds, and the disk. The exit
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
        with self._live(study, reporter_for(console)) as told:
            summary = study.run(executor=executor, reporter=told, checkpoint_every=self.checkpoint_every)
            self._summarise(study, summary)
            if self.report and study.present:
                page = study.report()
                tell(study, page)
                if isinstance(told, LivePage):
                    told.finish(page)
        return 0 if summary.complete else 1

    def _live(self, study: Study, told: Reporter) -> AbstractContextManager[Reporter]:
        """Return what hears of the run: with --live a page, too."""
        from replaylab.study.live import LivePage

        if not self.live:
            return nullcontext(told)
        if not self.report:
            raise SpecError("study run: --live shows the report; leave out --no-report")
        page = LivePage(study, told, self.port)
        print(f"live: {page.address}", flush=True)
        return page

    def _summarise(self, study: Study, summary: RunSummary) -> None:
        """Print what was done, and what failed."""
        from replaylab.study.results.durations import duration

        ran, kept = (sum(len(p.seeds) for p in some) for some in (summary.ran, summary.kept))
        print(f"{ran} runs in {duration(summary.seconds)}, {kept} were there already: {study.folder}", flush=True)
        for one in summary.damaged:
            print(f"\nDAMAGED {one.file}: {one.why}. It is now {one.moved_to}.", file=sys.stderr)
        for failure in summary.failures:
            print(f"\nFAILED {failure.population.label}\n{failure.traceback.rstrip()}", file=sys.stderr)

    def _executor(self) -> Executor:
        from replaylab.commands.executors import chosen_executor

        return chosen_executor(self.executor, self.workers, self.address, self.cores, self.gpus)


@dataclass(frozen=True)
class TrainCommand:
    """Train one learner on one environment with one replay strategy, over many seeds at once.

    Example: replaylab train --env CartPole-v1 --strategy prioritized --seeds 10 --steps 50000

    Example: replaylab train --strategy prioritized --strategy-options alpha=0.7 beta=0.5 --out run.parquet

    Example: replaylab train --env Taxi-v4 --learner q_learning --learner-options batch_size=32 --episodes 500

    Example: replaylab train --env ALE/Pong-v5 --seeds 1 --transforms frame_stack:stacked_input=true --video pong.mp4

    Example: replaylab train --save runs/mine, and after a break: replaylab train --resume runs/mine
    """

    env: str = "CartPole-v1"
    """Gymnasium environment id."""

    strategy: str = "uniform"
    """Replay strategy: none, uniform, prioritized, rank_based, combined, recency, any other a study takes, or your own
    as module:Class."""

    strategy_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Options of the strategy, values as in TOML: alpha=0.7."""

    learner: str = "dqn"
    """Learner: dqn, dqn_as_published, q_learning, sarsa, expected_sarsa."""

    learner_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Settings of the learner, values as in TOML: gamma=0.9 hidden=[64,64]."""

    transforms: Annotated[tuple[str, ...], arg(metavar="TYPE[:KEY=VALUE,...] ...")] = ()
    """What a drawn step becomes: n_step:steps=3, hindsight:ratio=4, frame_stack."""

    env_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Options of the environment, values as in TOML: n=10."""

    seeds: int = 10
    """How many seeds; all are trained together."""

    first_seed: int = 0
    """Number of the first seed."""

    steps: int = 50_000
    """Environment steps of each seed."""

    episodes: int | None = None
    """Episodes of each seed, as the budget in place of steps; eval-every and save-every count episodes then."""

    eval_every: int | None = None
    """Environment steps between greedy evaluations; None: a twentieth of the budget."""

    eval_episodes: int = 10
    """Episodes of one evaluation."""

    held_out: int = 0
    """States, seen by a random policy beforehand, whose mean of max Q each evaluation records."""

    out: Path | None = None
    """Write every metric to this Parquet file, in the columns of a study's results."""

    save: Path | None = None
    """Folder for checkpoints, and at the end for what each agent has learned."""

    save_every: int | None = None
    """Environment steps between checkpoints; None: a tenth of the budget, or none at all where the environment cannot
    continue from one (Atari, EnvPool): then only what each agent has learned is saved."""

    resume: Path | None = None
    """Continue from the checkpoint in this folder, and save there; everything else is as it was when the run began."""

    tensorboard: Path | None = None
    """Write event files for TensorBoard to this folder."""

    video: Path | None = None
    """Write a greedy episode of the first seed, once it is trained, as a video: mp4, or GIF without PyAV."""

    def __call__(self) -> int:
        """Train and return the exit code."""
        from rich.console import Console

        from replaylab.commands.train import described_population, saved_population, train_and_report
        from replaylab.study.execution.worker.preflight import check_population

        self._check_saving()
        folder = self.resume or self.save
        population = saved_population(self.resume) if self.resume else self._population(described_population)
        for option in ("out", "video", "tensorboard", "save"):
            _check_place("train", option, getattr(self, option), is_file=option in ("out", "video"))
        check_population(population)
        try:
            train_and_report(
                population,
                Console(),
                self.out,
                save=folder,
                save_every=self._saves_every(population) if folder else None,
                resume=self.resume is not None,
                tensorboard=self.tensorboard,
                video=self.video,
            )
        except ReplayError:
            raise
        except (Exception, SystemExit):  # the environment's or the user's own code, so with its traceback
            print(f"FAILED {population.label}\n{traceback.format_exc().rstrip()}", file=sys.stderr)
            return 1
        return 0

    def _check_saving(self) -> None:
        """Raise SpecError for options of saving that would change nothing."""
        if self.save_every is not None and not (self.save or self.resume):
            raise SpecError("train: --save-every needs a folder; give --save, or leave it out")
        if self.save_every is not None and self.save_every < 1:
            raise SpecError(f"train: --save-every must be at least 1, but got {self.save_every}")
        free = ("resume", "save_every", "out", "tensorboard", "video")
        given = [one.name for one in fields(self) if one.name not in free and getattr(self, one.name) != one.default]
        if self.resume and given:
            option = f"--{given[0].replace('_', '-')}"
            raise SpecError(f"train: {option} must be left out with --resume: the run goes on as it began")

    def _saves_every(self, population: Population) -> int | None:
        from replaylab.commands.train import default_save_period

        return default_save_period(population) if self.save_every is None else self.save_every

    def _population(self, described: Callable[..., Population]) -> Population:
        budget = self.steps if self.episodes is None else self.episodes
        return described(
            environment=self.env,
            strategy=self.strategy,
            strategy_options=self.strategy_options,
            learner=self.learner,
            learner_options=self.learner_options,
            seeds=range(self.first_seed, self.first_seed + self.seeds),
            steps=self.steps,
            episodes=self.episodes,
            transforms=self.transforms,
            env_options=self.env_options,
            eval_every=max(1, budget // 20) if self.eval_every is None else self.eval_every,
            eval_episodes=self.eval_episodes,
            held_out=self.held_out,
        )


@dataclass(frozen=True)
class WatchCommand:
    """Look at a run that was saved: what its agent does, and what its replay holds and replays most.

    Writes a video of a greedy episode and, where observations are pictures (Atari, MinAtar), a sheet of the replay's
    frames: the steps of highest and lowest priority and those replayed most, with age, replay count and TD error. Train
    with --save first; while that goes on, what is shown is the last checkpoint.

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
            _check_place("watch", option, getattr(self, option), is_file=True)
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
    """Measure every claim anew with this code, and end with a table. What is measured stays in results/claims/CODE, so
    that the same command goes on where it was stopped, and measures anew where the code has changed."""

    json: Path | None = None
    """Write all that is printed to this file as well, as JSON."""

    def __call__(self) -> int:
        """Run the claims and return the exit code, 0 whatever the verdicts are."""
        from functools import partial

        from replaylab.claims import chosen, reporting

        if self.all and self.numbers:
            raise SpecError("claims: --all measures every claim; leave the numbers out")
        claims = chosen(self.numbers)
        _check_place("claims", "json", self.json, is_file=True)
        say = partial(print, flush=True)
        results = reporting.rerun(claims, say, Path("results", "claims")) if self.all else reporting.run(claims, say)
        if self.json is not None:
            self.json.write_text(reporting.dump(results), encoding="utf-8")
        return 0


def _check_place(command: str, option: str, path: Path | None, *, is_file: bool) -> None:
    """Raise SpecError if nothing can be written there, by writing something; folders are made."""
    if path is None:
        return
    folder = path.parent if is_file else path
    if is_file and path.is_dir():
        raise SpecError(f"{command}: --{option} must be a file, but {path} is a folder; name a file in it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
        if path.is_file():
            path.open("ab").close()
    except (OSError, ValueError) as error:
        raise SpecError(f"{command}: --{option} {path} cannot be written: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``arguments`` are those of the process by default."""
    if not _HAS_LAB:
        print(f"replaylab: {_NO_LAB}", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without some letter shows another, rather than a traceback
            stream.reconfigure(errors="backslashreplace")
    if str(Path.cwd()) not in sys.path:  # your own samplers and environments; an installed program does not look here
        sys.path.append(str(Path.cwd()))
    study = (
        Annotated[StudyRun, subcommand("run")]
        | Annotated[StudyReport, subcommand("report")]
        | Annotated[StudyCompare, subcommand("compare")]
        | Annotated[StudyExport, subcommand("export")]
        | Annotated[StudyList, subcommand("list")]
    )
    command = tyro.cli(
        Annotated[study, subcommand("study", description=_STUDY)]
        | Annotated[TrainCommand, subcommand("train")]
        | Annotated[WatchCommand, subcommand("watch")]
        | Annotated[ClaimsCommand, subcommand("claims")],
        prog="replaylab",
        description="The laboratory of experience replay: which replay strategy should you use?\n\n"
        "Example: replaylab study run quick",
        args=arguments,
        config=(OmitSubcommandPrefixes,),
    )
    return _run(command)


def _run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; a known failure is a sentence, anything else a bug with its traceback."""
    try:
        return command()
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS
    except (ReplayError, OSError, MemoryError) as error:
        print(f"replaylab: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        continues = isinstance(command, StudyRun) or (isinstance(command, ClaimsCommand) and command.all)
        goes_on = "; the same command continues from here" if continues else ""
        if isinstance(command, TrainCommand) and (command.resume or command.save):
            goes_on = f"; replaylab train --resume {command.resume or command.save} continues from the last checkpoint"
        print(f"replaylab: interrupted{goes_on}.", file=sys.stderr)
        return 130


def _sentence(error: Exception) -> str:
    if isinstance(error, ReplayError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}the system reports: {error.strerror or error}."
    return f"this machine has too little memory for this{f' ({error})' if str(error) else ''}."
