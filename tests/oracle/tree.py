"""Nested fields as plain dicts from a path to a leaf."""

from collections.abc import Mapping


def flatten(tree, path=()):
    """List the leaves of nested mappings and tuples: `{"a": (x, y)}` gives `{("a", 0): x, ("a", 1): y}`."""
    if isinstance(tree, Mapping):
        items = tree.items()
    elif isinstance(tree, tuple):
        items = enumerate(tree)
    else:
        return {path: tree}
    return {leaf: value for key, child in items for leaf, value in flatten(child, (*path, key)).items()}


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
