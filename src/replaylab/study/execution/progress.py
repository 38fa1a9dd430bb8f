"""Reporters of progress: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from replaylab.number_format import duration
from replaylab.study.execution.interrupts import delayed_interrupts
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.plan import Chunk, runs_of

_COUNTED = {"steps": "environment steps", "episodes": "episodes"}
_SPLIT = "{} raised; now each seed is trained alone"
_LINE_SECONDS = 15.0
"""Plain lines: at most one line of progress in this time, besides one for each finished chunk."""


def steps_of(chunks: Sequence[Chunk]) -> int:
    """Return the environment steps, or episodes, of all runs of these chunks."""
    return sum(p.steps * len(p.seeds) for p in chunks)


def unit_of(chunks: Sequence[Chunk]) -> str:
    """Return what the budgets of a study's chunks count, which is the same for all."""
    return chunks[0].unit if chunks else "steps"


def reporter_for(console: Console) -> Reporter:
    """Return the live display where the console is a terminal, plain lines elsewhere."""
    return LiveReporter(console) if console.is_terminal else PlainReporter(console)


def reporter_in_python(show: bool | None) -> Reporter:
    """Return what shows a run that Python code started; None: plain lines in notebooks, nothing elsewhere."""
    console = Console()
    if console.is_jupyter:
        console = Console(force_jupyter=False)
    elif show is None:
        show = False
    return PlainReporter(Console(quiet=True)) if show is False else reporter_for(console)


class Tally:
    """Counts runs and steps, and from them speed and time left."""

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk]) -> None:
        """Start the clock."""
        self.total_runs = runs_of(todo) + runs_of(done)
        self.runs = runs_of(done)
        self.todo_steps, self.unit = steps_of(todo), unit_of(todo)
        self._steps = {p.id: 0 for p in todo}
        self._resumed: dict[str, int] = {}  # steps that a chunk had when it was first heard of
        self._began = time.monotonic()

    def reached(self, chunk: Chunk, step: int) -> None:
        """Count a chunk's steps so far."""
        if step < chunk.steps:
            self._resumed.setdefault(chunk.id, step * len(chunk.seeds))
        self._steps[chunk.id] = step * len(chunk.seeds)

    def finished(self, chunk: Chunk) -> None:
        """Count a chunk's runs as done."""
        self.reached(chunk, chunk.steps)
        self.runs += len(chunk.seeds)

    def split(self, chunk: Chunk) -> None:
        """Count a chunk from its beginning."""
        self._steps[chunk.id] = 0

    def dropped(self, chunk: Chunk) -> None:
        """Do not count a chunk any more."""
        self.todo_steps -= chunk.steps * len(chunk.seeds)
        self._steps[chunk.id] = 0

    @property
    def steps(self) -> int:
        """Steps taken, of those that are to do."""
        return sum(self._steps.values())

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    @property
    def speed(self) -> float:
        """Steps a second of this run of the study: those of an earlier one, kept in a checkpoint, do not count."""
        taken = sum(max(steps - self._resumed.get(name, 0), 0) for name, steps in self._steps.items())
        return taken / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds to go; None before the first step."""
        return (self.todo_steps - self.steps) / self.speed if self.speed else None


class PlainReporter:
    """One line for the start, one for each finished chunk, and one now and then in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally()
        self._last_line = 0.0

    def note(self, line: str) -> None:
        """Print the line."""
        self._say(line)

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Print how much there is to do."""
        self._tally.begin(todo, done)
        self._last_line = time.monotonic()
        self._say(_opening(todo, done, workers))

    def progress(self, chunk: Chunk, step: int) -> None:
        """Print the progress of all runs, now and then."""
        self._tally.reached(chunk, step)
        if time.monotonic() - self._last_line >= _LINE_SECONDS:
            self._say(f"{self._tally.steps / self._tally.todo_steps:4.0%}  {_standing(self._tally)}")

    def finished(self, chunk: Chunk, seconds: float) -> None:
        """Print that a chunk has finished."""
        self._tally.finished(chunk)
        self._say(f"finished {chunk.label} in {seconds:.1f} s; {_standing(self._tally)}")

    def diverged(self, chunk: Chunk, seeds: Sequence[int]) -> None:
        """Print which seeds diverged."""
        self._say(_diverged(chunk, seeds))

    def split(self, chunk: Chunk) -> None:
        """Print that a chunk raised."""
        self._tally.split(chunk)
        self._say(_SPLIT.format(chunk.label))

    def failed(self, failure: Failure) -> None:
        """Print that a chunk failed; the traceback follows at the end of the run."""
        self._tally.dropped(failure.chunk)
        self._say(f"FAILED {failure.chunk.label}: {failure.reason}")

    def end(self) -> None:
        """Nothing is left open."""

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveReporter:
    """A bar for the study and one for each chunk in work."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally()
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:3.0f} %"),
            _StandingColumn(self._tally),
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
        )

    def note(self, line: str) -> None:
        """Print the line, above the bars if there are any."""
        self._console.print(line, markup=False, highlight=False)

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Open the display."""
        self._tally.begin(todo, done)
        self._console.print(_opening(todo, done, workers), markup=False, highlight=False)
        with delayed_interrupts():  # Rich hides the cursor, and restores it only if it has started completely
            self._progress.start()
        self._all_runs = self._progress.add_task("all runs", total=self._tally.todo_steps, whole=True)

    def progress(self, chunk: Chunk, step: int) -> None:
        """Move the chunk's bar and the study's."""
        if chunk.id not in self._bars:
            self._bars[chunk.id] = self._progress.add_task(chunk.label, total=chunk.steps)
        self._progress.update(self._bars[chunk.id], completed=step)
        self._tally.reached(chunk, step)
        self._progress.update(self._all_runs, completed=self._tally.steps, total=self._tally.todo_steps)

    def finished(self, chunk: Chunk, seconds: float) -> None:  # noqa: ARG002
        """Take the chunk's bar away."""
        self.progress(chunk, chunk.steps)
        self._tally.finished(chunk)
        self._drop(chunk)

    def diverged(self, chunk: Chunk, seeds: Sequence[int]) -> None:
        """Put a line above the bars."""
        self._console.print(_diverged(chunk, seeds), markup=False, style="red")

    def split(self, chunk: Chunk) -> None:
        """Put a line above the bars."""
        self._drop(chunk)
        self._tally.split(chunk)
        self._console.print(_SPLIT.format(chunk.label), markup=False, style="red")

    def failed(self, failure: Failure) -> None:
        """Put a line above the bars; the traceback follows at the end of the run."""
        self._drop(failure.chunk)
        self._tally.dropped(failure.chunk)
        self._console.print(f"FAILED {failure.chunk.label}: {failure.reason}", markup=False, style="red")

    def end(self) -> None:
        """Close the display and leave one line."""
        with delayed_interrupts():
            self._progress.stop()

    def _drop(self, chunk: Chunk) -> None:
        if chunk.id in self._bars:
            self._progress.remove_task(self._bars.pop(chunk.id))


class _StandingColumn(ProgressColumn):
    """Runs done and steps per second, beside the bar of the whole study."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def render(self, task: Task) -> Text:
        if not task.fields.get("whole"):
            return Text("")
        return Text(f"{self._tally.runs}/{self._tally.total_runs} runs, {self._tally.speed:,.0f} {self._tally.unit}/s")


def _opening(todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> str:
    before = f"{runs_of(done)} runs are there already; " if done else ""
    processes = "1 worker" if workers == 1 else f"{workers} workers"
    return f"{before}{runs_of(todo)} runs to do, {steps_of(todo):,} {_COUNTED[unit_of(todo)]}, {processes}."


def _diverged(chunk: Chunk, seeds: Sequence[int]) -> str:
    return f"DIVERGED {chunk.label}: {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _standing(tally: Tally) -> str:
    """Return in a line how many runs are done, the speed, and the time left."""
    left = "" if tally.left is None or tally.left < 1 else f", {duration(tally.left)} left"
    return f"{tally.runs}/{tally.total_runs} runs, {tally.speed:,.0f} {tally.unit}/s{left}"
