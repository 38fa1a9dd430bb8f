"""What hears of a run's progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from replaylab.study.plan.populations import Population


@dataclass(frozen=True)
class Failure:
    """A population that did not finish, or the seeds of it that raise when they are trained alone, and why."""

    population: Population
    traceback: str


@runtime_checkable
class Reporter(Protocol):
    """Hears of a run's progress; `replaylab.study.execution.progress` has one for terminals and one for plain lines."""

    def begin(self, todo: Sequence[Population], done: Sequence[Population], workers: int) -> None:
        """Work starts: ``done`` populations were there already."""

    def progress(self, population: Population, step: int) -> None:
        """Every run of the population has taken ``step`` environment steps."""

    def finished(self, population: Population, seconds: float) -> None:
        """The population's file is in place."""

    def diverged(self, population: Population, seeds: Sequence[int]) -> None:
        """The networks of these seeds of a finished population learned from no numbers any more."""

    def split(self, population: Population) -> None:
        """The population raised; now its seeds are trained alone, each a population that finishes, or all as failures.

        Alone they tell of no progress, and those that raise again are one failure.
        """

    def failed(self, failure: Failure) -> None:
        """The population will not finish in this run."""

    def end(self) -> None:
        """Work is over, or was interrupted."""
