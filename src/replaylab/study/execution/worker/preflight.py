"""Checks that chunks can be trained, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from replaylab import errors
from replaylab.errors import MissingExtraError, NonFiniteError, ReplayError, SpecError
from replaylab.study.execution.executor import CheckTask, Event, Executor, Raised
from replaylab.study.execution.task_queue import TaskQueue
from replaylab.study.plan.chunks import Chunk


def largest_of_each(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return of each environment, learner and strategy a chunk with the most seeds, in their order.

    Chunks of these three differ in their seeds alone, of which only the number matters to `check_chunk`:
    several seeds must fit whatever one must, and more.
    """
    largest: dict[tuple[str, str, str], Chunk] = {}
    for chunk in chunks:
        largest_so_far = largest.setdefault(chunk.key, chunk)
        if len(chunk.seeds) > len(largest_so_far.seeds):
            largest[chunk.key] = chunk
    return list(largest.values())


def check_all(chunks: Iterable[Chunk], executor: Executor) -> None:
    """Raise as `check_chunk` does for the first chunk that cannot be run.

    They are tried where they would be trained: what hangs, crashes or exits in a worker can be ended, and does not end
    this process. A task that ends its worker is not refused: its own run reports that.
    """
    events: dict[int, Event] = {}
    passed = 0
    queue = TaskQueue(executor)

    def checked(index: int, event: Event) -> None:
        nonlocal passed
        events[index] = event
        while passed in events:  # in their order, however they end
            first = events[passed]
            if isinstance(first, Raised) and first.refused is not None:
                raise _error_named(first.refused)(first.message)
            passed += 1

    for index, chunk in enumerate(chunks):
        queue.put(CheckTask(chunk), partial(checked, index))
    queue.run()


def check_chunk(chunk: Chunk) -> None:
    """Raise the error that training would soon end with, if any, by training a little of it.

    What breaks in the environment's or the user's own code is not such an error: the run itself reports it with its
    traceback, and others continue.

    Raises:
        SpecError: as `replaylab.learners.training.preflight.check_trainable`, with the chunk named.
        MissingExtraError: what it needs is not installed.
    """
    from replaylab.learners.training.preflight import check_trainable

    try:
        check_trainable(chunk.configuration(), replicas=len(chunk.seeds))
    except MissingExtraError:
        raise
    except NonFiniteError:  # of one seed, which may not even be the study's: its own run reports it
        return
    except ReplayError as error:
        raise SpecError(f"{chunk.label} cannot be run: {error}") from error
    except (Exception, SystemExit):  # its own run reports it, with its traceback
        return


def _error_named(name: str) -> type[ReplayError]:
    """Return the library's error of a name; of a name that it does not have, as another version might, `SpecError`."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, ReplayError) else SpecError
