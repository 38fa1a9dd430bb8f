"""The interface of progress reporters, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from replaylab.study.plan import Chunk


@dataclass(frozen=True)
class Failure:
    """A chunk that did not finish, or its seeds that raise when they are trained separately, and the reason."""

    chunk: Chunk
    traceback: str

    @property
    def reason(self) -> str:
        """Last line of the traceback."""
        return self.traceback.strip().splitlines()[-1]


@runtime_checkable
class Reporter(Protocol):
    """Receives a run's progress; `replaylab.study.execution.progress` has one for terminals and one for plain lines."""

    def note(self, line: str) -> None:
        """Something is worth a line."""

    def activity(self, line: str) -> None:
        """Something lasts besides training, such as a check, until `begin` or `end`; the line may change meanwhile."""

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Work starts: ``done`` chunks were there already."""

    def progress(self, chunk: Chunk, step: int) -> None:
        """Every run of the chunk has taken ``step`` environment steps."""

    def finished(self, chunk: Chunk, seconds: float) -> None:
        """The chunk's file is in place."""

    def diverged(self, chunk: Chunk, seeds: Sequence[int]) -> None:
        """The networks of these seeds of a finished chunk learned from no numbers any more."""

    def split(self, chunk: Chunk) -> None:
        """The chunk raised; now its seeds are trained separately, and each finishes as a chunk, or fails.

        Separate seeds report no progress, and those that raise again are one failure.
        """

    def failed(self, failure: Failure) -> None:
        """The chunk will not finish in this run."""

    def end(self) -> None:
        """The activity or the training is over, was refused, or was interrupted."""
