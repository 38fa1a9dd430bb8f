"""Columns nested as fields are: mappings and tuples of arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab._core import concatenate


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with a function applied to every array; None stays None."""
    if isinstance(tree, np.ndarray):
        return function(tree)
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {name: map_tree(function, child) for name, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, child) for child in tree)
    return function(tree)


def as_arrays(fields: Any, values: Any, function: Callable[[Any], Any]) -> Any:
    """Return values nested as fields are, with a function applied to what came for each of the fields."""
    if isinstance(fields, Mapping):
        return {name: as_arrays(child, values[name], function) for name, child in fields.items()}
    if isinstance(fields, tuple):
        return tuple(as_arrays(child, value, function) for child, value in zip(fields, values, strict=True))
    return function(values)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the arrays of a tree."""
    if isinstance(tree, Mapping | tuple):
        for child in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(child)
    elif tree is not None:
        yield tree


def spread(tree: Any, envs: npt.NDArray[np.int64], count: int) -> Any:
    """Return columns ``T e *shape`` of some environments as those of all, ``T E *shape``: 0 for the others."""

    def whole(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
        made = np.zeros((len(leaf), count, *leaf.shape[2:]), leaf.dtype)
        made[:, envs] = leaf
        return made

    return map_tree(whole, tree)


def joined(parts: Sequence[Any]) -> Any:
    """Return trees one after the other, in arrays of their own: nothing of the parts is kept.

    Example:
        >>> joined([{"x": np.zeros(1)}, {"x": np.ones(2)}])["x"].tolist()
        [0.0, 1.0, 1.0]
    """
    first = parts[0]
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(joined(children) for children in zip(*parts, strict=True))
    return concatenate(parts)  # in memory that former batches have given back: fresh pages cost several copies
