"""Checks that chunks can be trained, before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from replaylab import errors
from replaylab.errors import MissingExtraError, NonFiniteError, ReplayError, SpecError
from replaylab.number_format import counted
from replaylab.study.execution.executor import CheckTask, Event, Executor, Lost, Raised
from replaylab.study.execution.task_queue import TaskQueue
from replaylab.study.plan import Chunk


def largest_of_each(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return a chunk with the most seeds for each environment, learner and strategy, in their order.

    Such chunks differ only in their seeds, of which only the number matters to `check_chunk`: several seeds must
    satisfy every rule for one seed, and more.
    """
    largest: dict[tuple[str, str, str], Chunk] = {}
    for chunk in chunks:
        largest_so_far = largest.setdefault(chunk.key, chunk)
        if len(chunk.seeds) > len(largest_so_far.seeds):
            largest[chunk.key] = chunk
    return list(largest.values())


def check_all(chunks: Sequence[Chunk], executor: Executor, activity: Callable[[str], None]) -> None:
    """Raise one error that names every chunk that cannot be run, with the traceback of custom code that raises.

    They are tried where they would be trained: what hangs, crashes or exits in a worker can be ended, and does not end
    this process.

    Args:
        chunks: One of each kind.
        executor: Where they are tried.
        activity: Shows how many are checked, as it may take minutes.
    """
    cells = counted(len(chunks), "cell")
    activity(f"checking {cells}")
    events: dict[int, Event] = {}
    queue = TaskQueue(executor)

    def checked(index: int, event: Event) -> None:
        events[index] = event
        activity(f"checked {len(events)} of {cells}")

    for index, chunk in enumerate(chunks):
        queue.put(CheckTask(chunk), partial(checked, index))
    queue.run()
    refused = [(chunk, events[i]) for i, chunk in enumerate(chunks) if isinstance(events[i], Raised | Lost)]
    if refused:
        raise _refusal(refused)


def _refusal(refused: Sequence[tuple[Chunk, Event]]) -> ReplayError:
    """Return the error for chunks that cannot be run: a line for each reason, then the tracebacks of custom code."""
    labels: dict[str, list[str]] = {}
    tracebacks: dict[str, str] = {}
    for chunk, event in refused:
        match event:
            case Raised(refused=None):
                reason = _raised_at(event.traceback)
                tracebacks.setdefault(reason, event.traceback.rstrip())
            case Raised():
                reason = event.message
            case Lost():
                reason = " ".join(filter(None, [f"{event.reason} while this was checked.", event.advice]))
        label = f"{chunk.label} cannot be run: "
        labels.setdefault(reason.removeprefix(label), []).append(chunk.label)
    lines = [f"{_and_more(of)} cannot be run: {reason}" for reason, of in labels.items()]
    first = refused[0][1]
    named = first.refused if isinstance(first, Raised) else None
    return _error_named(named or "SpecError")("\n".join([*lines, *tracebacks.values()]))


def _and_more(labels: Sequence[str]) -> str:
    """Name a chunk, and count those with the same fault."""
    return labels[0] if len(labels) == 1 else f"{labels[0]}, and {len(labels) - 1} more like it,"


def _raised_at(trace: str) -> str:
    """Return the error of a traceback in one line, with its file and line number."""
    *_, last = trace.strip().splitlines()
    places = re.findall(r'^  File "(.+)", line (\d+)', trace, re.MULTILINE)
    return f"{last} ({places[-1][0]}, line {places[-1][1]})" if places else last


def check_chunk(chunk: Chunk) -> None:
    """Raise the error that training would soon end with, if any, by training it briefly.

    If custom code raises with the first seed of several, the last one is tried: an error of one seed is no refusal, as
    the run itself reports it and the other seeds continue.

    Raises:
        SpecError: As `replaylab.learners.training.preflight.check_trainable`, with the chunk named.
        MissingExtraError: What it needs is not installed.
        Exception: Whatever the environment's or other custom code raises.
    """
    if len(chunk.seeds) > 1:
        try:
            _try(chunk, chunk.seeds[0])
        except ReplayError:
            raise
        except (Exception, SystemExit):
            pass
        else:
            return
    _try(chunk, chunk.seeds[-1])


def _try(chunk: Chunk, seed: int) -> None:
    from replaylab.learners.training.preflight import check_trainable

    try:
        check_trainable(chunk.configuration(), replicas=len(chunk.seeds), seed=seed)
    except MissingExtraError:
        raise
    except NonFiniteError:  # perhaps of this seed only: its own run reports it
        return
    except ReplayError as error:
        raise SpecError(f"{chunk.label} cannot be run: {error}") from error


def _error_named(name: str) -> type[ReplayError]:
    """Return the library's error of a name; of a name that it does not have, as another version might, `SpecError`."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, ReplayError) else SpecError
