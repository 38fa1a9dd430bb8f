"""Functions that go through nested mappings and tuples of arrays."""

import numpy as np
import pytest

from replaylab.errors import FieldError
from replaylab.trees import flatten, leaves, map_leaves, nest, same_rows, stack, take, unflatten

TREE = {"obs": {"camera": np.arange(6).reshape(3, 2), "goals": (np.arange(3.0), np.ones(3))}, "reward": np.zeros(3)}


def test_paths_say_where_leaves_are():
    assert [path for path, _ in flatten(TREE)] == ["obs.camera", "obs.goals.0", "obs.goals.1", "reward"]
    assert [path for path, _ in flatten(TREE["obs"], "obs", "/")] == ["obs/camera", "obs/goals/0", "obs/goals/1"]
    assert list(flatten(3, "x")) == [("x", 3)]


def test_leaves_come_back_in_their_places():
    again = unflatten(TREE, (leaf for _, leaf in flatten(TREE)))
    assert again["obs"]["goals"][0] is TREE["obs"]["goals"][0]
    assert again.keys() == TREE.keys()


def test_what_is_nested_too_deep_is_refused():
    tree = 1
    for _ in range(70):
        tree = {"x": tree}
    with pytest.raises(FieldError, match="nested deeper than 64"):
        list(flatten(tree))


def test_several_trees_are_gone_through_at_once():
    assert map_leaves(lambda x, y: x + y, {"a": (1, 2)}, {"a": [10, 20], "b": 3}) == {"a": (11, 22)}
    with pytest.raises(ValueError, match="shorter"):
        map_leaves(lambda x, y: x, (1, 2), (1,))


def test_none_stays_none():
    assert map_leaves(abs, {"a": None, "b": -1}) == {"a": None, "b": 1}
    assert list(leaves({"a": None, "b": (-1, None)})) == [-1]
    assert take(None, 0) is None


@pytest.mark.parametrize("index", [0, slice(1, None), np.array([2, 0]), np.array([True, False, True])])
def test_rows_of_every_array(index):
    assert np.array_equal(take(TREE, index)["obs"]["camera"], TREE["obs"]["camera"][index])
    assert np.array_equal(take(TREE, index)["obs"]["goals"][1], TREE["obs"]["goals"][1][index])


@pytest.mark.parametrize("axis", [0, 1])
def test_stacked_along_a_new_axis(axis):
    stacked = stack([TREE, TREE], axis)
    assert np.array_equal(stacked["obs"]["goals"][0], np.stack([np.arange(3.0)] * 2, axis))


def test_paths_become_nested_again():
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert nest(dict(flatten(tree))) == tree
    assert nest(dict(flatten(tree, separator="/")), "/") == tree


@pytest.mark.parametrize("paths", [("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
def test_a_leaf_and_a_nesting_in_one_place_are_refused(paths):
    with pytest.raises(FieldError, match="cannot both hold a value"):
        nest(dict.fromkeys(paths, 1))


def test_rows_that_are_the_same_bit_for_bit():
    tree, other = {"x": np.array([0.0, np.nan, 1.0, 2.0]), "y": np.arange(4)}, {"x": np.array([-0.0, np.nan, 1.0, 2.0])}
    assert same_rows(tree, other | {"y": np.array([0, 1, 2, 0])}).tolist() == [False, True, True, False]
    assert same_rows(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)
