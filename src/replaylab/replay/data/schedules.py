"""Numbers that change over a run: a function of progress, from 0 at its start to 1 at its end."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from replaylab.arguments import FINITE, Rule, check, function, number, takes
from replaylab.errors import ConfigError

UNTIL = number("a progress in (0, 1] (1: the whole run)", lambda until: 0.0 < until <= 1.0)


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
        check(self, value=FINITE)

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
        check(self, start=FINITE, end=FINITE, until=UNTIL)

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
        check(self, start=FINITE, end=FINITE, until=UNTIL)
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


@takes(rule=function("a value"))
def scheduled(rule: Rule[float]) -> Rule[float | Schedule]:
    """Return the rule of an option that may change over a run: a number that keeps a rule, or a schedule that does.

    Args:
        rule: Of numbers, one of `replaylab.arguments` or a function of its kind.

    Returns:
        A rule: it returns the number or the schedule that it is given, and refuses others as `rule` does.
    """

    def take(value: Any) -> float | Schedule:
        if not isinstance(value, Schedule):
            return rule(value)
        for end in value.bounds:
            rule(end)
        return value

    return take


@takes(value=scheduled(FINITE))
def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule as it is, and a number as a constant one.

    Example:
        >>> as_schedule(0.4)(0.9), as_schedule(Linear(0.4, 1.0))(0.5)
        (0.4, 0.7)
    """
    return value if isinstance(value, Schedule) else Constant(float(value))
