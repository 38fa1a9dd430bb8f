"""Tasks of a study on a Ray worker, each in a worker process as on one machine.

That process is a fresh interpreter with one thread, without Ray, and ends with the Ray worker. So the rows are the
same, and a task that ends its process does not count as a lost machine.
"""

from __future__ import annotations

import atexit
import math
import os
import queue
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from replaylab.distributed.ray_session import check_version, extend_import_path
from replaylab.study.execution.executor import Event, Lost, Progress, Task
from replaylab.study.execution.local.worker_process import WorkerProcess

_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM) if hasattr(signal, "SIGKILL") else ()
"""Exit codes of a process that was killed: by the kernel if memory runs short, a scheduler, or a person."""

_SECONDS_BETWEEN_REPORTS = 1.0
"""Seconds between two reports of progress: each wakes several of Ray's processes, for which training waits."""


class _Process:
    """The process of this Ray worker, and its events."""

    current: _Process | None = None

    def __init__(self, key: object, path: Sequence[str]) -> None:
        self.key = key
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.worker = WorkerProcess(lambda _, event: self.events.put(event), path)

    @classmethod
    def of(cls, folders: Sequence[str]) -> _Process:
        """Return the current process if it looks for modules there and has these GPUs, otherwise a new one."""
        import ray

        _hide_unassigned_gpus()
        extend_import_path(folders)
        library = str(Path(ray.__file__).parent)
        path = [folder for folder in sys.path if folder and not folder.startswith(library)]
        key = path, os.environ.get("CUDA_VISIBLE_DEVICES")
        if cls.current is None or cls.current.key != key or not cls.current.worker.alive:
            cls.end()
            os.environ.pop("PYTHONBREAKPOINT", None)  # Ray's own debugger, which the process could not reach
            cls.current = cls(key, path)
        return cls.current

    @classmethod
    def end(cls) -> None:
        """End the process, if there is one, with whatever it started."""
        if cls.current is not None:
            cls.current.worker.end()
            cls.current = None


atexit.register(_Process.end)


def perform_task(task: Task, folders: Sequence[str], version: str) -> Iterator[Event]:
    """Yield the events of a task, its end last.

    Args:
        task: The task.
        folders: Where the process that runs the study looks for modules.
        version: The version of replaylab of the process that runs the study.

    Raises:
        ConfigError: This machine has another version.
    """
    check_version(version)
    process = _Process.of(folders)
    process.worker.send(task)
    ended, reported_at = False, -math.inf
    try:
        while not ended:
            try:
                event = process.events.get(timeout=0.5)  # then it may have been cancelled
            except queue.Empty:
                continue
            ended = not isinstance(event, Progress)
            now = time.monotonic()
            if not ended and now - reported_at < _SECONDS_BETWEEN_REPORTS:
                continue
            reported_at = now
            if isinstance(event, Lost):
                event = replace(event, retriable=process.worker.exit_code in _FROM_OUTSIDE)
                _Process.end()
            yield event
    finally:
        if not ended:  # it was cancelled
            _Process.end()


def _hide_unassigned_gpus() -> None:
    """Hide all GPUs from a task for which none are reserved; Ray shows it all."""
    import ray

    if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
