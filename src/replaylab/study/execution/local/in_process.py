"""The executor that is the calling process itself."""

from __future__ import annotations

import bdb
from collections import deque
from itertools import count

from replaylab.study.execution.executor import Event, Handler, Progress, Task
from replaylab.study.execution.worker.perform import perform, raised


class _HandlerRaised(BaseException):
    """Carries what a handler raised through the training that it was called from."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class InProcess:
    """Performs one task after the other in the calling thread.

    A debugger stops at breakpoints in a custom sampler, learner or environment, and a profiler measures all of it;
    Ctrl-C and leaving the debugger end the run. What crashes, exits by itself or never returns takes this process with
    it, and numeric libraries are held to one thread, as in workers.

    Example:
        >>> InProcess().slots
        1
    """

    slots = 1
    shares_disk = True

    def __init__(self) -> None:
        self._tickets = count()
        self._waiting: deque[tuple[int, Task]] = deque()

    def __repr__(self) -> str:
        return "InProcess()"

    def submit(self, task: Task) -> int:
        """Take a task; `wait` performs it."""
        ticket = next(self._tickets)
        self._waiting.append((ticket, task))
        return ticket

    def wait(self, handle: Handler) -> None:
        """Perform the next task."""
        ticket, task = self._waiting.popleft()

        def on_progress(step: int) -> None:
            try:
                handle(ticket, Progress(step))
            except BaseException as error:
                raise _HandlerRaised(error) from error

        event: Event
        try:
            event = perform(task, on_progress)
        except (KeyboardInterrupt, bdb.BdbQuit):
            raise
        except _HandlerRaised as carrier:
            raise carrier.error from None
        except BaseException as error:
            event = raised(error)
        handle(ticket, event)

    def close(self) -> None:
        """Forget the tasks that wait."""
        self._waiting.clear()
