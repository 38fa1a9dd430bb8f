"""The rules for arguments, and the three ways of applying them."""

import re
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from replaylab.arguments import (
    FRACTION,
    Rule,
    check,
    checked,
    flag,
    number,
    one_of,
    optional,
    place,
    reals,
    shown,
    takes,
    text,
    truths,
    tuple_of,
    whole,
    wholes,
)
from replaylab.errors import ConfigError, DtypeError, ShapeError


def refusal(rule: Rule, value, error=ConfigError) -> str:
    with pytest.raises(error) as caught:
        checked("x", value, rule)
    assert type(caught.value) is error
    return str(caught.value)


class Odd:
    """Cannot be shown."""

    def __repr__(self):
        raise RuntimeError


class TestRules:
    @pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
    def test_whole_numbers_become_pythons(self, value):
        assert type(checked("x", value, whole())) is int

    def test_whole_numbers(self):
        assert refusal(whole(), True) == "`x` must be a whole number, but got True"
        assert refusal(whole(), np.True_) == "`x` must be a whole number, but got np.True_"
        assert refusal(whole(), 3.0) == "`x` must be a whole number, but got 3.0"
        assert refusal(whole(2), 1) == "`x` must be at least 2, but got 1"
        assert refusal(whole(most=5_000), 12_345) == "`x` must be at most 5,000, but got 12,345"

    @pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), np.longdouble(0.5), Fraction(1, 2)])
    def test_numbers_become_pythons(self, value):
        share = checked("x", value, FRACTION)
        assert (type(share), share) == (float, 0.5)

    def test_a_python_int_stays_one(self):
        assert type(checked("x", 1, FRACTION)) is int

    @pytest.mark.parametrize("value", [True, np.False_, "0.5", None, 0.5j, np.array([0.5]), float("nan"), 10**400, 1.5])
    def test_what_is_no_such_number(self, value):
        assert refusal(FRACTION, value).startswith("`x` must be in [0, 1], but got ")

    def test_nan_is_never_meant(self):
        assert "must be a number" in refusal(number("a number", lambda _: True), float("nan"))

    def test_flags(self):
        assert [checked("x", value, flag) for value in (True, np.False_, 1, 0)] == [True, False, True, False]
        for value in ("yes", None, 2, 1.0, [], np.ones(2)):
            assert refusal(flag, value).startswith("`x` must be True or False")

    def test_words(self):
        assert type(checked("x", np.str_("a"), one_of("a", "b"))) is str
        assert refusal(one_of("a", "b", "c"), "d") == """`x` must be "a", "b" or "c", but got 'd'"""
        for value in (None, ["a"], np.array(["a", "b"])):
            refusal(one_of("a", "b"), value)

    def test_tuples(self):
        rule = tuple_of(whole(), "one or two counts", 1, 2)
        for value in ([1, 2], np.array([1, 2]), range(1, 3)):
            assert checked("x", value, rule) == (1, 2)
        for value in ([], [1, 2, 3], [0], "1", b"1", {1: 2}, 1, None, np.array(1), iter([1])):
            assert refusal(rule, value).startswith("`x` must be one or two counts, but got ")

    def test_none_where_it_is_meant(self):
        assert checked("x", None, optional(whole())) is None
        assert refusal(optional(whole()), 0) == "`x` must be at least 1, but got 0"

    def test_places(self):
        for value in ("a", Path("a")):
            assert checked("x", value, place("a file")) == value
        for value in ("", "a\0b", b"a", None, 3):
            assert refusal(place("a file"), value).startswith("`x` must be the path of a file, but got ")

    def test_arrays(self):
        assert checked("x", [[1, 2]], reals("N")).dtype == np.float64
        assert checked("x", [2.0], wholes("N")).dtype == np.int64
        large = checked("x", [2**60 + 1], wholes("N"))
        assert large.tolist() == [2**60 + 1]
        assert checked("x", [1, 0], truths).tolist() == [True, False]
        ragged, empty = [[1], [1, 2]], np.zeros((3, 0))
        for value in (ragged, empty, 1.0):
            refusal(reals("N"), value, ShapeError)
        assert checked("x", np.zeros((0, 3)), reals()).shape == (0, 3)
        for value in (["a"], None, object(), [1j], [10**30]):
            refusal(reals(), value, DtypeError)
        for value in ([0.5], [np.nan], [np.inf]):
            refusal(wholes(), value, DtypeError)
        refusal(truths, [2], DtypeError)


class TestShown:
    def test_it_is_cut(self):
        assert len(shown("a" * 1_000)) == 200
        assert shown(10**30).startswith("1,000,")

    @pytest.mark.parametrize("value", [Odd(), 10**5_000], ids=["odd", "long"])
    def test_what_cannot_be_shown(self, value):
        assert shown(value) == f"a {type(value).__name__}"


@dataclass(frozen=True)
class Options:
    rate: float = 0.5
    size: int = 1

    def __post_init__(self) -> None:
        check(self, rate=FRACTION, size=whole())


class TestConfigurations:
    def test_equal_ones_are_equal(self):
        options = Options(np.float64(0.25), np.int64(3))
        assert options == Options(0.25, 3)
        assert hash(options) == hash(Options(0.25, 3))
        assert repr(options) == "Options(rate=0.25, size=3)"

    def test_the_message_names_the_option_and_its_owner(self):
        with pytest.raises(ConfigError, match=r"^`size` of Options must be at least 1, but got 0$"):
            Options(size=0)


@takes(count=whole(), name=text)
def reported(count: int, *rest: object, name: str = "it", **more: object) -> tuple[object, ...]:
    """Say what came."""
    return (count, *rest, name, more)


class TestFunctions:
    def test_what_is_given_is_handed_on(self):
        assert reported(np.int64(2), "a", "b", name=np.str_("n"), other=3) == (2, "a", "b", "n", {"other": 3})
        assert reported(count=2) == (2, "it", {})
        assert reported(1, 2, 3) == (1, 2, 3, "it", {})

    def test_it_is_the_same_function_to_a_reader(self):
        assert (reported.__name__, reported.__doc__) == ("reported", "Say what came.")

    def test_what_breaks_a_rule(self):
        with pytest.raises(ConfigError, match=r"^`count` must be a whole number, but got 'x'$"):
            reported("x")
        with pytest.raises(ConfigError, match=r"^`name` must be a string, but got 3$"):
            reported(1, name=3)

    def test_calls_that_are_wrong_in_form_are_pythons_to_refuse(self):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'count'"):
            reported()

    def test_a_rule_for_no_argument_is_a_mistake(self):
        with pytest.raises(AssertionError, match="has no arguments"):
            takes(other=flag)(reported)


def test_it_needs_numpy_alone():
    code = "import sys, replaylab.arguments; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "gymnasium", "scipy", "pydantic"} & set(loaded)


@takes(rows=reals("B", "D"), buffer=reals("N", "D"), weight=reals("B", leading=False))
def compared(rows: object, buffer: object, weight: object = None) -> None:
    """Take arrays whose axes D are alike."""


class TestAxes:
    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            (((2, 3), (4, 5)), "`buffer` and `rows` must have axes D of one length, but got shapes (4, 5) and (2, 3)"),
            (((2, 2, 3), (3, 4, 3)), "the leading axes of {'rows': (2, 2, 3), 'buffer': (3, 4, 3)} must broadcast"),
            (
                ((2, 3), (4, 3), (5,)),
                "`weight` and `rows` must have axes B of one length, but got shapes (5,) and (2, 3)",
            ),
            (((2, 3), (4, 3), (1, 2)), "`weight` must be an array of shape (B,) that is not empty, but got "),
            (((3,), (4, 3)), "`rows` must be an array of shape (..., B, D) that is not empty, but got "),
        ],
    )
    def test_lengths(self, shapes, message):
        with pytest.raises(ShapeError, match=re.escape(message)):
            compared(*map(np.ones, shapes))

    @pytest.mark.parametrize("shapes", [((2, 3), (4, 3)), ((7, 1, 2, 3), (5, 4, 3)), ((2, 3), (4, 3), (2,))])
    def test_what_fits(self, shapes):
        compared(*map(np.ones, shapes))
