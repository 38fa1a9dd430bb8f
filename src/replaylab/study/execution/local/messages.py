"""Tasks and events between a process and its workers: a line of JSON each, and after it the fields that are bytes.

The line holds the message's type, its other fields, and how many bytes of which field follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from replaylab.study.execution.executor import (
    CheckTask,
    Finished,
    Lost,
    Progress,
    Raised,
    Stopped,
    Task,
    TimeTask,
    TrainTask,
)
from replaylab.study.plan import Chunk
from replaylab.study.results.provenance import Machine


@dataclass(frozen=True)
class Stop:
    """Write a checkpoint of the task at work, if it writes any, and end it."""


Message = Task | Stop | Progress | Finished | Stopped | Raised | Lost

_TYPES = {
    kind.__name__: kind for kind in (TrainTask, CheckTask, TimeTask, Stop, Progress, Finished, Stopped, Raised, Lost)
}
_NESTED: dict[str, Callable[[Any], Any]] = {
    "chunk": Chunk.model_validate,
    "machine": lambda fields: None if fields is None else Machine(**fields),
}


def write_message(stream: BinaryIO, message: Message) -> None:
    """Write a message and flush it."""
    contents = {name: value for name, value in vars(message).items() if isinstance(value, bytes)}
    fields = {name: value for name, value in vars(message).items() if name not in contents}
    lengths = {name: len(content) for name, content in contents.items()}
    head = {"message": type(message).__name__, "fields": fields, "bytes": lengths}
    stream.write(b"".join([json.dumps(head, default=_plain).encode(), b"\n", *contents.values()]))
    stream.flush()


def read_message(stream: BinaryIO) -> Message | None:
    """Return the next message; None: the stream has ended, if need be in the middle of one.

    Raises:
        ValueError: what came is no message.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        head = json.loads(line)
        kind = _TYPES[head["message"]]
        fields = {name: _NESTED.get(name, lambda value: value)(value) for name, value in head["fields"].items()}
        for name, length in head["bytes"].items():
            fields[name] = stream.read(length)
            if len(fields[name]) < length:
                return None
        message: Message = kind(**fields)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no message: {line[:80]!r}") from error
    return message


def _plain(record: Chunk | Machine) -> dict[str, Any]:
    return record.model_dump() if isinstance(record, Chunk) else asdict(record)  # mode="json" makes infinities None
