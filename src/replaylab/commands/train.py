"""Training of one chunk from the command line: one learner, environment and strategy, any seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from replaylab import statistics
from replaylab.commands.saved_runs import describe_run
from replaylab.learners import Callbacks, Checkpoints, Hook
from replaylab.number_format import duration
from replaylab.study.analysis import comparisons
from replaylab.study.execution.interrupts import delayed_interrupts
from replaylab.study.execution.worker.training import train_chunk
from replaylab.study.plan import Chunk
from replaylab.study.report import sentences
from replaylab.study.results import provenance
from replaylab.study.results.store import write_chunk

if TYPE_CHECKING:
    from replaylab.learners import Agents, TrainingRun
    from replaylab.watch import Episode


Trainer = Callable[..., dict[str, Any]]
"""Trains a chunk, as `train_chunk` does, and returns its columns."""


def train_and_report(
    chunk: Chunk,
    console: Console,
    out: Path | None,
    *,
    save: Path | None = None,
    save_every: int | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    video: Path | None = None,
    trainer: Trainer = train_chunk,
) -> statistics.Interval:
    """Train, print each evaluation and the final return, write the rows if asked, and return the final return.

    Args:
        chunk: what to train.
        console: where to print; the progress bar is for terminals only.
        out: a Parquet file, or None.
        save: folder for checkpoints and for what each agent has learned.
        save_every: steps or episodes between checkpoints; None: only what each agent has learned is saved.
        resume: continue from the checkpoint in that folder.
        tensorboard: folder for event files.
        video: file for a greedy episode of the first seed, once it is trained.
        trainer: what trains a chunk and returns its columns.
    """
    began = time.perf_counter()
    film = None if video is None else _Film(chunk, video)
    hooks: list[Hook] = [] if film is None else [Callbacks(on_end=film)]
    _print(console, f"{chunk.label}, {chunk.steps:,} {chunk.unit} each")
    if save is not None:
        hooks.append(Checkpoints(save, save_every))
        describe_run(save, None if resume else chunk, save_every)
    with ExitStack() as open_files:
        if tensorboard is not None:
            from replaylab.watch import TensorBoard

            hooks.append(open_files.enter_context(TensorBoard(tensorboard, chunk.seeds)))
        columns, trained = _train_with_progress(chunk, console, hooks, save if resume else None, trainer)
    if out is not None:
        write_chunk(out, chunk, columns, provenance.versions())
    final, count = _final(columns, chunk), len(chunk.seeds)
    several = f"interquartile mean over {count} seeds with its 95 % interval"
    measure = several if count > 1 else "of one seed, so without an interval"
    _print(console, f"final return {sentences.with_interval(final, count)}, {measure}")
    _print(console, _speed(chunk, trained, time.perf_counter() - began))
    if out is not None:
        _print(console, f"rows: {out}")
    if film is not None:
        _print(console, f"greedy episode of seed {chunk.seeds[0]}, {film.outcome}")
    return final


def _train_with_progress(
    chunk: Chunk, console: Console, hooks: Sequence[Hook], resume: Path | None, trainer: Trainer
) -> tuple[dict[str, Any], int]:
    """Train with a progress bar, print each evaluation, and return the rows, and how much was trained now."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn(f"{{task.fields[speed]:,.0f}} {chunk.unit}/s"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    began, session = time.perf_counter(), _Session()
    evaluated: dict[int, NDArray[np.float64]] = {}
    with _shown(bar):
        task = bar.add_task(chunk.label, total=chunk.steps, speed=0.0)

        def on_step(step: int) -> None:
            elapsed = time.perf_counter() - began
            bar.update(task, completed=step, speed=session.taken / elapsed)

        def on_metrics(step: int, values: Mapping[str, NDArray[np.float64]]) -> None:
            if comparisons.RETURN not in values:
                return
            returns = values[comparisons.RETURN]
            evaluated[step] = np.where(np.isnan(returns), evaluated.get(step, returns), returns)
            if np.isfinite(evaluated[step]).all():  # with a budget of episodes the seeds come one by one
                interval = statistics.bootstrap_interval(evaluated.pop(step), resamples=1_000)
                level = sentences.with_interval(interval, len(chunk.seeds))
                _print(console, f"{step:>10,} {chunk.unit}   greedy return {level}")

        columns = trainer(chunk, on_step, on_metrics, hooks=[session, *hooks], resume=resume)
    return columns, session.todo


class _Session(Hook):
    """Counts, over all seeds and in the budget's unit, what this call trains.

    Attributes:
        todo: Steps or episodes that were missing when training began or continued.
    """

    def __init__(self) -> None:
        self.todo = 0
        self._run: TrainingRun | None = None

    def on_begin(self, run: TrainingRun) -> None:
        """Count what is missing; seeds that an algorithm trains one after the other add up."""
        self._run = run
        self.todo += self._left

    def after_turn(self, run: TrainingRun) -> None:
        """Store the run, which is a new one after a seed has ended."""
        self._run = run

    @property
    def taken(self) -> int:
        """Number of steps or episodes trained so far."""
        return self.todo - self._left

    @property
    def _left(self) -> int:
        return 0 if self._run is None else int(np.maximum(self._run.clock.total - self._run.clock.now, 0).sum())


@contextmanager
def _shown(bar: Progress) -> Iterator[None]:
    """Show a progress bar; it is closed, and the cursor restored, however early Ctrl-C comes."""
    try:
        with delayed_interrupts():
            bar.start()
        yield
    finally:
        with delayed_interrupts():
            bar.stop()


def greedy_episode(chunk: Chunk, agent: Callable[[Any], Any] | None, max_steps: int) -> Episode:
    """Return an episode of the chunk's environment; None as the agent: of random actions."""
    from replaylab.watch import play

    env_id, options = chunk.made_of
    return play(env_id, agent, max_steps=max_steps, env_options=options)


class _Film:
    """Films a greedy episode of the first seed when its training ends; checks at once that this is possible."""

    max_steps = 3_000
    outcome = "was not played"

    def __init__(self, chunk: Chunk, path: Path) -> None:
        self.chunk, self.path = chunk, path
        greedy_episode(chunk, None, 1)

    def __call__(self, ended: list[int], agents: Agents) -> None:
        """Film the first seed, if it is among those that are trained."""
        first = self.chunk.seeds[0]
        if first not in ended:
            return
        from replaylab.watch import greedy, write_video

        episode = greedy_episode(self.chunk, greedy(agents, len(ended), ended.index(first)), self.max_steps)
        self.outcome = f"{episode}: {write_video(self.path, episode.frames, episode.fps)}"


def _speed(chunk: Chunk, trained: int, seconds: float) -> str:
    total = chunk.steps * len(chunk.seeds)
    counted = "environment steps" if chunk.unit == "steps" else "episodes"
    share = f"{total:,}" if trained == total else f"{trained:,} of {total:,}"
    return f"{share} {counted} in {duration(seconds)}, {trained / seconds:,.0f} a second"


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _final(columns: Mapping[str, NDArray[Any]], chunk: Chunk) -> statistics.Interval:
    """The final return, by the same measure as in a study's report."""
    rows = columns["metric"] == comparisons.RETURN
    curve = comparisons.curve_of_runs(chunk, *(columns[k][rows] for k in ("seed", "step", "value")))
    return statistics.bootstrap_interval(curve.of_runs("final"))
