"""Performing a task: the same in every process and on every machine."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from replaylab.errors import ConfigError, ReplayError
from replaylab.study.execution.executor import CheckTask, Finished, Raised, Task, TimeTask, TrainTask
from replaylab.study.execution.worker.calibration import calibrate
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.execution.worker.training import StopRequest, train_chunk
from replaylab.study.results.provenance import this_machine

if TYPE_CHECKING:
    from replaylab.learners import Hook

_REPORT_SECONDS = 0.2
"""At most one report of progress in this time."""


def perform(task: Task, on_progress: Callable[[int], None], stop: StopRequest | None = None) -> Finished:
    """Do a task; raises whatever the environment or the user's own code raises.

    Args:
        task: what to do.
        on_progress: called now and then with the steps that every run has taken.
        stop: asks training that writes checkpoints to write one and stop; None: nobody asks.

    Raises:
        TrainingStopped: A checkpoint was written because `stop` asked for it.
    """
    began, stop = time.perf_counter(), stop or StopRequest()
    stop.heeded = False
    match task:
        case TrainTask():
            result, before, tape = _train(task, on_progress, stop)
            began -= before
            return Finished(result, time.perf_counter() - began, this_machine(), tape)
        case CheckTask(chunk):
            check_chunk(chunk)
            result = b""
        case TimeTask(chunk, seconds):
            result = calibrate(chunk, seconds).model_dump_json().encode()
    return Finished(result, time.perf_counter() - began, this_machine())


def raised(error: BaseException) -> Raised:
    """Return the event of a task that raised."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, ReplayError):
        return Raised(text, this_machine(), type(error).__name__, str(error))
    return Raised(text, this_machine())


def _train(task: TrainTask, on_progress: Callable[[int], None], stop: StopRequest) -> tuple[bytes, float, bytes]:
    """Train a chunk.

    Returns:
        Its Parquet file, for how many seconds it was trained before this task, and its tape, if that is wanted.
    """
    from replaylab.learners import TapeRecorder
    from replaylab.study.execution.worker.first_seed_video import FirstSeedVideo  # heavy
    from replaylab.study.results.store import encoded

    last = -_REPORT_SECONDS  # so that it is reported soon where a checkpoint began

    def on_step(step: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= _REPORT_SECONDS:
            last = now
            on_progress(int(step))

    chunk, before = task.chunk, 0.0
    video, recorder = FirstSeedVideo(chunk), TapeRecorder()

    def hooks() -> list[Hook]:
        nonlocal video, recorder
        video, recorder = FirstSeedVideo(chunk), TapeRecorder()
        return [video, recorder] if task.record else [video]

    with _tape_file(task) as tape:
        if task.checkpoints is None:
            columns = train_chunk(chunk, on_step, hooks=hooks(), tape=tape)
        else:
            from replaylab.study.execution.worker.checkpoints import train_with_checkpoints  # heavy

            checkpoints = Path(task.checkpoints), task.checkpoint_every, stop
            columns, before = train_with_checkpoints(chunk, on_step, *checkpoints, hooks, tape)
    rows = encoded(chunk, columns, this_machine().versions, video.video)
    return rows, before, recorder.writer.content() if task.record else b""


@contextmanager
def _tape_file(task: TrainTask) -> Iterator[str | None]:
    """Yield where the tape that a task's chunk learns from is; None where it draws itself.

    Raises:
        ConfigError: it learns from one, and the task brings none.
    """
    if task.chunk.tape_of is not None and task.tape is None:
        raise ConfigError(f"{task.chunk.label} must be given the tape that it learns from, but the task has none")
    if not isinstance(task.tape, bytes):
        yield task.tape
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, "tape")
        file.write_bytes(task.tape)
        yield str(file)
