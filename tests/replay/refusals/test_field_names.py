"""Names of fields and keys inside them: what a path cannot tell apart or hold is refused, all else comes back."""

import numpy as np
import pytest

from replaylab.errors import FieldError
from replaylab.replay import Field, ReplayBuffer, ReplayStream

KEYS = [
    "",
    " ",
    "a b",
    "self",
    "add",
    "π",
    "größe",
    "日本",
    "😀",
    "\n",
    "'",
    '"',
    "/",
    "\\",
    "%s",
    "{x}",
    "__class__",
    "x" * 5000,
    7,
]


def refusal(fields):
    with pytest.raises(FieldError) as caught:
        ReplayBuffer(4, fields)
    return str(caught.value)


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_a_key_that_is_accepted_works(key):
    fields = {"x": {key: Field((2,)), "other": (Field(), {key: Field((), np.int64)})}}
    buffer = ReplayBuffer(4, fields, seed=0)
    step = {key: [1.0, 2.0], "other": (3.0, {key: 4})}
    assert buffer.add(x=step) == 0
    batch = buffer.sample(2)
    for column in (batch.x, buffer.get([0, 0])["x"]):
        np.testing.assert_array_equal(column[key], [[1, 2], [1, 2]])
        np.testing.assert_array_equal(column["other"][1][key], [4, 4])
    with pytest.raises(FieldError, match="missing"):
        buffer.add(x={"other": (3.0, {key: 4})})


@pytest.mark.parametrize("bad", ["a\0b", "\0", "\ud800", "x\udfffy"], ids=ascii)
def test_keys_that_no_text_holds(bad):
    for fields in ({"x": {bad: Field()}}, {"x": ({"y": {"z": Field(), bad: Field()}},)}):
        assert f"the key {bad!r} in field `x" in refusal(fields)
        assert refusal(fields).endswith("must be text without NUL and lone surrogates; rename it")
    for name in (bad, f"x{bad}"):
        assert refusal({name: Field()}) == f"a field's name must be an identifier, but got {name!r}"


@pytest.mark.parametrize("bad", [None, 1.5, True, b"x", (1,), frozenset()], ids=repr)
def test_keys_that_are_no_names(bad):
    assert refusal({"x": {bad: Field()}}) == (
        f"the keys in field `x` must be strings (or whole numbers), but one is {bad!r}"
    )


def test_keys_that_a_path_cannot_tell_apart():
    message = "the keys 0 and '0' in field `x` are both written 0 in a path; rename one"
    assert refusal({"x": {0: Field(), "0": Field()}}) == message
    assert refusal({"y": Field(), "x": {"z": {0: Field(), "0": {"a": Field()}}}}) == message.replace("`x`", "`x.z`")


def test_a_field_called_self():
    for fields, value in (({"self": Field(), "y": {"z": Field()}}, {"z": 2.0}), ({"self": Field(), "y": Field()}, 2.0)):
        buffer = ReplayBuffer(4, fields, seed=0)
        assert buffer.add(self=1.0, y=value) == 0
        many = {"z": [2.0, 2.0]} if isinstance(value, dict) else [2.0, 2.0]
        assert buffer.extend(self=[1.0, 1.0], y=many).tolist() == [1, 2]
        assert buffer.sample(1)["self"].tolist() == [1.0]


@pytest.mark.parametrize("depth", [66, 5_000])
def test_nesting_without_end(depth):
    def nested(leaf):
        for _ in range(depth):
            leaf = {"a": leaf}
        return leaf

    message = refusal({"x": nested(Field())})
    assert message == "field `x.a.a.a.a.a.a.a.a.a....` is nested deeper than 64 levels; nest it less"
    with pytest.raises(FieldError, match="nested deeper than 64 levels"):
        next(iter(ReplayStream([{"x": nested(1.0)}], 10, 1)))
    buffer = ReplayBuffer(4, {"x": {"y": Field()}})
    for value in (nested(1.0), {"y": nested(1.0)}):
        with pytest.raises((FieldError, TypeError)):
            buffer.add(x=value)
    tree = {}
    tree["x"] = tree
    assert "deeper than 64 levels" in refusal({"x": tree})


def test_nesting_as_deep_as_it_may_be():
    fields, value = Field(), 1.0
    for _ in range(60):
        fields, value = {"a": fields}, {"a": value}
    buffer = ReplayBuffer(4, {"x": fields}, seed=0)
    buffer.add(x=value)
    buffer.sample(1)
