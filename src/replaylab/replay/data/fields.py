"""Fields: what one step holds, declared by hand or taken from Gymnasium spaces.

Declarations may be nested, by mappings (a Dict observation) or tuples (a Tuple observation). The core knows
flat fields only; a nested one is called by its path, ``obs.camera`` or ``obs.0``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import Unfit, checked, flag, shown, tuple_of, whole
from replaylab.errors import FieldError

RESERVED = (
    *("weight", "probability", "id", "where", "final_obs"),
    *("keys", "values", "items", "get", "torch", "jax", "pin_memory"),
)
"""Names a field cannot have: a batch's own columns and methods, and `add`'s own arguments."""


LENGTHS = tuple_of(whole(), "whole numbers of at least 1")
DEEPEST = 64
"""Levels of nesting that are ever meant."""

LEAST_COMPRESSED, MOST_COMPRESSED = 64, 2**26
"""Bytes of a value that can be compressed: less is not worth it, and more does not fit the log."""


@dataclass(frozen=True, init=False, repr=False)
class Field:
    """One field of a step.

    Attributes:
        shape: Shape of one step's value; () for a number.
        dtype: NumPy dtype it is stored in: boolean, integer, float or complex.
        compressed: Whether values are packed without loss where they are stored, for large ones with much
            sameness such as screens. Batches hold them as they were given. Not part of equality.

    Raises:
        FieldError: The shape has a length below 1, the dtype is no plain number, or a compressed value has
            fewer than 64 bytes or more than 64 MiB.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    compressed: bool = field(default=False, compare=False)

    def __init__(
        self, shape: tuple[int, ...] | int = (), dtype: npt.DTypeLike = np.float32, *, compressed: bool = False
    ) -> None:
        try:
            shape = LENGTHS((shape,) if isinstance(shape, int | np.integer) else shape)
        except Unfit as unfit:
            raise FieldError(f"a field's shape must be {unfit}, but got {shown(shape)}; pass () for a number") from None
        try:
            kind = np.dtype(dtype)
        except TypeError:
            raise FieldError(f"a field's dtype must be one of NumPy's, but got {dtype!r}") from None
        if kind.kind not in "biufc" or not kind.isnative:
            raise FieldError(f"a field's dtype must be a native boolean, integer, float or complex one, but got {kind}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", kind)
        object.__setattr__(self, "compressed", checked("compressed", compressed, flag, "Field"))
        if self.compressed and not self.compressible:
            raise FieldError(
                f"a compressed field must hold {LEAST_COMPRESSED} bytes to {MOST_COMPRESSED:,} bytes a step, but "
                f"{shape} of {kind} holds {self.nbytes:,}; leave out compressed=True"
            )

    def __repr__(self) -> str:
        return f"Field({self.shape}, {self.dtype}{', compressed=True' if self.compressed else ''})"

    @property
    def nbytes(self) -> int:
        """Bytes of one step's value."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def compressible(self) -> bool:
        """Whether values of this size can be compressed: 64 bytes to 64 MiB."""
        return LEAST_COMPRESSED <= self.nbytes <= MOST_COMPRESSED


Tree = Any
"""A value for every field, nested as the fields are: `Field`, or a mapping or tuple of trees."""


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the same nesting of mappings and tuples, with each leaf replaced by what the function makes of it."""
    if isinstance(tree, Mapping):
        return {name: map_leaves(function, child) for name, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, child) for child in tree)
    return function(tree)


def flatten(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for every leaf of nested mappings and tuples, in order."""
    if not isinstance(tree, (Mapping, tuple)):
        yield path, tree
        return
    check_depth(path)
    for key, child in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        yield from flatten(child, f"{path}.{key}" if path else str(key))


def check_depth(path: str) -> None:
    """Raise `FieldError` if a path leads deeper than any observation is nested."""
    if path.count(".") >= DEEPEST:
        raise FieldError(f"field `{path[:20]}...` is nested deeper than {DEEPEST} levels; nest it less")


def flatten_as(template: Tree, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) nested as the template is; what the template does not have keeps its own path."""
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        children = [(key, template.get(key), child) for key, child in value.items()]
    elif isinstance(template, tuple) and isinstance(value, (tuple, list)):
        children = [(i, template[i] if i < len(template) else None, child) for i, child in enumerate(value)]
    else:
        yield path, value
        return
    for key, part, child in children:
        yield from flatten_as(part, child, f"{path}.{key}" if path else str(key))


def unflatten(template: Tree, leaves: Iterator[Any]) -> Any:
    """Return leaves nested as the fields are: mappings as dicts, tuples as tuples."""
    if isinstance(template, Field):
        return next(leaves)
    if isinstance(template, tuple):
        return tuple(unflatten(child, leaves) for child in template)
    return {key: unflatten(child, leaves) for key, child in template.items()}


def without_missing(tree: Any) -> Any:
    """Return nested leaves without those that are None; None itself if there are no others."""
    if isinstance(tree, Mapping):
        kept = {key: left for key, child in tree.items() if (left := without_missing(child)) is not None}
        return kept or None
    if isinstance(tree, tuple):
        children = tuple(without_missing(child) for child in tree)
        return children if any(child is not None for child in children) else None
    return tree


def check_fields(fields: Mapping[str, Tree]) -> dict[str, Field]:
    """Return the flat fields by path.

    Raises:
        FieldError: None is declared, a name is reserved or no identifier, or a leaf is no `Field`.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise FieldError(f"`fields` must be a mapping of at least one name to a Field, but got {fields!r}")
    for name in fields:
        if not isinstance(name, str) or not name.isidentifier():
            raise FieldError(f"a field's name must be an identifier, but got {name!r}")
        if name in RESERVED:
            raise FieldError(f"`{name}` is reserved (with {', '.join(RESERVED)}); give the field another name")
    flat = dict(flatten(fields))
    _check_nesting("", fields)
    for path, leaf in flat.items():
        if not isinstance(leaf, Field):
            raise FieldError(f"field `{path}` must be a Field, or a mapping or tuple of them, but got {leaf!r}")
    return flat


def _check_nesting(path: str, tree: Tree) -> None:
    if not isinstance(tree, (Mapping, tuple)):
        return
    if not tree:
        raise FieldError(f"field `{path}` is nested but holds no Field; give it one or leave it out")
    known: dict[str, Any] = {}
    for key, child in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        name = _checked_key(path, key)
        if name in known:
            raise FieldError(
                f"the keys {known[name]!r} and {key!r} in field `{path}` are both written {name} in a path; rename one"
            )
        known[name] = key
        _check_nesting(f"{path}.{name}" if path else name, child)


def _checked_key(path: str, key: Any) -> str:
    """Return a key of nested fields as a path has it."""
    if isinstance(key, bool) or not isinstance(key, (str, int, np.integer)):
        raise FieldError(f"the keys in field `{path}` must be strings (or whole numbers), but one is {key!r}")
    name = f"{key}"
    if "." in name:
        raise FieldError(f"the key {key!r} in field `{path}` must not hold a dot, which separates keys in a path")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise FieldError(f"the key {key!r} in field `{path}` must be text without NUL and lone surrogates; rename it")
    return name


def names_error(call: str, given: Mapping[str, Any], fields: Iterable[str]) -> FieldError:
    """Return the error for a call that did not give every field exactly once."""
    fields = tuple(fields)
    missing = [f"`{name}`" for name in fields if name not in given]
    unknown = []
    for name in given:
        if name not in fields:
            close = get_close_matches(name, [field for field in fields if field not in given], n=1)
            unknown.append(f"`{name}`" + (f" (did you mean `{close[0]}`?)" if close else ""))
    parts = [f"missing {', '.join(missing)}"] * bool(missing) + [f"unknown {', '.join(unknown)}"] * bool(unknown)
    return FieldError(
        f"`{call}` takes every field exactly once, but got {'; '.join(parts)}; "
        f"the fields are {', '.join(f'`{name}`' for name in fields)}"
    )
