"""Numbers that change over a run: a function of progress, from 0 at its start to 1 at its end."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab import arguments
from replaylab.arguments import (
    FINITE,
    InvalidArgument,
    Rule,
    check,
    checked,
    number,
    optional,
    returned,
    takes,
    tuple_of,
    whole,
)
from replaylab.errors import ConfigError
from replaylab.replay.data.arrays import checked_progress

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
class _Ramp(Schedule):
    """A number that goes from `start` to `end`, then stays."""

    start: float
    end: float
    until: float = 1.0
    steps: int | None = None

    def __post_init__(self) -> None:
        check(self, start=FINITE, end=FINITE, until=UNTIL, steps=optional(whole()))
        if self.steps is not None and self.until != 1.0:
            raise ConfigError(
                f"`until` of {type(self).__name__} must be left out where `steps` says when it ends, but got "
                f"until={self.until}, steps={self.steps}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The two ends, in order."""
        return min(self.start, self.end), max(self.start, self.end)

    def _share(self, progress: float) -> float:
        """Return how much of the way is behind, in [0, 1].

        Raises:
            ConfigError: The way is in environment steps, and their number was not passed.
        """
        if self.steps is None:
            return min(max(progress / self.until, 0.0), 1.0)
        steps = getattr(progress, "steps", None)
        if steps is None and progress > 0.0:
            raise ConfigError(
                f"{self!r} goes by environment steps, but only progress={progress} was passed; pass "
                "Progress(share, steps=...), or write the schedule with `until` in place of `steps`"
            )
        return min(max((steps or 0) / self.steps, 0.0), 1.0)


@dataclass(frozen=True)
class Linear(_Ramp):
    """A straight line from `start` to `end`, then flat.

    Attributes:
        start: The value at the beginning.
        end: The value from `until`, or `steps`, on.
        until: The progress in (0, 1] at which `end` is reached. Default: 1.0.
        steps: Instead of `until`, the environment steps of one environment after which `end` is reached, whatever the
            budget is; `train` and studies pass the steps so far, your own loop passes `Progress`. Default: None.

    Example:
        >>> Linear(1.0, 0.05, until=0.5)(0.25)
        0.525
        >>> from replaylab.replay import Progress
        >>> Linear(1.0, 0.05, steps=950)(Progress(0.1, steps=475))
        0.525
    """

    def __call__(self, progress: float) -> float:
        """Return start + (end − start)·min(progress / until, 1)."""
        return self.start + (self.end - self.start) * self._share(progress)


@dataclass(frozen=True)
class Exponential(_Ramp):
    """A geometric decay from `start` to `end`, then flat; attributes: those of `Linear`.

    Example:
        >>> round(Exponential(1.0, 0.01)(0.5), 9)
        0.1
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.start > 0.0 and self.end > 0.0):
            raise ConfigError(
                f"`start` and `end` of an Exponential schedule must be positive, but got "
                f"(start={self.start}, end={self.end}); use Linear to reach 0"
            )

    def __call__(self, progress: float) -> float:
        """Return start·(end / start)^min(progress / until, 1)."""
        return self.start * math.pow(self.end / self.start, self._share(progress))


@dataclass(frozen=True)
class Table(Schedule):
    """Straight lines between values at given progress; flat before the first and after the last.

    Attributes:
        progress: At least two numbers in [0, 1], ascending.
        values: The value at each of them.

    Example:
        >>> Table(progress=(0.0, 0.5, 1.0), values=(0.1, 0.3, 0.1))(0.25)
        0.2
    """

    progress: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check(self, progress=tuple_of(arguments.FRACTION, "two or more numbers in [0, 1]", 2))
        count = len(self.progress)
        check(self, values=tuple_of(FINITE, f"{count} numbers, one for each `progress`", count, count))
        if any(b <= a for a, b in pairwise(self.progress)):
            raise ConfigError(f"`progress` of Table must ascend, but got {self.progress}")

    def __call__(self, progress: float) -> float:
        """Return the value on the line between its neighbors."""
        return float(np.interp(progress, self.progress, self.values))

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return min(self.values), max(self.values)


_OURS = (Constant, Linear, Exponential, Table)


@takes(rule=arguments.function("a value"))
def scheduled(rule: Rule[float]) -> Rule[float | Schedule]:
    """Return the rule of an option that may change over a run: a number that keeps a rule, or a schedule that does.

    Args:
        rule: A rule for numbers, from `replaylab.arguments` or a custom function of the same kind.

    Returns:
        A rule: it returns the number or the schedule that it is given, and refuses others as `rule` does.
    """

    def take(value: Any) -> float | Schedule:
        if not isinstance(value, Schedule):
            return rule(value)
        for end in (value if type(value) in (*_OURS, _Checked) else _Checked(value)).bounds:
            rule(end)
        return value

    return take


@takes(value=scheduled(FINITE))
def as_schedule(value: float | Schedule) -> Schedule:
    """Return a number as a constant schedule, and a schedule as one whose values are checked.

    A custom schedule that returns something other than a number within its `bounds` raises ConfigError.

    Example:
        >>> as_schedule(0.4)(0.9), as_schedule(Linear(0.4, 1.0))(0.5)
        (0.4, 0.7)
    """
    if not isinstance(value, Schedule):
        return Constant(float(value))
    return value if type(value) in (*_OURS, _Checked) else _Checked(value)


class Schedules:
    """The scheduled numbers of a replay's sampler, for custom replays and wrappers.

    A draw without `progress` uses the numbers of the start, and the first such draw warns.

    Args:
        sampler: The sampler's name, for the warning.
        values: The sampler's `schedules`.
        remedy: How to pass progress, for the warning.
        replicas: R, None: progress is one number.

    Attributes:
        constant: The numbers, if none changes over a run; else None.

    Example:
        >>> Schedules("Prioritized", [Linear(0.4, 1.0)]).at(0.5)
        [0.7]
    """

    @takes(
        sampler=arguments.text,
        values=arguments.tuple_of(scheduled(FINITE), "numbers or schedules"),
        remedy=arguments.text,
        replicas=optional(whole(most=arguments.LARGEST_AXIS)),
    )
    def __init__(
        self,
        sampler: str,
        values: Sequence[float | Schedule],
        remedy: str = "pass progress=step / total_steps to each `sample`",
        replicas: int | None = None,
    ) -> None:
        self._sampler, self._remedy, self._replicas = sampler, remedy, replicas
        self._schedules = [as_schedule(value) for value in values]
        self._changing = next((schedule for schedule in self._schedules if changes(schedule)), None)
        self.constant = [schedule(0.0) for schedule in self._schedules] if self._changing is None else None

    def progress(self, progress: float | None) -> float | None:
        """Return the progress that was passed; 0 instead of None if a number changes over a run.

        Raises:
            ConfigError: It is not in [0, 1].
        """
        return checked("progress", progress, optional(arguments.FRACTION)) if progress is not None else self._start()

    def at(self, progress: npt.ArrayLike | None) -> list[float]:
        """Return all numbers at this progress, one number or one for each replica (R,): replica by replica.

        Raises:
            ConfigError: `progress` is not in [0, 1], or a schedule returned an invalid number.
        """
        if progress is None and self.constant is not None:
            return self.constant
        moments = checked_progress(cast("float", self._start() if progress is None else progress), self._replicas)
        if self.constant is not None:
            return self.constant
        return [schedule(moment) for moment in moments for schedule in self._schedules]

    def _start(self) -> float | None:
        """Return the progress of a draw that passes none, and warn the first time."""
        if self._changing is None:
            return None
        if self._remedy:
            remedy, self._remedy = self._remedy, ""
            warnings.warn(
                f"{self._sampler} follows the schedule {arguments.shown(self._changing)}, which stays at its start "
                f"value {self._changing(0.0)} because `progress` was not passed; {remedy} (0: training begins, 1: it "
                "ends), or use a constant number instead of the schedule",
                stacklevel=5,
            )
        return 0.0


def changes(value: float | Schedule) -> bool:
    """Whether a number changes over a run."""
    least, most = as_schedule(value).bounds
    return least < most


@dataclass(frozen=True)
class _Checked(Schedule):
    """A custom schedule, whose values and bounds are checked."""

    schedule: Schedule

    def __call__(self, progress: float) -> float:
        """Return the value.

        Raises:
            ConfigError: It is not a number within the bounds.
        """
        least, most = self.bounds
        slack = 1e-9 * max(abs(least), abs(most))  # of rounding
        rule = f"a number within its bounds, {least} to {most}"
        within = number(rule, lambda value: least - slack <= value <= most + slack)
        name = f"the schedule {type(self.schedule).__name__}, called with {progress},"
        return returned(name, self.schedule(progress), within)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds.

        Raises:
            ConfigError: They are not two finite numbers, the smaller one first.
        """
        return returned(f"`bounds` of {type(self.schedule).__name__}", self.schedule.bounds, _two_numbers)

    def __repr__(self) -> str:
        return repr(self.schedule)


def _two_numbers(value: Any) -> tuple[float, float]:
    rule = "two finite numbers, the smaller one first"
    try:
        least, most = value
        bounds = FINITE(least), FINITE(most)
    except (TypeError, ValueError, InvalidArgument):
        raise InvalidArgument(rule) from None
    if bounds[0] > bounds[1]:
        raise InvalidArgument(rule)
    return bounds
