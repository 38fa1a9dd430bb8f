"""A run of a study: missing chunks are checked, trained and written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replaylab.study.execution.coordinator import run_chunks
from replaylab.study.execution.executor import Executor
from replaylab.study.execution.interrupts import delayed_interrupts
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.execution.result_writer import ResultWriter
from replaylab.study.execution.tape_order import divided, refuse_lone
from replaylab.study.execution.worker.preflight import check_all, largest_of_each
from replaylab.study.plan import Chunk
from replaylab.study.results.folder import Damaged, StudyFolder
from replaylab.study.spec.spec import Spec


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
    toml: str = "",
) -> RunSummary:
    """Run what is missing in a study's folder; see `Study.run`. The executor is always closed at the end."""
    if reporter is None:
        from replaylab.study.execution.progress import reporter_in_python  # Rich, without which workers start sooner

        reporter = reporter_in_python(show)
    began, folder = time.perf_counter(), StudyFolder(spec, path, toml)
    with folder.owned():
        folder.refuse_another()
        with delayed_interrupts():
            folder.clear_failures()
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
            check_all(largest_of_each(todo), executor, reporter.activity)
        with delayed_interrupts():
            folder.write_records()  # if the study is refused, the folder keeps its results, which can be reported
        with delayed_interrupts():
            reporter.begin(todo, skipped, min(executor.slots, len(todo)))
        return run_chunks(todo, executor, writer, reporter, checkpoint_every)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(writer.summary()) from None
    finally:
        reporter.end()
        executor.close()
