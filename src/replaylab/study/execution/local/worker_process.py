"""A worker process as its parent uses it: tasks in, events out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from replaylab.study.execution.executor import Event, Finished, Lost, Progress, Raised, Stopped, Task
from replaylab.study.execution.local.messages import Message, Stop, read_message, write_message
from replaylab.study.results.provenance import this_machine

_SECONDS_TO_END = 10.0

_OUT_OF_MEMORY = (
    "The machine has most likely run out of memory. Run fewer workers (--workers), or lower `capacity` or "
    "`chunk_size`, and run the same command again."
)


class WorkerProcess:
    """A process that performs tasks, one at a time (`replaylab.study.execution.local.worker_main`).

    It has its own session, so that Ctrl-C reaches only the parent, and so that its own child processes are killed with
    it. It is a fresh interpreter, and holds no state between tasks.
    """

    def __init__(self, on_event: Callable[[WorkerProcess, Event], None], path: Sequence[str] | None = None) -> None:
        """Start it.

        Args:
            on_event: called from a thread of this object with what happens, and at last with `Lost`: the process ended.
            path: where it looks for modules, and not in the current folder first; None: where this process does.
        """
        environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        if path is not None:
            environment["PYTHONSAFEPATH"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "replaylab.study.execution.local.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in path or sys.path if p)},
            start_new_session=True,
        )
        self._killed = self._mute = False
        self._on_event = on_event
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._watcher = threading.Thread(target=self._report_end, daemon=True)
        self._watcher.start()

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code as in `subprocess.Popen.returncode`; None: the process is running."""
        return self._process.poll()

    def send(self, task: Task) -> None:
        """Send a task to the process; if the process has ended, its end is reported instead."""
        self._write(task)

    def stop(self) -> None:
        """Ask it to write a checkpoint of its task and end it; without checkpoints the process ends."""
        self._write(Stop())

    def _write(self, message: Message) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            write_message(self._process.stdin, message)  # type: ignore[arg-type]  # typeshed: IO[Any]

    def kill(self) -> None:
        """Kill the process and its child processes; it can be called more than once."""
        if not self._killed and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True
        self._process.kill()

    def end(self) -> None:
        """Kill it and wait until it is gone."""
        self.kill()
        self._process.wait()
        self._watcher.join()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # type: ignore[union-attr]  # it is there

    def _listen(self) -> None:
        """Pass on its events until its pipe ends; then kill it if it does not end."""
        stdout: Any = self._process.stdout
        with stdout:
            with contextlib.suppress(ValueError, OSError):  # a message was cut off, or someone else wrote there
                while (message := read_message(stdout)) is not None:
                    assert isinstance(message, Progress | Finished | Stopped | Raised)
                    self._on_event(self, message)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_END)
                return
            self._mute = True
            self._process.kill()

    def _report_end(self) -> None:
        """Wait for the end of the process, and report it last; a forked child may hold its pipe open."""
        code = self._process.wait()
        self.kill()
        self._listener.join(_SECONDS_TO_END)
        how = "stopped answering" if self._mute else _ending(code)
        advice = _OUT_OF_MEMORY if code == -signal.SIGKILL else ""
        self._on_event(self, Lost(f"The worker process {how}", machine=this_machine(), advice=advice))


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
