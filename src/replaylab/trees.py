"""Nested mappings and tuples of arrays (trees): functions that traverse one tree, or several of the same structure.

A leaf is any value that is neither a mapping nor a tuple. Its path joins the keys that lead to it, as in
``obs.camera`` or ``obs.0``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.errors import FieldError

DEEPEST = 64
"""The most levels of nesting that `flatten` and the `state` of snapshots accept."""


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of the same structure whose leaves are the function's results; None stays None.

    Args:
        function: Called with a leaf of `tree` and the values that `others` hold at the same path.
        tree: Determines the structure of the result; mappings become dicts.
        *others: Trees of the structure of `tree`, or nested more deeply.

    Example:
        >>> map_leaves(np.add, {"x": np.arange(2)}, {"x": np.ones(2)})
        {'x': array([1., 2.])}
    """
    if type(tree) is np.ndarray:  # the most frequent case
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, child, *(other[key] for other in others)) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, *children) for children in zip(tree, *others, strict=True))
    return None if tree is None else function(tree, *others)


def take(tree: Any, index: Any) -> Any:
    """Index every leaf: with a row number, a slice, or an array of row numbers or bools."""
    return map_leaves(itemgetter(index), tree)


def stack(trees: Sequence[Any], axis: int = 0) -> Any:
    """Stack the leaves of trees of the same structure along a new axis."""
    return map_leaves(lambda *leaves: np.stack(leaves, axis), *trees)


def flatten(tree: Any, path: str = "", separator: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for every leaf, in order.

    Raises:
        FieldError: The tree is nested deeper than 64 levels.
    """
    if not isinstance(tree, (Mapping, tuple)):
        yield path, tree
        return
    if path.count(separator) >= DEEPEST:
        raise FieldError(f"field `{path[:20]}...` is nested deeper than {DEEPEST} levels; nest it less")
    for key, child in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        yield from flatten(child, f"{path}{separator}{key}" if path else str(key), separator)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield every leaf that is not None, in order."""
    return (leaf for _, leaf in flatten(tree) if leaf is not None)


def flatten_as(template: Any, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) of `value`, flattened only as deep as the template is; unknown keys keep their own path."""
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        children = [(key, template.get(key), child) for key, child in value.items()]
    elif isinstance(template, tuple) and isinstance(value, (tuple, list)):
        children = [(i, template[i] if i < len(template) else None, child) for i, child in enumerate(value)]
    else:
        yield path, value
        return
    for key, part, child in children:
        yield from flatten_as(part, child, f"{path}.{key}" if path else str(key))


def unflatten(template: Any, leaves: Iterator[Any]) -> Any:
    """Return the leaves in the structure of the template, whose mappings become dicts; the inverse of `flatten`."""
    if isinstance(template, Mapping):
        return {key: unflatten(child, leaves) for key, child in template.items()}
    if isinstance(template, tuple):
        return tuple(unflatten(child, leaves) for child in template)
    return next(leaves)


def nest(leaves: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return leaves by path as nested dicts: the inverse of `flatten` for mappings with strings as keys.

    Raises:
        FieldError: A path continues below the leaf of another path.

    Example:
        >>> nest({"obs.camera": 1, "obs.speed": 2, "reward": 3})
        {'obs': {'camera': 1, 'speed': 2}, 'reward': 3}
    """
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *keys, last = path.split(separator)
        parent = tree
        for depth, key in enumerate(keys, 1):
            if separator.join(keys[:depth]) in leaves:
                raise FieldError(f"`{separator.join(keys[:depth])}` and `{path}` cannot both hold a value; rename one")
            parent = parent.setdefault(key, {})
        parent[last] = leaf
    return tree


def same_rows(first: Any, second: Any) -> npt.NDArray[np.bool_]:
    """Return which rows of two trees of the same structure and dtypes are equal bit for bit, bool (N,)."""

    def same(rows: npt.NDArray[Any], other_rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        if not len(rows):
            return np.zeros(0, np.bool_)
        row_bytes, other_bytes = (
            np.ascontiguousarray(leaf).reshape(len(leaf), -1).view(np.uint8) for leaf in (rows, other_rows)
        )
        return np.asarray((row_bytes == other_bytes).all(1))

    return np.asarray(np.logical_and.reduce(list(leaves(map_leaves(same, first, second)))))


def without_missing(tree: Any) -> Any:
    """Remove the None leaves of a tree; return None if no leaf is left."""
    if isinstance(tree, Mapping):
        pruned = {key: child for key, value in tree.items() if (child := without_missing(value)) is not None}
        return pruned or None
    if isinstance(tree, tuple):
        children = tuple(without_missing(child) for child in tree)
        return children if any(child is not None for child in children) else None
    return tree
