"""Runs populations in worker processes and tells a reporter what happens.

One thread per worker hands it a population, reads its answers, and takes the next; what it hears goes through
one queue to the calling thread, so a `Reporter` is only ever called there. Workers are fresh interpreters
with one thread each; they hold no state between populations, so how many there are changes nothing but the
time.

Where training a population raises, each of its seeds is trained alone: so one bad run is told by its seed, and the
others are there all the same.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from replaylab.errors import StorageError
from replaylab.study.execution.local.worker_process import ENDED, WorkerProcess
from replaylab.study.plan.populations import Population

_SECONDS_TO_STOP = 10.0
"""How long to wait for a thread whose worker was killed."""


@dataclass(frozen=True)
class Failure:
    """A population that did not finish, or the seeds of it that raise when they are trained alone, and why."""

    population: Population
    traceback: str


@runtime_checkable
class Reporter(Protocol):
    """Hears of a run's progress; `replaylab.study.execution.progress` has one for terminals and one for plain lines."""

    def begin(self, todo: Sequence[Population], done: Sequence[Population], workers: int) -> None:
        """Work starts: ``done`` populations were there already."""

    def progress(self, population: Population, step: int) -> None:
        """Every run of the population has taken ``step`` environment steps."""

    def finished(self, population: Population, seconds: float) -> None:
        """The population's file is in place."""

    def split(self, population: Population) -> None:
        """The population raised; now its seeds are trained alone, each a population that finishes, or all as failures.

        Alone they tell of no progress, and those that raise again are one failure.
        """

    def failed(self, failure: Failure) -> None:
        """The population will not finish in this run."""

    def end(self) -> None:
        """Work is over, or was interrupted."""


@dataclass(frozen=True)
class _Event:
    population: Population | None
    """None: a worker has no more to do."""

    message: dict[str, Any]


def run_populations(
    todo: Sequence[Population], file_of: Callable[[Population], Path], workers: int, reporter: Reporter
) -> tuple[dict[str, float], list[Failure]]:
    """Run populations, each into its file, and return seconds by population id, and the failures.

    A population whose worker is killed, and the seeds that raise, are failures; the others go on. Where rows cannot be
    written, no further population is begun, since its rows could not be either. Interrupting the caller (Ctrl-C) kills
    the workers, with all that they have started, and raises ``KeyboardInterrupt`` on.

    Args:
        todo: what to run, first come first served.
        file_of: where the rows of a population go.
        workers: how many processes.
        reporter: called from this thread only.

    Raises:
        StorageError: the rows of a population could not be written; those of others that were at work then are there.
    """
    unwritable: str | None = None
    jobs: queue.SimpleQueue[Population] = queue.SimpleQueue()
    for population in todo:
        jobs.put(population)
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    desks = [_Desk(jobs, file_of, events) for _ in range(min(workers, len(todo)))]
    seconds: dict[str, float] = {}
    failures: list[Failure] = []
    try:
        for desk in desks:
            desk.start()
        working = len(desks)
        while working:
            event = events.get()
            if event.population is None:
                working -= 1
            elif event.message["event"] == "progress":
                reporter.progress(event.population, event.message["step"])
            elif event.message["event"] == "finished":
                seconds[event.population.id] = event.message["seconds"]
                reporter.finished(event.population, event.message["seconds"])
            elif event.message["event"] == "split":
                reporter.split(event.population)
            else:
                unwritable = event.message.get("unwritable") or unwritable
                failures.append(Failure(event.population, event.message["traceback"]))
                reporter.failed(failures[-1])
    finally:
        for desk in desks:
            desk.stop()
        for desk in desks:
            if desk.is_alive():  # an interrupt may come before it was started
                desk.join(_SECONDS_TO_STOP)
    if unwritable is not None:
        raise StorageError(unwritable)
    return seconds, failures


def _empty(jobs: queue.SimpleQueue[Population]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            jobs.get_nowait()


class _Desk(threading.Thread):
    """The thread that keeps one worker process busy, and starts another when it dies."""

    def __init__(
        self,
        jobs: queue.SimpleQueue[Population],
        file_of: Callable[[Population], Path],
        events: queue.SimpleQueue[_Event],
    ) -> None:
        super().__init__(daemon=True)
        self._jobs = jobs
        self._file_of = file_of
        self._events = events
        self._worker: WorkerProcess | None = None
        self._stopped = False

    def run(self) -> None:
        try:
            while not self._stopped:
                population = self._jobs.get_nowait()
                message = self._one(population)
                if _raised(message) and len(population.seeds) > 1 and not self._stopped:
                    self._each_alone(population)
                else:
                    self._events.put(_Event(population, message))
        except queue.Empty:
            pass
        finally:
            self._end_worker()
            self._events.put(_Event(None, {}))

    def _each_alone(self, population: Population) -> None:
        """Have each seed of a population that raised trained alone; those that raise again are one failure."""
        self._events.put(_Event(population, {"event": "split"}))
        tracebacks: dict[int, str] = {}
        for seed in population.seeds:
            if self._stopped:
                return
            alone = population.model_copy(update={"seeds": (seed,)})
            message = self._one(alone, quietly=True)
            if message["event"] == "finished" or "unwritable" in message:
                self._events.put(_Event(alone, message))
            else:
                tracebacks[seed] = message["traceback"]
        if tracebacks:
            failed = population.model_copy(update={"seeds": tuple(tracebacks)})
            self._events.put(_Event(failed, {"event": "failed", "traceback": _told(tracebacks)}))

    def _one(self, population: Population, *, quietly: bool = False) -> dict[str, Any]:
        """Have one population trained, pass its progress on, and return the worker's last message."""
        worker = self._worker = self._worker or WorkerProcess()
        if self._stopped:  # `stop` may have come before there was a process to kill
            worker.kill()
        told = None if quietly else lambda message: self._events.put(_Event(population, message))
        message = worker.ask(population, told, file=str(self._file_of(population)))
        if "unwritable" in message:  # neither would be what comes after it
            _empty(self._jobs)
        if message["event"] != ENDED:
            return message
        self._end_worker()
        told_so = f"The worker process {message['how']} before it finished this population."
        return {"event": "failed", "traceback": told_so}

    def stop(self) -> None:
        """Have the thread end soon, its worker at once; for the calling thread."""
        self._stopped = True
        if self._worker is not None:
            self._worker.kill()

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


def _raised(message: dict[str, Any]) -> bool:
    """Whether training raised, rather than the worker being killed or the file not written."""
    return message["event"] == "failed" and message.get("trained") is False


def _told(tracebacks: dict[int, str]) -> str:
    """Name the seeds that fail alone, with the traceback of the first."""
    seeds = ", ".join(map(str, tracebacks))
    return f"Fails with seed {seeds}. Seed {next(iter(tracebacks))}:\n{next(iter(tracebacks.values()))}"
