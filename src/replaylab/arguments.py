"""One way of checking arguments: what each must be, stated once, in code and in words.

A rule is a function that takes a value and returns it in plain Python: NumPy's numbers become int, float and bool,
lists become tuples. So equal configurations are equal, and can be saved. It refuses a value that breaks the rule with
`Unfit`. Rules are applied to the options of a frozen configuration by `check`, to the arguments of a function by
`takes`, and to one value by `checked`; these make the error, which names argument, rule and value. `sample`, `add` and
other methods that are called at every step have faster checks, in `replaylab.replay.data.arrays`.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from numbers import Real
from operator import index
from os import PathLike, fspath
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from replaylab.errors import ConfigError, DtypeError, ReplayError, ShapeError

P = ParamSpec("P")
T = TypeVar("T")
Made = TypeVar("Made")
Rule = Callable[[Any], T]

LARGEST = 2**62
"""The largest count that is accepted."""

LARGEST_AXIS = 2**31 - 1
"""The longest axis of a batch that is accepted: rows, replicas or environments."""


class Unfit(Exception):  # noqa: N818 - callers never see it: it becomes one of the library's errors
    """What a value must be, and is not; with the kind of error that is to be raised for it."""

    def __init__(self, rule: str, error: type[ReplayError] = ConfigError) -> None:
        super().__init__(rule)
        self.error = error


def checked(name: str, value: Any, rule: Rule[T], owner: str = "") -> T:
    """Return the value as its rule takes it.

    Args:
        name: The argument's.
        value: What came.
        rule: What it must be.
        owner: Whose argument it is, if that is to be said.

    Raises:
        ConfigError: It does not keep the rule; or the error that the rule asks for.
    """
    try:
        return rule(value)
    except Unfit as unfit:
        of = f" of {owner}" if owner else ""
        raise unfit.error(f"`{name}`{of} must be {unfit}, but got {shown(value)}") from None


def check(config: object, owner: str | None = None, /, **rules: Rule[Any]) -> None:
    """Check options of a frozen configuration, and put what its rules make of them in their places.

    `owner` is whose options they are, None: the configuration's.

    Raises:
        ConfigError: One does not keep its rule.
    """
    owner = type(config).__name__ if owner is None else owner
    for name, rule in rules.items():
        object.__setattr__(config, name, checked(name, getattr(config, name), rule, owner))


def takes(**rules: Rule[Any]) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """Check the arguments that a function is given, and hand it what its rules make of them."""

    def decorate(function: Callable[P, Made]) -> Callable[P, Made]:
        parameters = signature(function).parameters
        unknown = rules.keys() - parameters.keys()
        assert not unknown, f"{function.__qualname__} has no arguments {unknown}"

        names = [
            one.name for one in parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        shaped = {name: rule for name, rule in rules.items() if isinstance(rule, Axes) and rule.letters}

        def fit(name: str, value: Any) -> Any:
            return checked(name, value, rules[name]) if name in rules else value

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Made:
            placed = [fit(name, value) for name, value in zip(names, args, strict=False)]
            named = {name: fit(name, value) for name, value in kwargs.items()}
            if len(shaped) > 1:
                given = dict(zip(names, placed, strict=False)) | named
                check_lengths({name: (shaped[name], given[name]) for name in shaped if given.get(name) is not None})
            return function(*placed, *args[len(names) :], **named)  # type: ignore[arg-type]  # as they came

        return call

    return decorate


def shown(value: object) -> str:
    """Return a value as a message shows it, cut where it is long."""
    try:
        text = f"{value:,}" if type(value) is int else repr(value)
    except Exception:  # of any kind: the type is foreign, or a number has too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:197]}..."


def whole(least: int = 1, most: int = LARGEST) -> Rule[int]:
    """A whole number from `least` to `most`; True is none."""

    def take(value: Any) -> int:
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise Unfit("a whole number")
        if number < least:
            raise Unfit(f"at least {least}")
        if number > most:
            raise Unfit(f"at most {most:,}")
        return number

    return take


def number(rule: str, holds: Callable[[float], bool] = math.isfinite) -> Rule[float]:
    """A number that keeps a rule; a Python int stays one."""

    def take(value: Any) -> float:
        plain = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        sound = isinstance(plain, Real) and not isinstance(plain, bool)
        try:
            real = float(plain) if sound else math.nan
        except OverflowError:
            real = math.nan
        if math.isnan(real) or not holds(real):
            raise Unfit(rule)
        return plain if type(plain) is int else real

    return take


FINITE = number("a finite number")
FRACTION = number("in [0, 1]", lambda x: 0.0 <= x <= 1.0)
SHARE = number("in (0, 1]", lambda x: 0.0 < x <= 1.0)
INSIDE = number("between 0 and 1", lambda x: 0.0 < x < 1.0)
BELOW_HALF = number("between 0 and 0.5", lambda x: 0.0 < x < 0.5)
POSITIVE = number("positive and finite", lambda x: 0.0 < x < math.inf)
POSITIVE_FLOAT32 = number(
    "positive and finite, from 1.2e-38 on as 32-bit numbers are", lambda x: 2.0**-126 <= x < math.inf
)
NOT_NEGATIVE = number("finite and not negative", lambda x: 0.0 <= x < math.inf)


def flag(value: Any) -> bool:
    """True or False; 1 and 0 are accepted."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise Unfit("True or False")
    return bool(value)


def seed_number(value: Any) -> int:
    """A seed: a whole number that is not negative."""
    try:
        return whole(0, 2**512)(value)
    except Unfit:
        raise Unfit("a whole number that is not negative") from None


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise Unfit("a string")
    return str(value)


def one_of(*words: str) -> Rule[str]:
    """One of these strings."""

    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            quoted = [f'"{word}"' for word in words]
            raise Unfit(" or ".join([", ".join(quoted[:-1]), quoted[-1]][len(quoted) == 1 :]))
        return str(value)

    return take


def encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8, as the core takes it: one with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeError:
        return False
    return True


def place(of: str) -> Rule[str | PathLike[str]]:
    """The path `of` a file or a folder."""

    def take(value: Any) -> str | PathLike[str]:
        name = fspath(value) if isinstance(value, str | PathLike) else ""
        if not isinstance(name, str) or not name or "\0" in name or not encodable(name):
            raise Unfit(f"the path of {of}")
        return str(value) if isinstance(value, str) else value

    return take


def function(of: str) -> Rule[Callable[..., Any]]:
    """A function, `of` its arguments."""

    def take(value: Any) -> Callable[..., Any]:
        if not callable(value):
            raise Unfit(f"a function of {of}")
        return value  # type: ignore[no-any-return]

    return take


def instance(kind: type[T] | tuple[type[T], ...], rule: str) -> Rule[T]:
    """An instance of a class, or of one of several."""

    def take(value: Any) -> T:
        if not isinstance(value, kind):
            raise Unfit(rule)
        return value

    return take


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping of names."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Unfit("a mapping of names to values")
    return value


def tuple_of(each: Rule[T], rule: str, least: int = 0, most: int | None = None) -> Rule[tuple[T, ...]]:
    """Several values, each of which keeps a rule; a list or an array is accepted, a string is not."""

    def take(value: Any) -> tuple[T, ...]:
        if isinstance(value, np.ndarray) and value.ndim:
            value = value.tolist()
        if not isinstance(value, Sequence | Set) or isinstance(value, str | bytes):
            raise Unfit(rule)
        if not least <= len(value) <= (len(value) if most is None else most):
            raise Unfit(rule)
        try:
            return tuple(each(one) for one in value)
        except Unfit:
            raise Unfit(rule) from None

    return take


def optional(rule: Rule[T]) -> Rule[T | None]:
    """None, or what keeps a rule."""
    return lambda value: None if value is None else rule(value)


def _as_array(value: Any) -> npt.NDArray[Any]:
    """Return the array, of a tensor of PyTorch without its gradient."""
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


@dataclass(frozen=True)
class Axes:
    """Real numbers in an array whose last axes are these, as float64; `takes` compares the lengths of equal letters.

    Attributes:
        letters: The axes, none of which may be of length 0; where there are none the function checks itself.
        leading: Whether further axes may stand in front; those of several arguments must broadcast.
        finite: Whether infinities and NaN are refused.
    """

    letters: tuple[str, ...]
    leading: bool = True
    finite: bool = False

    def __call__(self, value: Any) -> npt.NDArray[np.float64]:
        """Return the array."""
        shape = f"({', '.join(('...',) * self.leading + self.letters)}{',' * (not self.leading)})"
        try:
            array = _as_array(value)
        except (TypeError, ValueError):
            raise Unfit(f"an array of shape {shape}", ShapeError) from None
        if array.dtype.kind not in "biuf":
            raise Unfit("real numbers", DtypeError)
        spare = array.ndim - len(self.letters)
        if self.letters and (spare < 0 or (spare and not self.leading) or 0 in array.shape):
            raise Unfit(f"an array of shape {shape} that is not empty", ShapeError)
        if self.finite and not np.isfinite(array).all():
            raise Unfit("finite numbers")
        return array.astype(np.float64, copy=False)


def reals(*letters: str, leading: bool = True, finite: bool = False) -> Axes:
    """Real numbers in an array; see `Axes`."""
    return Axes(letters, leading, finite)


def truths(value: Any) -> npt.NDArray[np.bool_]:
    """True and False in an array; 1 and 0 are accepted."""
    numbers = reals()(value)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise Unfit("True or False, one for each", DtypeError)
    return numbers.astype(np.bool_)


@dataclass(frozen=True)
class WholeAxes(Axes):
    """Whole numbers in an array, as int64; see `Axes`."""

    def __call__(self, value: Any) -> npt.NDArray[Any]:
        """Return the array."""
        numbers = super().__call__(value)
        if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < LARGEST)).all():
            raise Unfit("whole numbers", DtypeError)
        return _as_array(value).astype(np.int64)  # not by way of floats, which round above 2^53


def wholes(*letters: str) -> WholeAxes:
    """Whole numbers in an array; see `Axes`."""
    return WholeAxes(letters)


def check_lengths(arrays: Mapping[str, tuple[Axes, npt.NDArray[Any]]]) -> None:
    """Raise `ShapeError` unless axes of one letter have one length, and leading axes broadcast."""
    found: dict[str, tuple[str, int]] = {}
    leading = []
    for name, (axes, array) in arrays.items():
        own = array.ndim - len(axes.letters)
        leading.append(array.shape[:own])
        for letter, length in zip(axes.letters, array.shape[own:], strict=True):
            other, wanted = found.setdefault(letter, (name, length))
            if length != wanted:
                raise ShapeError(
                    f"`{name}` and `{other}` must have axes {letter} of one length, but got shapes {array.shape} and "
                    f"{arrays[other][1].shape}"
                )
    try:
        np.broadcast_shapes(*leading)
    except ValueError:
        shapes = {name: array.shape for name, (_, array) in arrays.items()}
        raise ShapeError(f"the leading axes of {shapes} must broadcast") from None
