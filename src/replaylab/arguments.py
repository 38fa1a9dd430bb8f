"""Rules that check arguments, each stated once, in code and in words.

A rule is a function that takes a value and returns it in plain Python: NumPy's numbers become int, float and bool,
lists become tuples. So equal configurations are equal, and can be saved. It raises `InvalidArgument` for a value that
breaks the rule. `check` applies rules to the options of a frozen configuration, `takes` to the arguments of a function,
and `checked` to one value; these make the error, which names argument, rule and value. `sample`, `add` and other
methods that are called at every step have faster checks, in `replaylab.replay.data.arrays`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from numbers import Real
from operator import index
from os import PathLike, fspath
from os.path import expanduser
from pathlib import Path
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


class InvalidArgument(Exception):  # noqa: N818 - callers never see it: it becomes one of the library's errors
    """The rule that a value breaks, with the class of the error to raise for it.

    `received` describes the value in the message instead of its repr, for example its shape; `fix` is how to fix it.
    """

    def __init__(
        self, rule: str, error: type[ReplayError] = ConfigError, received: str | None = None, *, fix: str = ""
    ) -> None:
        super().__init__(rule)
        self.error = error
        self.received = received
        self.fix = f"; {fix}" if fix else ""


def checked(name: str, value: Any, rule: Rule[T], owner: str = "") -> T:
    """Return the value as converted by its rule.

    Args:
        name: Name of the argument, for the message.
        value: The argument as passed.
        rule: Converts the value or raises `InvalidArgument`.
        owner: The class or function that has the argument, for the message.

    Raises:
        ConfigError: The value breaks the rule; some rules raise another `ReplayError`.
    """
    try:
        return rule(value)
    except InvalidArgument as invalid:
        of = f" of {owner}" if owner else ""
        raise invalid.error(f"`{name}`{of} must be {invalid}, but got {shown(value)}{invalid.fix}") from None


def returned(function: str, value: Any, rule: Rule[T]) -> T:
    """Return the result of a user's function as converted by its rule.

    Every result of a function, schedule or method that a user wrote is checked here.

    Args:
        function: Name and owner of the function, such as "`score` of LaBER".
        value: Its result.
        rule: Converts the result or raises `InvalidArgument`.

    Raises:
        ConfigError: The result breaks the rule; some rules raise another `ReplayError`.
    """
    try:
        return rule(value)
    except InvalidArgument as invalid:
        received = shown(value) if invalid.received is None else invalid.received
        raise invalid.error(f"{function} must return {invalid}, but returned {received}") from None


def option(rule: Rule[Any], default: Any, *, later: bool = False) -> Any:
    """Declare an option of a frozen configuration, with its default: a dataclass field, whose rule `check` applies.

    Args:
        rule: Converts the value or raises `InvalidArgument`.
        default: The default.
        later: Whether results exist from before it was added; see `unchanged_since`.
    """
    return field(default=default, metadata={"rule": rule, "later": later})


def unchanged_since(option: Any, value: Any) -> bool:
    """Return whether an option, a dataclass field, was added later and has its default.

    Such an option is not part of what identifies a run, so that older results stay valid.
    """
    return bool(option.metadata.get("later")) and value == option.default


def check(config: object, owner: str | None = None, /, **rules: Rule[Any]) -> None:
    """Check and convert the options of a frozen configuration: those declared by `option`, and those in `rules`.

    `owner` is the name that messages use for the owner of the options; None: the configuration's class.

    Raises:
        ConfigError: An option breaks its rule.
    """
    owner = type(config).__name__ if owner is None else owner
    declared = fields(config) if is_dataclass(config) else ()
    rules = {
        option_field.name: option_field.metadata["rule"] for option_field in declared if "rule" in option_field.metadata
    } | rules
    for name, rule in rules.items():
        object.__setattr__(config, name, checked(name, getattr(config, name), rule, owner))


def takes(**rules: Rule[Any]) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """Decorate a function so that its arguments are checked and converted by these rules."""

    def decorate(function: Callable[P, Made]) -> Callable[P, Made]:
        parameters = signature(function).parameters
        unknown = rules.keys() - parameters.keys()
        assert not unknown, f"{function.__qualname__} has no arguments {unknown}"

        positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        names = [parameter.name for parameter in parameters.values() if parameter.kind in positional]
        shaped = {name: rule for name, rule in rules.items() if isinstance(rule, Axes) and rule.letters}

        def fit(name: str, value: Any) -> Any:
            return checked(name, value, rules[name]) if name in rules else value

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Made:
            placed = [fit(name, value) for name, value in zip(names, args, strict=False)]
            named = {name: fit(name, value) for name, value in kwargs.items()}
            if len(shaped) > 1:
                values = dict(zip(names, placed, strict=False)) | named
                check_lengths({name: (shaped[name], values[name]) for name in shaped if values.get(name) is not None})
            return function(*placed, *args[len(names) :], **named)  # type: ignore[arg-type]  # as they came

        return call

    return decorate


def shown(value: object) -> str:
    """Return a value as messages show it: its repr, cut to 200 characters."""
    try:
        text = f"{value:,}" if type(value) is int else repr(value)
    except Exception:  # of any kind: the type is foreign, or a number has too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:197]}..."


def did_you_mean(wrong: str, allowed: Iterable[str]) -> str:
    """Return the end of a message: a suggestion of the most similar allowed name, or a full stop."""
    close = get_close_matches(wrong, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean `{close[0]}`?" if close else "."


def whole(least: int = 1, most: int = LARGEST) -> Rule[int]:
    """A whole number from `least` to `most`; True and False are refused."""

    def take(value: Any) -> int:
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise InvalidArgument("a whole number")
        if number < least:
            raise InvalidArgument(f"at least {least}")
        if number > most:
            raise InvalidArgument(f"at most {most:,}")
        return number

    return take


def number(rule: str, holds: Callable[[float], bool] = math.isfinite) -> Rule[float]:
    """A number for which `holds` is true; a Python int stays an int."""

    def take(value: Any) -> float:
        plain = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        sound = isinstance(plain, Real) and not isinstance(plain, bool)
        try:
            real = float(plain) if sound else math.nan
        except OverflowError:
            real = math.nan
        if math.isnan(real) or not holds(real):
            raise InvalidArgument(rule)
        return plain if type(plain) is int else real

    return take


FINITE = number("a finite number")
FRACTION = number("in [0, 1]", lambda x: 0.0 <= x <= 1.0)
SHARE = number("in (0, 1]", lambda x: 0.0 < x <= 1.0)
INSIDE = number("between 0 and 1", lambda x: 0.0 < x < 1.0)
BELOW_HALF = number("between 0 and 0.5", lambda x: 0.0 < x < 0.5)
POSITIVE = number("positive and finite", lambda x: 0.0 < x < math.inf)
POSITIVE_FLOAT32 = number(
    "positive, finite and at least 1.2e-38, the smallest normal float32", lambda x: 2.0**-126 <= x < math.inf
)
NOT_NEGATIVE = number("finite and not negative", lambda x: 0.0 <= x < math.inf)


def flag(value: Any) -> bool:
    """True or False; 1 and 0 are accepted."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise InvalidArgument("True or False")
    return bool(value)


def seed_number(value: Any) -> int:
    """A seed: a whole number from 0 to 2^512."""
    try:
        return whole(0, 2**512)(value)
    except InvalidArgument:
        raise InvalidArgument("a whole number that is not negative") from None


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise InvalidArgument("a string")
    return str(value)


def one_of(*words: str) -> Rule[str]:
    """One of these strings."""

    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            quoted = [f'"{word}"' for word in words]
            raise InvalidArgument(" or ".join([", ".join(quoted[:-1]), quoted[-1]][len(quoted) == 1 :]))
        return str(value)

    return take


def encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, which the core requires; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeError:
        return False
    return True


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""First part of a URL, also after `pathlib` has removed a slash; the drive of a Windows path has only one letter."""


def local(name: str, of: str) -> str:
    """Return the path `of` a file or a folder with the home directory in place of ``~``; refuse a URL."""
    if URL.match(name):
        raise InvalidArgument(f"the path of {of}", fix="URLs are not supported yet; pass a local path")
    return expanduser(str(name))  # noqa: PTH111 - Path raises where a user is unknown


def place(of: str) -> Rule[str | PathLike[str]]:
    """The path `of` a file or a folder on this machine; a leading ``~`` is expanded."""

    def take(value: Any) -> str | PathLike[str]:
        name = fspath(value) if isinstance(value, str | PathLike) else ""
        if not isinstance(name, str) or not name or "\0" in name or not encodable(name):
            raise InvalidArgument(f"the path of {of}")
        path = local(name, of)
        return path if isinstance(value, str) else value if path == name else Path(path)

    return take


def function(of: str) -> Rule[Callable[..., Any]]:
    """A function; `of` names its arguments for the message."""

    def take(value: Any) -> Callable[..., Any]:
        if not callable(value):
            raise InvalidArgument(f"a function of {of}")
        return value  # type: ignore[no-any-return]

    return take


def instance(kind: type[T] | tuple[type[T], ...], rule: str) -> Rule[T]:
    """An instance of a class, or of one of several; a class is refused where a protocol would accept its attributes."""
    kinds = kind if isinstance(kind, tuple) else (kind,)

    def take(value: Any) -> T:
        if not isinstance(value, kind):
            raise InvalidArgument(rule)
        if isinstance(value, type) and type not in kinds:
            raise InvalidArgument(rule, fix=f"create one: {value.__name__}(...)")
        return value

    return take


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping of names to values."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidArgument("a mapping of names to values")
    return value


def tuple_of(item_rule: Rule[T], rule: str, least: int = 0, most: int | None = None) -> Rule[tuple[T, ...]]:
    """Several values, to each of which a rule applies; a list or an array is accepted, a string is not."""

    def take(value: Any) -> tuple[T, ...]:
        if isinstance(value, np.ndarray) and value.ndim:
            value = value.tolist()
        if not isinstance(value, Sequence | Set) or isinstance(value, str | bytes):
            raise InvalidArgument(rule)
        if not least <= len(value) <= (len(value) if most is None else most):
            raise InvalidArgument(rule)
        try:
            return tuple(item_rule(item) for item in value)
        except InvalidArgument:
            raise InvalidArgument(rule) from None

    return take


def optional(rule: Rule[T]) -> Rule[T | None]:
    """None, or a value to which the rule applies."""
    return lambda value: None if value is None else rule(value)


def _as_array(value: Any) -> npt.NDArray[Any]:
    """Return the value as an array; a tensor of PyTorch is detached and copied from its device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


@dataclass(frozen=True)
class ArrayOf:
    """An array of one shape, as user functions return it (see `returned`).

    A wrong shape raises ShapeError and a wrong dtype DtypeError. Complex numbers, dates and strings are never numbers.

    Attributes:
        shape: The shape that the array must have.
        words: The rule in words, for the message.
        kinds: The kinds of dtype that are accepted. Default: real numbers, and bool.
        holds: Takes the array and returns which values are valid; None: all are.
        error: Class of the error that an invalid value raises.
        leading: Whether `shape` is that of the first axes only; any axes may follow.
    """

    shape: tuple[int, ...]
    words: str
    kinds: str = "biuf"
    holds: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]] | None = None
    error: type[ReplayError] = ConfigError
    leading: bool = False

    def __call__(self, value: Any) -> npt.NDArray[Any]:
        """Return the array."""
        try:
            array = _as_array(value)
        except (TypeError, ValueError, RuntimeError):  # lists of unequal lengths, or a tensor of bfloat16
            raise InvalidArgument(self.words, ShapeError) from None
        if array.dtype.kind not in self.kinds:
            raise InvalidArgument(self.words, DtypeError, f"values of {array.dtype}" if array.ndim else None)
        if (array.shape[: len(self.shape)] if self.leading else array.shape) != self.shape:
            raise InvalidArgument(self.words, ShapeError, f"shape {array.shape}" if array.size > 1 else None)
        if self.holds is not None and not (valid := self.holds(array)).all():
            first = int(np.argmin(valid))
            position = ", ".join(map(str, np.unravel_index(first, self.shape)))
            where = f" at index {position}" if position else ""
            raise InvalidArgument(self.words, self.error, f"{array.flat[first]}{where}")
        return array


@dataclass(frozen=True)
class Axes:
    """Real numbers in an array with these last axes, as float64; `takes` requires equal letters to have equal lengths.

    Attributes:
        letters: The axes, none of which may have length 0; if empty, the function checks the shape itself.
        leading: Whether further axes may precede them; those of several arguments must broadcast.
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
            raise InvalidArgument(f"an array of shape {shape}", ShapeError) from None
        if array.dtype.kind not in "biuf":
            raise InvalidArgument("real numbers", DtypeError)
        num_leading = array.ndim - len(self.letters)
        if self.letters and (num_leading < 0 or (num_leading and not self.leading) or 0 in array.shape):
            raise InvalidArgument(f"an array of shape {shape} that is not empty", ShapeError)
        if self.finite and not np.isfinite(array).all():
            raise InvalidArgument("finite numbers")
        return array.astype(np.float64, copy=False)


def reals(*letters: str, leading: bool = True, finite: bool = False) -> Axes:
    """Real numbers in an array; see `Axes`."""
    return Axes(letters, leading, finite)


def truths(value: Any) -> npt.NDArray[np.bool_]:
    """True and False in an array, as bool; 1 and 0 are accepted."""
    numbers = reals()(value)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise InvalidArgument("True or False, one for each", DtypeError)
    return numbers.astype(np.bool_)


@dataclass(frozen=True)
class WholeAxes(Axes):
    """Whole numbers in an array, as int64; see `Axes`."""

    def __call__(self, value: Any) -> npt.NDArray[Any]:
        """Return the array."""
        numbers = super().__call__(value)
        if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < LARGEST)).all():
            raise InvalidArgument("whole numbers", DtypeError)
        return _as_array(value).astype(np.int64)  # not by way of floats, which round above 2^53


def wholes(*letters: str) -> WholeAxes:
    """Whole numbers in an array; see `Axes`."""
    return WholeAxes(letters)


def check_lengths(arrays: Mapping[str, tuple[Axes, npt.NDArray[Any]]]) -> None:
    """Raise `ShapeError` unless axes of one letter have one length, and leading axes broadcast."""
    lengths: dict[str, tuple[str, int]] = {}
    leading = []
    for name, (axes, array) in arrays.items():
        num_leading = array.ndim - len(axes.letters)
        leading.append(array.shape[:num_leading])
        for letter, length in zip(axes.letters, array.shape[num_leading:], strict=True):
            first_name, first_length = lengths.setdefault(letter, (name, length))
            if length != first_length:
                raise ShapeError(
                    f"`{name}` and `{first_name}` must have axes {letter} of one length, but got shapes {array.shape} "
                    f"and {arrays[first_name][1].shape}"
                )
    try:
        np.broadcast_shapes(*leading)
    except ValueError:
        shapes = {name: array.shape for name, (_, array) in arrays.items()}
        raise ShapeError(f"the leading axes of {shapes} must broadcast") from None
