"""A worker process: ``python -m replaylab.study.execution.worker``.

It reads populations as JSON lines on standard input, trains each, writes its file, and answers with JSON
lines on standard output. A job with ``seconds`` is only timed, for a dry run; one with ``check`` only tells whether it
can be trained at all. When standard input closes,
because the parent ended or was killed, the worker ends at once, in the middle of whatever it does: files
appear only whole (`replaylab.files.atomic`), so nothing half-written remains.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from replaylab.errors import ReplayError, StorageError
from replaylab.study.execution.calibration import calibrate
from replaylab.study.execution.preflight import check_population
from replaylab.study.plan.populations import Population
from replaylab.study.results.provenance import versions
from replaylab.study.results.store import write_population

if TYPE_CHECKING:
    from replaylab.learners import Hook

_REPORT_SECONDS = 0.2
"""At most one progress message in this time."""


def train_population(
    population: Population,
    on_step: Callable[[int], None] | None = None,
    on_metrics: Callable[[int, Mapping[str, Any]], None] | None = None,
    *,
    hooks: Sequence[Hook] = (),
    resume: Path | None = None,
) -> dict[str, Any]:
    """Train a population in this process and return its columns: seed, step, metric, value; each (rows,).

    Args:
        population: what to train.
        on_step: hears of the steps taken, now and then.
        on_metrics: hears of each evaluation and each look at the learner: the step, and values of shape
            (seeds,).
        hooks: what else watches or steers training.
        resume: folder of a checkpoint to go on from.
    """
    from replaylab.learners import Callbacks, train

    os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed: small networks, a second thread costs more
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    told = Callbacks(progress=on_step, on_metrics=on_metrics)
    metrics = train(population.configuration(), population.seeds, [told, *hooks], resume=resume)
    columns: dict[str, Any] = metrics.columns
    return columns


def _work(job: dict[str, Any], say: Callable[..., None]) -> None:
    """Do one job; whatever the environment or the user's own code raises, `SystemExit` too, is an answer."""
    population = Population.model_validate(job["population"])
    try:
        if job.get("check"):
            check_population(population)
            say("checked")
        elif "seconds" in job:
            say("timed", speed=calibrate(population, job["seconds"]).model_dump())
        else:
            _train(population, Path(job["file"]), say)
    except BaseException as error:
        refused = {"refused": type(error).__name__, "message": str(error)} if isinstance(error, ReplayError) else {}
        say("failed", traceback=traceback.format_exc(), trained=False, **refused)


def _train(population: Population, file: Path, say: Callable[..., None]) -> None:
    """Train a population and write its rows."""
    began = last = time.perf_counter()

    def on_step(step: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= _REPORT_SECONDS:
            last = now
            say("progress", step=int(step))

    columns = train_population(population, on_step)
    try:
        write_population(file, population, columns, versions())
    except StorageError as error:
        say("failed", traceback=str(error), trained=True, unwritable=str(error))
    else:
        say("finished", seconds=time.perf_counter() - began)


def _read_jobs(jobs: queue.SimpleQueue[str], source: TextIO) -> None:
    for line in source:
        jobs.put(line)
    os._exit(0)  # no parent, no work; the main thread may be deep in training


def main() -> None:
    """Work until standard input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to standard error, not between the answers

    def say(event: str, **what: Any) -> None:
        answers.write(json.dumps({"event": event, **what}) + "\n")

    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs, sys.stdin), daemon=True).start()
    while True:
        _work(json.loads(jobs.get()), say)


if __name__ == "__main__":
    main()
