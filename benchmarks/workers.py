"""Worker processes of a benchmark, spoken to through pipes."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def workers(count: int, work: Callable[[Connection], None]) -> Iterator[list[Connection]]:
    """Start so many new processes that do what comes through their pipes, until None comes; yield our ends."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(count):
        here, child_end = context.Pipe()
        processes.append(context.Process(target=work, args=(child_end,), daemon=True))
        processes[-1].start()
        child_end.close()  # so that a worker that dies ends the wait for it
        pipes.append(here)
    yield pipes
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
