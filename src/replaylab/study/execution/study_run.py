"""A run of a study: missing chunks are checked, trained and written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replaylab.number_format import counted
from replaylab.study.execution.coordinator import run_chunks
from replaylab.study.execution.executor import Executor
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.execution.result_writer import ResultWriter
from replaylab.study.execution.tape_order import divided, refuse_lone
from replaylab.study.execution.worker.preflight import check_all, largest_of_each
from replaylab.study.plan.chunks import Chunk, runs_of
from replaylab.study.results import leftovers
from replaylab.study.results.folder import Damaged, StudyFolder
from replaylab.study.spec.study_file import Spec

_SECONDS_BETWEEN_NOTES = 10.0
"""Between two lines that count the checked cells."""


@dataclass(frozen=True)
class RunSummary:
    """The chunks that a call of `Study.run` ran, skipped and failed to run."""

    ran: tuple[Chunk, ...]
    skipped: tuple[Chunk, ...]
    """Results were there before."""

    failures: tuple[Failure, ...]
    seconds: float
    damaged: tuple[Damaged, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every chunk of the study has results."""
        return not self.failures


def run_study(
    spec: Spec,
    path: Path,
    executor: Executor,
    reporter: Reporter | None,
    show: bool | None = None,
    checkpoint_every: float | None = None,
) -> RunSummary:
    """Run what is missing in a study's folder; see `Study.run`. The executor is closed at the end, however it ends."""
    if reporter is None:
        from replaylab.study.execution.progress import reporter_in_python  # Rich, without which workers start sooner

        reporter = reporter_in_python(show)
    began, folder = time.perf_counter(), StudyFolder(spec, path)
    with folder.owned():
        folder.refuse_another()
        leftovers.clear_failures(folder.path)
        damaged = folder.set_aside_damaged()
        todo, skipped, again = divided(folder)
        for chunk in again:  # its tape is damaged, if there is one
            folder.tape_file(chunk).unlink(missing_ok=True)
        for chunk in skipped:  # a kill may have left checkpoints of it
            ResultWriter(folder).drop_checkpoints(chunk)
        if todo:
            seconds, failures = _train(folder, todo, skipped, executor, reporter, checkpoint_every)
        else:
            folder.write_records()
            seconds, failures = {}, []
        ran = tuple(p for p in folder.chunks if p.id in seconds)
    return RunSummary(ran, tuple(skipped), tuple(failures), time.perf_counter() - began, damaged)


def _train(
    folder: StudyFolder,
    todo: Sequence[Chunk],
    skipped: Sequence[Chunk],
    executor: Executor,
    reporter: Reporter,
    checkpoint_every: float | None,
) -> tuple[dict[str, float], list[Failure]]:
    writer = ResultWriter(folder)
    try:
        with folder.recorded():
            refuse_lone(folder, [*skipped, *todo])
            _check(largest_of_each(todo), executor, reporter)
        folder.write_records()  # of a study that is refused the folder keeps what was run, which can be reported
        try:
            reporter.begin(todo, skipped, min(executor.slots, len(todo)))
            return run_chunks(todo, executor, writer, reporter, checkpoint_every)
        finally:
            reporter.end()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_left_by_interrupt(folder, writer)) from None
    finally:
        executor.close()


def _check(kinds: Sequence[Chunk], executor: Executor, reporter: Reporter) -> None:
    """Check that a chunk of each kind can be trained, and report this, as it may take minutes."""
    reporter.note(f"checking {counted(len(kinds), 'cell')}")
    reported = time.perf_counter()

    def on_checked(count: int) -> None:
        nonlocal reported
        if count < len(kinds) and time.perf_counter() - reported >= _SECONDS_BETWEEN_NOTES:
            reported = time.perf_counter()
            reporter.note(f"checked {count} of {counted(len(kinds), 'cell')}")

    check_all(kinds, executor, on_checked)


def _left_by_interrupt(folder: StudyFolder, writer: ResultWriter) -> str:
    """Return in words what an interrupted run leaves in the folder."""
    if not folder.has_records:
        return "nothing has been trained yet"
    chunks = folder.chunks
    present, saved = runs_of(folder.present), [p for p in chunks if writer.has_checkpoint(p)]
    return (
        f"{folder.path} holds the results of {present:,} of {counted(runs_of(chunks), 'run')} and checkpoints of "
        f"{runs_of(saved):,} more; the same command continues"
    )
