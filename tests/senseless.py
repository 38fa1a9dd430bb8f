"""Calls with one senseless argument each: refused by one of the library's own errors, or accepted as the table says."""

import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

import numpy as np

from replaylab.errors import ReplayError

SENSELESS = {
    "None": None,
    "text": "x",
    "-1": -1,
    "0": 0,
    "3.5": 3.5,
    "huge": 10**30,
    "nan": float("nan"),
    "inf": float("inf"),
    "[]": [],
    "{}": {},
    "object": object(),
    "nul": "a\0b",
    "True": True,
}
TRUTH = "0 True"
"""Valid values of a flag."""
NUMBERS = "-1 0 3.5 huge"
"""Valid values of any finite number."""
ARRAY = "-1 0 3.5 nan inf True"
"""Values that can be stored as a number."""
SEED = "None 0 huge"
ANY = " ".join(SENSELESS)
SECONDS = 60
SHAPES = ((1,), (7,), (3, 5), (1, 1), (2, 1), (2, 3, 4), (0, 3), (4, 0), (4, 3))


@dataclass(frozen=True)
class Call:
    """A call that is well.

    Attributes:
        function: What is called; where it needs an object, `make` makes one, whose method of this name it is.
        valid: Its arguments, or a function that makes them again.
        accepts: By an argument's name, the senseless values that it may be.
        make: See `function`.
        use: Called with what comes out, such as an iterator.
        passed_on: Arguments that are handed on to somebody else, whose errors come out.
        called: By an argument's name, a regular expression of what messages call it, where that is not `name`.
    """

    function: Callable[..., Any] | str
    valid: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)
    accepts: Mapping[str, str] = field(default_factory=dict)
    make: Callable[[], Any] | None = None
    use: Callable[[Any], Any] = lambda result: result
    passed_on: tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.function if isinstance(self.function, str) else self.function.__qualname__

    def arguments(self) -> dict[str, Any]:
        return dict(self.valid() if callable(self.valid) else self.valid)

    def target(self) -> Callable[..., Any]:
        return getattr(self.make(), self.function) if self.make and isinstance(self.function, str) else self.function

    def names(self) -> list[str]:
        try:
            named = list(signature(self.target()).parameters.values())
            fixed = [name.name for name in named if name.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)]
        except ValueError:  # written in C++
            fixed = list(self.accepts)
        return [name for name in dict.fromkeys([*fixed, *self.arguments()]) if name not in self.passed_on]

    def __call__(self, **changes: Any) -> Any:
        with limited():
            return self.use(self.target()(**{**self.arguments(), **changes}))


@contextmanager
def limited() -> Iterator[None]:
    """Raise where a call hangs."""

    def hangs(*_: Any) -> None:
        raise TimeoutError(f"still under way after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrongs(call: Call, *, named: bool = False) -> list[str]:
    """Return what is wrong with the call's answers to senseless arguments; `named`: they must name the argument."""
    call()
    names = call.names()
    problems: list[str] = []
    for name in names:
        accepted = call.accepts.get(name, "").split()
        for label, value in SENSELESS.items():
            what = f"{call.name}({name}={label})"
            try:
                call(**{name: value})
            except ReplayError as error:
                if label in accepted:
                    problems.append(f"{what}: refused with {error}")
                elif len(str(error)) > 1500:
                    problems.append(f"{what}: {len(str(error))} letters of message")
                elif named and not re.search(call.called.get(name, f"`{name}`"), str(error)):
                    problems.append(f"{what}: not named in {error}")
            except Exception as error:
                problems.append(f"{what}: {type(error).__name__}: {str(error)[:150]}")
            else:
                if label not in accepted:
                    problems.append(f"{what}: accepted")
    return problems


def misshapen(call: Call) -> list[str]:
    """Return what is wrong with the call's answers to arrays of other shapes: they fit, or are refused."""
    call()
    problems = []
    arrays = [name for name, value in call.arguments().items() if isinstance(value, list | np.ndarray)]
    for name in arrays:
        for array in (*map(np.ones, SHAPES), np.full((4, 3), np.nan)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # 0 / 0 where there is nothing to tell
                    call(**{name: array})
            except ReplayError:
                continue
            except Exception as error:
                problems.append(f"{call.name}({name} of shape {array.shape}): {type(error).__name__}: {error}")
    return problems
