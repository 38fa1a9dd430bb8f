"""Runs chunks on an executor, writes their files, and reports progress.

A chunk that learns from another chunk's draws waits for them. If training a chunk raises, each of its seeds is trained
separately, so that a failing run is named by its seed, and the other runs complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from replaylab.errors import StorageError
from replaylab.study.execution.executor import Event, Executor, Finished, Lost, Progress, Raised, Stopped, TrainTask
from replaylab.study.execution.interrupts import delayed_interrupts
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.execution.result_writer import ResultWriter
from replaylab.study.execution.tape_order import TapeOrder
from replaylab.study.execution.task_queue import TaskQueue
from replaylab.study.plan import Chunk

SECONDS_TO_SAVE = 60.0
"""Time for workers to write checkpoints after Ctrl-C."""


def run_chunks(
    todo: Sequence[Chunk],
    executor: Executor,
    writer: ResultWriter,
    reporter: Reporter,
    checkpoint_every: float | None = None,
) -> tuple[dict[str, float], list[Failure]]:
    """Run chunks, and return seconds by chunk id, and the failures.

    A chunk whose worker ended, and the seeds that raise, are failures; the others continue. Where rows cannot be
    written, no further chunk is begun, since its rows could not be either. At Ctrl-C workers write checkpoints, if the
    executor can ask them to. The executor is not closed.

    Args:
        todo: what to run, first come first served.
        executor: where it runs.
        writer: what puts rows, times and tracebacks into the study's folder.
        reporter: called from this thread only.
        checkpoint_every: seconds between two checkpoints of a chunk, where the executor shares the study's disk;
            None: none are kept.

    Raises:
        StorageError: the rows of a chunk could not be written; those of others that were at work then are there.
    """
    recorded = {p.tape_of.id for p in todo if p.tape_of is not None and writer.tape_of(p).is_file()}
    run = _Run(executor, writer, reporter, checkpoint_every, TapeOrder(todo, recorded))
    try:
        run.train(todo)
    except KeyboardInterrupt:
        run.stop()
        raise
    return run.seconds, run.failures


@dataclass
class _SeedsAlone:
    """The seeds of a chunk that raised, each trained separately."""

    chunk: Chunk
    waiting: set[int]
    tracebacks: dict[int, str] = field(default_factory=dict)


class _Run:
    def __init__(
        self,
        executor: Executor,
        writer: ResultWriter,
        reporter: Reporter,
        checkpoint_every: float | None,
        tapes: TapeOrder,
    ) -> None:
        self.seconds: dict[str, float] = {}
        self.failures: list[Failure] = []
        self._executor = executor
        self._queue = TaskQueue(executor)
        self._writer = writer
        self._reporter = reporter
        self._shares_disk = bool(getattr(executor, "shares_disk", False))
        self._checkpoint_every = checkpoint_every if self._shares_disk else None
        self._tapes = tapes
        self._splits: list[_SeedsAlone] = []
        self._unwritable: StorageError | None = None
        self._interrupted = False

    def train(self, todo: Sequence[Chunk]) -> None:
        with delayed_interrupts():
            for chunk in todo:
                if not self._tapes.hold(chunk):
                    self._put(chunk)
        self._queue.run()
        if self._unwritable is not None:
            for split in [split for split in self._splits if split.waiting]:  # seeds that were dropped with the queue
                self._settle(split)
            raise self._unwritable

    def stop(self) -> None:
        """Have the chunks in training write checkpoints and end; rows that arrive meanwhile are written."""
        self._interrupted = True
        self._queue.clear()
        stop = getattr(self._executor, "stop", None)
        if stop is None:
            return
        self._reporter.activity("Writing checkpoints; press Ctrl-C again to end at once, without them")
        stop(SECONDS_TO_SAVE)
        self._queue.run()

    @property
    def _ending(self) -> bool:
        """Whether no further chunk is begun."""
        return self._interrupted or self._unwritable is not None

    def _put(self, chunk: Chunk, *, first: bool = False) -> None:
        try:
            task = self._task(chunk)
        except OSError as error:  # of a tape
            self._failed(chunk, f"The tape that it learns from cannot be read: {error}")
            return
        self._queue.put(task, partial(self._planned, chunk), first=first)

    def _task(self, chunk: Chunk) -> TrainTask:
        task = TrainTask(chunk, record=self._tapes.records(chunk))
        if chunk.tape_of is not None:
            file = self._writer.tape_of(chunk)
            task = replace(task, tape=str(file) if self._shares_disk else file.read_bytes())
        if self._checkpoint_every is None:
            return task
        folder = str(self._writer.checkpoints_of(chunk))
        return replace(task, checkpoints=folder, checkpoint_every=self._checkpoint_every)

    def _planned(self, chunk: Chunk, event: Event) -> None:
        """Handle an event of a chunk as the study planned it."""
        if isinstance(event, Raised):
            self._writer.drop_checkpoints(chunk)
        match event:
            case Stopped() | Lost() if self._interrupted:
                return
            case Progress(step):
                self._reporter.progress(chunk, step)
            case Finished():
                self._finished(chunk, event)
            # Learning from a tape needs the other seeds.
            case Raised() if len(chunk.seeds) > 1 and not self._ending and chunk.tape_of is None:
                self._split(chunk)
            case Stopped() | Raised() | Lost():
                self._failed(chunk, _why(event))
        if not isinstance(event, Progress):
            self._release(chunk)

    def _release(self, source: Chunk) -> None:
        """Train the chunks that waited for a chunk's draws; without these they fail."""
        waited = self._tapes.released(source)
        if self._ending:
            return
        for chunk in waited:
            if self._writer.tape_of(chunk).is_file():
                self._put(chunk, first=True)
            else:
                self._failed(chunk, f"It learns from the draws of {source.label}, which were not recorded.")

    def _split(self, chunk: Chunk) -> None:
        """Train each seed of a chunk that raised separately, before all waiting tasks."""
        self._reporter.split(chunk)
        split = _SeedsAlone(chunk, set(chunk.seeds))
        self._splits.append(split)
        for seed in reversed(chunk.seeds):
            alone = chunk.with_seeds((seed,))
            self._queue.put(self._task(alone), partial(self._alone, split, alone), first=True)

    def _alone(self, split: _SeedsAlone, alone: Chunk, event: Event) -> None:
        """Handle an event of a seed that is trained separately; the seeds that raise again are one failure."""
        (seed,) = alone.seeds
        if isinstance(event, Raised):
            self._writer.drop_checkpoints(alone)
        match event:
            case Progress():
                return
            case Stopped() | Lost() if self._interrupted:
                return
            case Finished():
                self._finished(alone, event)
            case Stopped() | Raised() | Lost():
                split.tracebacks[seed] = _why(event)
        split.waiting.remove(seed)
        if not split.waiting:
            self._settle(split)

    def _settle(self, split: _SeedsAlone) -> None:
        """Report the seeds that raised separately, in their order, as one failure."""
        tracebacks = {seed: split.tracebacks[seed] for seed in split.chunk.seeds if seed in split.tracebacks}
        if tracebacks:
            failing = split.chunk.with_seeds(tuple(tracebacks))
            self._failed(failing, _of_seeds(tracebacks))

    def _finished(self, chunk: Chunk, event: Finished) -> None:
        from replaylab.study.results.store import damage_of, diverged_seeds  # heavy

        if why := damage_of(event.result, chunk.id):
            self._failed(chunk, f"What the worker handed back are not the rows of this chunk: {why}.")
            return
        try:
            self._writer.write(chunk, event)
        except StorageError as error:
            self._unwritable = self._unwritable or error
            self._queue.clear()
            self._failed(chunk, str(error))
            return
        self._release(chunk)
        self._queue.fill()  # the worker need not wait for the files beside the rows
        self._writer.drop_checkpoints(chunk)
        if self._tapes.done(chunk):
            self._writer.drop_tape(chunk)
        self.seconds[chunk.id] = event.seconds
        self._writer.write_time(chunk, event)
        self._reporter.finished(chunk, event.seconds)
        if seeds := diverged_seeds(event.result):
            self._reporter.diverged(chunk, seeds)

    def _failed(self, chunk: Chunk, traceback: str) -> None:
        failure = Failure(chunk, traceback)
        self.failures.append(failure)
        self._writer.write_failure(failure)
        self._reporter.failed(failure)


def _why(event: Stopped | Raised | Lost) -> str:
    match event:
        case Raised():
            return event.traceback
        case Lost():
            return " ".join(filter(None, [f"{event.reason} before it finished this chunk.", event.advice]))
    return "The executor stopped it before it finished this chunk. Run the study again."


def _of_seeds(tracebacks: dict[int, str]) -> str:
    """Name the seeds that failed separately, with the traceback of the first."""
    seeds = ", ".join(map(str, tracebacks))
    return f"Fails with seed {seeds}. Seed {next(iter(tracebacks))}:\n{next(iter(tracebacks.values()))}"
