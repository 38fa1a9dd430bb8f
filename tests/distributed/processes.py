"""The processes that this one has started, with those that they have: never anybody else's."""

import os
from pathlib import Path

TRAINS = "replaylab.study.execution.local.worker_main"


def descendants(of=None):
    """Return the command line of each, by process id."""
    children, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    below, waiting = {}, [os.getpid() if of is None else of]
    while waiting:
        for child in children.get(waiting.pop(), []):
            below[child] = lines[child]
            waiting.append(child)
    return below


def busy_workers(of=None):
    """Return the Ray workers that perform a task, each with the chunk's label."""
    lines = descendants(of).items()
    return {
        pid: line.removeprefix("ray::").strip() for pid, line in lines if line.startswith("ray::") and " · " in line
    }


def training(of=None):
    """Return the processes that train for Ray workers with a task, each with the chunk's label."""
    busy = busy_workers(of).items()
    return {pid: label for worker, label in busy for pid, line in descendants(worker).items() if TRAINS in line}
