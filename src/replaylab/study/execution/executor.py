"""The interface between a study and the processes or machines that train its chunks.

A `TaskQueue` decides what runs next and what runs again; an `Executor` carries tasks to workers, and returns their
results. What a worker does with a task is the same everywhere, see `execution.worker.perform`. It hands back bytes;
only the process that runs the study writes files, so workers need no disk in common with it.

Tasks and events are frozen and can be pickled. `replaylab.study.execution.local` has the executors of one machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from replaylab.study.plan import Chunk
from replaylab.study.results.provenance import Machine


@dataclass(frozen=True)
class TrainTask:
    """Train a chunk; the result is its Parquet file (`replaylab.study.results.store`)."""

    chunk: Chunk
    checkpoints: str | None = None
    """Folder on the study's disk where it is kept as it goes, and from where it continues; None: nowhere."""

    checkpoint_every: float = 0.0
    """Seconds between two checkpoints."""

    record: bool = False
    """Whether its draws are wanted as a tape: `Finished.tape`."""

    tape: str | bytes | None = None
    """Tape of a chunk with a ``tape_of``: its file, or, without a shared disk, its contents."""


@dataclass(frozen=True)
class CheckTask:
    """Check whether a chunk can be trained; the result is empty, a refusal is `Raised` with ``refused``."""

    chunk: Chunk


@dataclass(frozen=True)
class TimeTask:
    """Measure how fast a chunk trains; the result is a `Speed` (of `worker.calibration`) as JSON."""

    chunk: Chunk
    seconds: float
    """Seconds of training."""


Task = TrainTask | CheckTask | TimeTask


@dataclass(frozen=True)
class Progress:
    """Every run of the chunk has taken ``step`` steps (episodes, with a budget in episodes)."""

    step: int


@dataclass(frozen=True)
class Finished:
    """The task is done."""

    result: bytes
    """The result, see the task."""

    seconds: float
    """Seconds that the worker took."""

    machine: Machine
    """Machine of the worker."""

    tape: bytes = b""
    """The chunk's draws, where the task asks for them."""


@dataclass(frozen=True)
class Stopped:
    """The task wrote a checkpoint and ended early, because the executor's `stop` asked for it."""


@dataclass(frozen=True)
class Raised:
    """The task raised, and would raise again; its worker lives."""

    traceback: str
    machine: Machine
    refused: str | None = None
    """Name of the error in `replaylab.errors`, if it is one of those."""

    message: str = ""
    """The error's message, where ``refused`` is given."""


@dataclass(frozen=True)
class Lost:
    """The task's worker ended without an answer."""

    reason: str
    """The reason, without a full stop: ``The worker process was killed by SIGKILL``."""

    retriable: bool = False
    """Whether the cause lay outside the task (a machine went away), so that it is worth another try. False where the
    task itself may have ended its worker, and would end the next one too."""

    machine: Machine | None = None
    """Machine of the worker, if known."""

    advice: str = ""
    """The likely cause and the next step, as sentences; "" if nothing is known."""


Event = Progress | Finished | Stopped | Raised | Lost
Handler = Callable[[int, Event], None]
"""Takes a task's ticket and what happened to it."""


@runtime_checkable
class Executor(Protocol):
    """Performs tasks somewhere, at most `slots` at a time.

    All methods are called from one thread. Each ticket gets any number of `Progress`, then exactly one of `Finished`,
    `Raised` and `Lost`, unless `close` comes first. An event of a ticket that has ended (a machine that was given up
    answers late) is ignored by the caller, so an executor need not filter it. Which worker performs a task, and what it
    performed before, must not change the result.

    An executor whose workers see the study's disk may report it by an attribute ``shares_disk = True``: then tasks
    name a folder there (`TrainTask.checkpoints`), so that a chunk that was killed continues from its last
    checkpoint, and the files of tapes.

    An executor may have a method ``stop(seconds)``, which is called at Ctrl-C: tasks that write checkpoints write one
    and end as `Stopped`, the others end as `Lost`; after so many seconds those that remain are killed.

    `tests/study/execution/executor_conformance.py` tests an executor for all of this. While a study runs, only answers
    that would lose a task raise `ConfigError`.
    """

    @property
    def slots(self) -> int:
        """Number of tasks it works on at once, at least 1; it may change while the executor works."""

    def submit(self, task: Task) -> int:
        """Take a task, without waiting for it, and return its ticket: a number that is never used again.

        It is called with fewer than `slots` tasks in flight.
        """

    def wait(self, handle: Handler) -> None:
        """Wait until something happens to a task in flight, and call ``handle`` with it, in this thread.

        It may call ``handle`` several times, or not at all. There is at least one task in flight. ``handle`` may call
        `submit`, except while it is given a `Progress`. What ``handle`` raises passes through, and so does
        ``KeyboardInterrupt``.
        """

    def close(self) -> None:
        """Give up the tasks in flight and end the workers, with whatever they started; tasks may be submitted again."""
