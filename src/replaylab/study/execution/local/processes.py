"""The executor of worker processes on this machine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from replaylab.arguments import InvalidArgument, optional, takes, whole
from replaylab.errors import ConfigError
from replaylab.study.execution.executor import Event, Executor, Handler, Lost, Progress, Task
from replaylab.study.execution.local.worker_process import WorkerProcess
from replaylab.study.results import provenance


class LocalProcesses:
    """Performs tasks in worker processes of one thread each, started when they are needed and kept until `close`.

    A worker that dies is `Lost` for good (not retriable): on one machine it is most likely the task that ended it.

    Attributes:
        slots: Number of processes.

    Example:
        >>> LocalProcesses(workers=4).slots
        4
    """

    @takes(workers=optional(whole()))
    def __init__(self, workers: int | None = None) -> None:
        """Start nothing yet.

        Args:
            workers: how many processes; by default one for each core that this process may use.

        Raises:
            ConfigError: ``workers`` is below 1.
        """
        self.slots = workers or provenance.cores()
        self._tickets = count()
        self._events: queue.SimpleQueue[tuple[WorkerProcess, Event]] = queue.SimpleQueue()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, int] = {}
        self._deadline: threading.Timer | None = None

    shares_disk = True

    def __repr__(self) -> str:
        return f"LocalProcesses(workers={self.slots})"

    def submit(self, task: Task) -> int:
        """Give a task to an idle process, or to a new one."""
        worker = self._free_worker()
        ticket = self._busy[worker] = next(self._tickets)
        worker.send(task)
        return ticket

    def wait(self, handle: Handler) -> None:
        """Wait for an event of a process, or for its end."""
        worker, event = self._events.get()
        if isinstance(event, Progress):
            handle(self._busy[worker], event)
            return
        ticket = self._busy.pop(worker, None)
        if isinstance(event, Lost):
            worker.end()
            if worker in self._idle:
                self._idle.remove(worker)
        else:
            self._idle.append(worker)
        if ticket is not None:  # None: a worker without a task died
            handle(ticket, event)

    def stop(self, seconds: float) -> None:
        """Ask the tasks in flight to write checkpoints and end; kill those that have not ended after some seconds."""
        workers = list(self._busy)
        for worker in workers:
            worker.stop()
        self._deadline = threading.Timer(seconds, partial(_kill, workers))
        self._deadline.daemon = True
        self._deadline.start()

    def close(self) -> None:
        """Kill the processes, with all that they have started."""
        if self._deadline is not None:
            self._deadline.cancel()
        workers = [*self._idle, *self._busy]
        self._idle, self._busy = [], {}
        self._events = queue.SimpleQueue()
        _kill(workers)
        for worker in workers:
            worker.end()

    def _free_worker(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.end()
        events = self._events  # the last events of a closed worker go to a queue that nobody reads
        return WorkerProcess(lambda worker, event: events.put((worker, event)))


def _kill(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.kill()


def _executor(value: Any) -> Executor:
    """An executor, and not its class."""
    if isinstance(value, type) or not isinstance(value, Executor):
        raise InvalidArgument("an executor, such as LocalProcesses() or InProcess()")
    return value


@takes(workers=optional(whole()), executor=optional(_executor))
def chosen_executor(workers: int | None, executor: Executor | None) -> Executor:
    """Return the given executor, or else local processes.

    Raises:
        ConfigError: both are given, or one is not what it must be.
    """
    if executor is None:
        return LocalProcesses(workers)
    if workers is not None:
        raise ConfigError(
            f"`workers` must be left out where an `executor` is given, which has its own number, but got {workers:,}"
        )
    return executor
