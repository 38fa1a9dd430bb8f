"""Numbers that change over a run: a function of progress, from 0 at its start to 1 at its end."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from replaylab.errors import ConfigError
from replaylab.replay.arrays import check_option


class Schedule(ABC):
    """A number as a function of training progress in [0, 1]."""

    @abstractmethod
    def __call__(self, progress: float) -> float:
        """Return the value at this progress (0: the run begins, 1: it ends)."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value the schedule takes."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same value throughout.

    Example:
        >>> Constant(0.4)(0.9)
        0.4
    """

    value: float

    def __post_init__(self) -> None:
        check_option(self, "value", "a finite number", lambda: math.isfinite(self.value))

    def __call__(self, progress: float) -> float:  # noqa: ARG002
        """Return the value."""
        return self.value

    @property
    def bounds(self) -> tuple[float, float]:
        """The value, twice."""
        return self.value, self.value


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start` to `end` at progress `until`, then flat.

    Example:
        >>> Linear(1.0, 0.05, until=0.5)(0.25)
        0.525
    """

    start: float
    end: float
    until: float = 1.0

    def __post_init__(self) -> None:
        check_option(self, "start", "a finite number", lambda: math.isfinite(self.start))
        check_option(self, "end", "a finite number", lambda: math.isfinite(self.end))
        _check_until(self.until)

    def __call__(self, progress: float) -> float:
        """Return start + (end − start)·min(progress / until, 1)."""
        return self.start + (self.end - self.start) * min(progress / self.until, 1.0)

    @property
    def bounds(self) -> tuple[float, float]:
        """The two ends, in order."""
        return min(self.start, self.end), max(self.start, self.end)


@dataclass(frozen=True)
class Exponential(Schedule):
    """A geometric decay from `start` to `end` at progress `until`, then flat.

    Example:
        >>> round(Exponential(1.0, 0.01)(0.5), 9)
        0.1
    """

    start: float
    end: float
    until: float = 1.0

    def __post_init__(self) -> None:
        check_option(self, "start", "a finite number", lambda: math.isfinite(self.start))
        check_option(self, "end", "a finite number", lambda: math.isfinite(self.end))
        _check_until(self.until)
        if not (self.start > 0.0 and self.end > 0.0):
            raise ConfigError(
                f"`start` and `end` of an Exponential schedule must be positive, but got "
                f"(start={self.start}, end={self.end}); use Linear to reach 0"
            )

    def __call__(self, progress: float) -> float:
        """Return start·(end / start)^min(progress / until, 1)."""
        return self.start * math.pow(self.end / self.start, min(progress / self.until, 1.0))

    @property
    def bounds(self) -> tuple[float, float]:
        """The two ends, in order."""
        return min(self.start, self.end), max(self.start, self.end)


def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule as it is, and a number as a constant one."""
    return value if isinstance(value, Schedule) else Constant(float(value))


def _check_until(until: float) -> None:
    if not 0.0 < until <= 1.0:
        raise ConfigError(f"`until` must be a progress in (0, 1], but got {until}; 1 means the whole run")
