"""Reporters of progress: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from replaylab.number_format import counted, duration
from replaylab.study.execution.interrupts import delayed_interrupts
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.plan import Chunk, runs_of

_COUNTED = {"steps": "environment steps", "episodes": "episodes"}
_SILENT_SECONDS = 4.0
"""Plain lines: one is printed when none has been for this time, so that a busy machine is never silent for five."""


def steps_of(chunks: Sequence[Chunk]) -> int:
    """Return the environment steps, or episodes, of all runs of these chunks."""
    return sum(p.steps * len(p.seeds) for p in chunks)


def unit_of(chunks: Sequence[Chunk]) -> str:
    """Return what the budgets of a study's chunks count, which is the same for all."""
    return chunks[0].unit if chunks else "steps"


def reporter_for(console: Console) -> PlainReporter:
    """Return the live display where the console is a terminal, plain lines elsewhere."""
    return LiveReporter(console) if console.is_terminal else PlainReporter(console)


def reporter_in_python(show: bool | None) -> PlainReporter:
    """Return what shows a run that Python code started; None: plain lines in notebooks, nothing elsewhere."""
    console = Console()
    if console.is_jupyter:
        console = Console(force_jupyter=False)
    elif show is None:
        show = False
    return PlainReporter(Console(quiet=True)) if show is False else reporter_for(console)


@contextmanager
def showing(reporter: Reporter, activity: str) -> Iterator[None]:
    """Show that something lasts, until the block ends."""
    reporter.activity(activity)
    try:
        yield
    finally:
        reporter.end()


class Tally:
    """Counts runs and steps, and from them speed and time left."""

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk]) -> None:
        """Start the clock."""
        self.total_runs = runs_of(todo) + runs_of(done)
        self.runs, self.failed_runs = runs_of(done), 0
        self.unit = unit_of(todo)
        self._steps_before = steps_of(done)
        self._total_steps = steps_of(todo) + self._steps_before
        self._steps = {p.id: 0 for p in todo}
        self._resumed: dict[str, int] = {}  # steps that a chunk had when it was first heard of
        self._in_training: dict[str, int] = {}  # runs by chunk
        self._share = 0.0
        self._began = time.monotonic()

    def reached(self, chunk: Chunk, step: int) -> None:
        """Count a chunk's steps so far."""
        if step < chunk.steps:
            self._resumed.setdefault(chunk.id, step * len(chunk.seeds))
        self._steps[chunk.id] = step * len(chunk.seeds)
        self._in_training[chunk.id] = len(chunk.seeds)

    def finished(self, chunk: Chunk) -> None:
        """Count a chunk's runs as done."""
        self.reached(chunk, chunk.steps)
        self._in_training.pop(chunk.id)
        self.runs += len(chunk.seeds)

    def split(self, chunk: Chunk) -> None:
        """Count a chunk from its beginning."""
        self._steps[chunk.id] = 0
        self._in_training.pop(chunk.id, None)

    def failed(self, chunk: Chunk) -> None:
        """Count a chunk's runs as failed, and its steps not at all."""
        self.split(chunk)
        self.failed_runs += len(chunk.seeds)
        self._total_steps -= chunk.steps * len(chunk.seeds)

    @property
    def steps(self) -> int:
        """Steps of all runs of the study so far."""
        return self._steps_before + sum(self._steps.values())

    @property
    def share(self) -> float:
        """Share of all steps that has been taken. It never falls, although a chunk that raised begins again."""
        self._share = max(self._share, self.steps / self._total_steps if self._total_steps else 1.0)
        return self._share

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    @property
    def speed(self) -> float:
        """Steps a second of this run of the study: those of an earlier one, kept in a checkpoint, do not count."""
        taken = sum(max(steps - self._resumed.get(name, 0), 0) for name, steps in list(self._steps.items()))
        return taken / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        """The runs that are done, in training and failed, the speed, and the time left."""
        parts = [f"{self.runs:,} of {counted(self.total_runs, 'run')} done"]
        parts += [f"{self.failed_runs:,} failed"] if self.failed_runs else []
        parts += [f"{sum(self._in_training.values()):,} in training"] if self._in_training else []
        speed = self.speed
        parts += [f"{speed:,.0f} {self.unit}/s"]
        left = (self._total_steps - self.steps) / speed if speed else 0.0
        parts += [f"{duration(left)} left"] if left >= 1 else []
        return ", ".join(parts)


class PlainReporter:
    """Lines: one for the start, one for each finished chunk, and one after every four seconds without any."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally()
        self._activity: tuple[str, float] | None = None  # what lasts, besides training, and since when
        self._last_line = 0.0
        self._ended = Event()
        self._pulse: Thread | None = None
        self._is_unread = False

    def note(self, line: str) -> None:
        """Print the line."""
        self._say(line)

    def activity(self, line: str) -> None:
        """Print the first line of an activity at once, later ones after four seconds without a line."""
        if self._activity is None:
            self._say(line)
            self._activity = line, time.monotonic()
        else:
            self._activity = line, self._activity[1]
        self._open()

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Print how much there is to do."""
        self._tally.begin(todo, done)
        self._say(_opening(todo, done, workers))
        self._activity = None
        self._open()

    def progress(self, chunk: Chunk, step: int) -> None:
        """Count the chunk's steps."""
        self._check_read()
        self._tally.reached(chunk, step)

    def finished(self, chunk: Chunk, seconds: float) -> None:
        """Print that a chunk has finished."""
        self._tally.finished(chunk)
        self._say(f"finished {chunk.label} in {seconds:.1f} s; {self._tally}")

    def diverged(self, chunk: Chunk, seeds: Sequence[int]) -> None:
        """Print which seeds diverged."""
        self._say(f"DIVERGED {chunk.label}: {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")

    def split(self, chunk: Chunk) -> None:
        """Print that a chunk raised."""
        self._tally.split(chunk)
        self._say(f"{chunk.label} raised; now each seed is trained alone")

    def failed(self, failure: Failure) -> None:
        """Print that a chunk failed; the traceback follows at the end of the run."""
        self._tally.failed(failure.chunk)
        self._say(f"FAILED {failure.chunk.label}: {failure.reason}")

    def end(self) -> None:
        """Print no more lines by itself."""
        self._close()
        self._activity = None

    @property
    def _status(self) -> str:
        """The current activity, or the runs of the training, in a line."""
        activity = self._activity  # another thread may change it
        if activity is None:
            return str(self._tally)
        line, began = activity
        return f"{line}, {duration(time.monotonic() - began)}"

    def _check_read(self) -> None:
        if self._is_unread:
            raise BrokenPipeError

    def _say(self, line: str) -> None:
        self._check_read()
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _open(self) -> None:
        """Begin to print lines in between."""
        if self._pulse is None and not self._console.quiet:
            self._ended.clear()
            self._pulse = Thread(target=self._beat, daemon=True)
            self._pulse.start()

    def _beat(self) -> None:
        try:
            while not self._ended.wait(max(self._last_line + _SILENT_SECONDS - time.monotonic(), 0.01)):
                if time.monotonic() - self._last_line >= _SILENT_SECONDS:
                    self._say(self._status if self._activity else f"{self._tally.share:4.0%}  {self._status}")
        except (SystemExit, BrokenPipeError):  # Rich exits when nobody reads; the main thread must stop the study
            self._is_unread = True

    def _close(self) -> None:
        if self._pulse is not None:
            self._ended.set()
            self._pulse.join()
            self._pulse = None


class LiveReporter(PlainReporter):
    """A line about the study, its bar, and a bar for each chunk in training."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._display: _Display | None = None
        self._study_bar: TaskID | None = None
        self._bars: dict[str, TaskID] = {}

    def activity(self, line: str) -> None:
        """Show the line, how long it has lasted, and a spinner."""
        began = time.monotonic() if self._activity is None else self._activity[1]
        self._activity = line, began
        self._open()

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Show the study's bar."""
        super().begin(todo, done, workers)
        assert self._display is not None
        self._study_bar = self._display.add_task("all runs", total=1.0)
        self._move()

    def progress(self, chunk: Chunk, step: int) -> None:
        """Move the chunk's bar and the study's."""
        super().progress(chunk, step)
        if self._display is not None:
            if chunk.id not in self._bars:
                self._bars[chunk.id] = self._display.add_task(chunk.label, total=chunk.steps)
            self._display.update(self._bars[chunk.id], completed=step)
        self._move()

    def finished(self, chunk: Chunk, seconds: float) -> None:  # noqa: ARG002
        """Take the chunk's bar away."""
        self._tally.finished(chunk)
        self._drop(chunk)

    def split(self, chunk: Chunk) -> None:
        """Print a line above the bars."""
        super().split(chunk)
        self._drop(chunk)

    def failed(self, failure: Failure) -> None:
        """Print a line above the bars; the traceback follows at the end of the run."""
        super().failed(failure)
        self._drop(failure.chunk)

    def _move(self) -> None:
        if self._display is not None and self._study_bar is not None:
            self._display.update(self._study_bar, completed=self._tally.share)

    def _drop(self, chunk: Chunk) -> None:
        if self._display is not None and chunk.id in self._bars:
            self._display.remove_task(self._bars.pop(chunk.id))
        self._move()

    def _open(self) -> None:
        if self._display is None:
            self._display = _Display(self._console, lambda: self._status)
            with delayed_interrupts():  # Rich hides the cursor, and restores it only if it has started completely
                self._display.start()

    def _close(self) -> None:
        """Close the display; of training, the line with its runs and the study's bar remain."""
        if self._study_bar is not None:
            self._activity = None
        if self._display is not None:
            with delayed_interrupts():
                self._display.live.transient = self._study_bar is None
                self._display.stop()
            self._display, self._study_bar, self._bars = None, None, {}


class _Display(Progress):
    """A line and bars, whose places and widths depend only on the width of the terminal."""

    def __init__(self, console: Console, status: Callable[[], str]) -> None:
        self._status, self._terminal = status, console
        self._spinner, self._ended = Spinner("dots"), False
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=3, no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=2)),
            TextColumn("{task.percentage:3.0f} %", table_column=Column(width=5, no_wrap=True)),
            console=console,
            expand=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the line with the spinner, then the bars."""
        line = Table.grid(padding=(0, 1))
        status = Text(self._status(), no_wrap=True, overflow="ellipsis")
        line.add_row(*([] if self._ended else [self._spinner]), status)
        yield line
        for bars in super().get_renderables():  # with room for ^C, which the terminal adds to the last line
            yield Constrain(bars, self._terminal.width - 3)

    def stop(self) -> None:
        """Leave the line without the spinner, and the bars."""
        self._ended = True
        super().stop()


def _opening(todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> str:
    before = f"{counted(runs_of(done), 'run')} {'is' if runs_of(done) == 1 else 'are'} there already; " if done else ""
    runs, steps = counted(runs_of(todo), "run"), f"{steps_of(todo):,} {_COUNTED[unit_of(todo)]}"
    return f"{before}{runs} to do, {steps}, {counted(workers, 'worker')}."
