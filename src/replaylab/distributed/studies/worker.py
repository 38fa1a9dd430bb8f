"""Tasks of a study on a Ray worker, each handed to a worker process of a single machine's executor.

That process is the same as on one machine: a fresh interpreter with one thread, without Ray in it, which ends when the
Ray worker does. So the rows are the same, and a task that ends its process is not taken for a lost machine.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replaylab.distributed.own_code import unpacked
from replaylab.distributed.ray_session import check_version
from replaylab.study.execution.executor import Event, Lost, Progress, Task
from replaylab.study.execution.local.worker_process import WorkerProcess

_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM) if hasattr(signal, "SIGKILL") else ()
"""Exit codes of a process that was killed: by the kernel if memory runs short, a scheduler, or a person."""

_SECONDS_BETWEEN_LOOKS = 0.5
"""Seconds after which a waiting worker checks again whether its task was cancelled."""

_SECONDS_BETWEEN_REPORTS = 1.0
"""Seconds between two reports of progress: each wakes several of Ray's processes, for which training waits."""


@dataclass(frozen=True)
class Shipment:
    """Code that travels with a task: where it lies in Ray's store, and what it is known by."""

    digest: str
    content: tuple[Any, ...]
    """The `ray.ObjectRef` of the bytes; in a tuple, so that Ray fetches it where it is asked for, and only there."""


class _Process:
    """The process of this Ray worker, and its events."""

    current: _Process | None = None

    def __init__(self, key: object, path: Sequence[str]) -> None:
        self.key = key
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.worker = WorkerProcess(lambda _, event: self.events.put(event), path)

    @classmethod
    def of(cls, code: Shipment | None) -> _Process:
        """Return the process that is there, where it has this code and these GPUs; otherwise a new one."""
        _hide_unassigned_gpus()
        key = (code and code.digest, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if cls.current is None or cls.current.key != key or not cls.current.worker.alive:
            cls.end()
            os.environ.pop("PYTHONBREAKPOINT", None)  # Ray's own debugger, which the process could not reach
            cls.current = cls(key, [*_shipped(code), *_path()])
        return cls.current

    @classmethod
    def end(cls) -> None:
        """End the process, if there is one, with whatever it started."""
        if cls.current is not None:
            cls.current.worker.end()
            cls.current = None


atexit.register(_Process.end)


def perform_task(task: Task, code: Shipment | None, version: str) -> Iterator[Event]:
    """Yield what happens to a task, its end last.

    Args:
        task: what to do.
        code: the user's own modules that it needs, if any.
        version: of replaylab, where the study is run.

    Raises:
        ConfigError: this machine has another version of replaylab.
    """
    check_version(version)
    process = _Process.of(code)
    process.worker.send(task)
    ended, reported_at = False, -math.inf
    try:
        while not ended:
            try:
                event = process.events.get(timeout=_SECONDS_BETWEEN_LOOKS)
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
    """Let a task that no GPU was asked for see none; Ray lets it see all."""
    import ray

    if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _shipped(code: Shipment | None) -> list[str]:
    if code is None:
        return []
    import ray

    return [str(unpacked(code.digest, lambda: ray.get(code.content[0])))]


def _path() -> list[str]:
    """Return where this interpreter looks for modules, except for Ray's own places."""
    import ray

    library = str(Path(ray.__file__).parent)
    return [path for path in sys.path if path and not path.startswith(library)]
