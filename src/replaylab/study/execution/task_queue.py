"""The queue in front of an executor: what runs next, and what runs again because its worker was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from replaylab.errors import ConfigError
from replaylab.study.execution.executor import Event, Executor, Finished, Lost, Progress, Raised, Stopped, Task
from replaylab.study.execution.interrupts import delayed_interrupts

MOST_RETRIES = 3
"""Retries of a task whose worker was lost for a reason outside of the task."""


@dataclass(frozen=True)
class _Entry:
    task: Task
    handle: Callable[[Event], None]
    losses: int = 0


class TaskQueue:
    """Keeps an executor busy, first come first served, with no more than its slots in flight.

    So ten thousand chunks wait here, and not in the memory of the workers, nor do their results pile up.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: deque[_Entry] = deque()
        self._in_flight: dict[int, _Entry] = {}

    def put(self, task: Task, handle: Callable[[Event], None], *, first: bool = False) -> None:
        """Add a task.

        Args:
            task: the task.
            handle: called in `run`, with the task's progress, then once with its end; may `put` more, and `clear`.
            first: whether it is placed before the waiting tasks.
        """
        entry = _Entry(task, handle)
        if first:
            self._waiting.appendleft(entry)
        else:
            self._waiting.append(entry)

    def clear(self) -> None:
        """Drop the tasks that were not begun; their handlers are not called."""
        self._waiting.clear()

    def fill(self) -> None:
        """Submit tasks until every slot has one; `run` does it, too, after each handler.

        One task waits at an executor that has no worker just now.

        Raises:
            ConfigError: the executor gives the ticket of a task in flight to another one.
        """
        while self._waiting and len(self._in_flight) < max(1, self._executor.slots):
            with delayed_interrupts():
                entry = self._waiting.popleft()
                ticket = self._executor.submit(entry.task)
                if ticket in self._in_flight:
                    raise self._wrong("`submit`", "return a ticket that no task in flight has", ticket)
                self._in_flight[ticket] = entry

    def run(self) -> None:
        """Work until nothing waits and nothing is in flight.

        Raises:
            ConfigError: the executor passes a value that is not an event, or a ticket twice.
        """
        self.fill()
        while self._in_flight:
            self._executor.wait(self._receive)

    def _receive(self, ticket: int, event: Event) -> None:
        entry = self._in_flight.get(ticket)
        if entry is None:  # it was given up, and is at work elsewhere: events of the old worker do not count
            return
        if not isinstance(event, Progress | Finished | Stopped | Raised | Lost):
            raise self._wrong("`wait`", "hand over a Progress, Finished, Stopped, Raised or Lost", event)
        with delayed_interrupts():  # so that no result is dropped
            if isinstance(event, Progress):
                entry.handle(event)
            else:
                self._ended(ticket, entry, event)

    def _ended(self, ticket: int, entry: _Entry, event: Finished | Stopped | Raised | Lost) -> None:
        del self._in_flight[ticket]
        if isinstance(event, Lost) and event.retriable and entry.losses < MOST_RETRIES:
            self._waiting.appendleft(_Entry(entry.task, entry.handle, entry.losses + 1))
        else:
            entry.handle(event)
        self.fill()

    def _wrong(self, method: str, rule: str, answer: object) -> ConfigError:
        return ConfigError(f"{method} of {type(self._executor).__name__} must {rule}, but got {answer!r:.200}")
