"""Nested fields as plain dicts from a path to a leaf."""

from collections.abc import Mapping

import numpy as np

NO_TREE = (np.ndarray, np.generic, int, float)
"""Most leaves; asking whether they are mappings takes longer."""


def flatten(tree, path=()):
    """List the leaves of nested mappings and tuples: `{"a": (x, y)}` gives `{("a", 0): x, ("a", 1): y}`."""
    leaves = {}
    _collect(tree, path, leaves)
    return leaves


def _collect(tree, path, leaves):
    if isinstance(tree, NO_TREE):
        leaves[path] = tree
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            _collect(child, (*path, key), leaves)
    elif isinstance(tree, tuple):
        for i, child in enumerate(tree):
            _collect(child, (*path, i), leaves)
    else:
        leaves[path] = tree


def unflatten(leaves):
    """Undo `flatten`: integer keys become tuples, others dicts."""
    if () in leaves:
        return leaves[()]
    groups = {}
    for (head, *rest), value in leaves.items():
        groups.setdefault(head, {})[tuple(rest)] = value
    if all(isinstance(key, int) for key in groups):
        return tuple(unflatten(groups[i]) for i in range(len(groups)))
    return {key: unflatten(group) for key, group in groups.items()}


def map_leaves(function, tree):
    """Apply `function` to every leaf and keep the nesting."""
    return unflatten({path: function(leaf) for path, leaf in flatten(tree).items()})
