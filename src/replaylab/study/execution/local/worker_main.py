"""A worker process: ``python -m replaylab.study.execution.local.worker_main``.

It reads tasks on its standard input and writes events to its standard output (`messages`), one task at a time. When
standard input closes, because the parent ended or was killed, the worker ends at once, in the middle of whatever it
does; it writes no files but checkpoints, each complete or absent.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import BinaryIO

from replaylab.study.execution.executor import CheckTask, Event, Progress, Stopped, Task, TimeTask, TrainTask
from replaylab.study.execution.local.messages import Stop, read_message, write_message
from replaylab.study.execution.worker.perform import perform, raised
from replaylab.study.execution.worker.training import StopRequest, TrainingStopped


def _read_tasks(tasks: queue.SimpleQueue[Task], source: BinaryIO, stop: StopRequest) -> None:
    while (message := read_message(source)) is not None:
        if isinstance(message, Stop):
            if not stop.heeded:
                os._exit(0)
            stop.requested = True
            continue
        assert isinstance(message, TrainTask | CheckTask | TimeTask)
        tasks.put(message)
    os._exit(0)  # no parent, no work; the main thread may be deep in training


def main() -> None:
    """Work until standard input closes."""
    source, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # code that reads input gets none, rather than the next task
    os.dup2(2, 1)  # what libraries print goes to standard error, not between the answers
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    stop = StopRequest()
    threading.Thread(target=_read_tasks, args=(tasks, source, stop), daemon=True).start()
    while True:
        task = tasks.get()
        event: Event
        try:
            event = perform(task, lambda step: write_message(answers, Progress(step)), stop)
        except TrainingStopped:
            event = Stopped()
        except BaseException as error:  # whatever the environment or the user's own code raises is an answer
            event = raised(error)
        try:
            write_message(answers, event)
        except OSError:  # the parent is gone
            os._exit(0)


if __name__ == "__main__":
    main()
