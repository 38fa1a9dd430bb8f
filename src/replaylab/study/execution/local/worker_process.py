"""A worker process, seen from its parent: a job goes in, messages come out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from replaylab.study.plan.populations import Population

ENDED = "ended"
"""Event of the message that stands for a worker that died; its ``how`` says of what."""

_SECONDS_TO_END = 10.0


class WorkerProcess:
    """A process that waits for jobs: JSON lines in, JSON lines out (`replaylab.study.execution.worker`).

    It has a session of its own, so that Ctrl-C reaches the parent alone, and so that whatever it has started itself is
    killed with it.
    """

    def __init__(self) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "replaylab.study.execution.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,
        )
        self._killed = False

    def ask(
        self, population: Population, on_progress: Callable[[dict[str, Any]], None] | None = None, **job: Any
    ) -> dict[str, Any]:
        """Give it a population and return its last message; of a worker that dies, an `ENDED` one.

        Args:
            population: what the job is about.
            on_progress: hears of the messages before the last one.
            **job: what is to be done, see `replaylab.study.execution.worker`.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"population": population.model_dump(mode="json"), **job}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                message: dict[str, Any] = json.loads(line)
                if message["event"] != "progress":
                    return message
                if on_progress is not None:
                    on_progress(message)
        except (BrokenPipeError, json.JSONDecodeError):
            pass  # it died while being spoken to, or in the middle of a line
        with contextlib.suppress(subprocess.TimeoutExpired):
            return {"event": ENDED, "how": _ending(process.wait(_SECONDS_TO_END))}
        return {"event": ENDED, "how": "stopped answering"}

    def kill(self) -> None:
        """Kill it, and what it has started; from any thread, and more than once."""
        if not self._killed and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True
        self._process.kill()

    def end(self) -> None:
        """Kill it and wait until it is gone."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]  # both are there


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
