"""The queue in front of an executor: what runs next, and what runs again because its worker was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from replaylab.study.execution.executor import Event, Executor, Lost, Progress, Task
from replaylab.study.execution.executor_answers import check_event, checked_slots, checked_ticket

MOST_RETRIES = 3
"""How often a task is tried again whose worker was lost to something outside of it."""


@dataclass(frozen=True)
class _Entry:
    task: Task
    handle: Callable[[Event], None]
    losses: int = 0


class TaskQueue:
    """Keeps an executor busy, first come first served, with no more than its slots in flight.

    So ten thousand populations wait here, and not in the memory of the workers, nor do their results pile up.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: deque[_Entry] = deque()
        self._in_flight: dict[int, _Entry] = {}
        self._given: set[int] = set()

    def put(self, task: Task, handle: Callable[[Event], None], *, first: bool = False) -> None:
        """Add a task.

        Args:
            task: what is to be done.
            handle: called in `run`, with the task's progress, then once with its end; may `put` more, and `clear`.
            first: whether it goes before those that wait.
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

        Raises:
            ConfigError: the executor's slots or ticket are none.
        """
        while self._waiting and len(self._in_flight) < checked_slots(self._executor):
            entry = self._waiting.popleft()
            ticket = checked_ticket(self._executor, self._executor.submit(entry.task), self._given)
            self._given.add(ticket)
            self._in_flight[ticket] = entry

    def run(self) -> None:
        """Work until nothing waits and nothing is in flight.

        Raises:
            ConfigError: the executor does not keep to what an `Executor` is.
        """
        self.fill()
        while self._in_flight:
            self._executor.wait(self._receive)

    def _receive(self, ticket: int, event: Event) -> None:
        entry = self._in_flight.get(ticket)
        if entry is None:  # it was given up, and is at work elsewhere: what the old worker says does not count
            return
        check_event(self._executor, event)
        if isinstance(event, Progress):
            entry.handle(event)
            return
        del self._in_flight[ticket]
        if isinstance(event, Lost) and event.retriable and entry.losses < MOST_RETRIES:
            self._waiting.appendleft(_Entry(entry.task, entry.handle, entry.losses + 1))
        else:
            entry.handle(event)
        self.fill()
