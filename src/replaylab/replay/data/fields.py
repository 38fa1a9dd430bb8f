"""Fields: the contents of one step, declared by hand or taken from Gymnasium spaces.

Declarations may be nested, by mappings (a Dict observation) or tuples (a Tuple observation). The core knows
flat fields only; a nested one is called by its path, ``obs.camera`` or ``obs.0``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, flag, shown, tuple_of, whole
from replaylab.errors import FieldError
from replaylab.trees import flatten

RESERVED = (
    *("weight", "probability", "id", "where", "final_obs"),
    *("keys", "values", "items", "get", "torch", "jax", "pin_memory"),
)
"""Names a field cannot have: a batch's own columns and methods, and `add`'s own arguments."""


LENGTHS = tuple_of(whole(), "whole numbers of at least 1")
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
        except InvalidArgument as invalid:
            raise FieldError(
                f"a field's shape must be {invalid}, but got {shown(shape)}; pass () for a number"
            ) from None
        hint = "; declare np.float32, which holds every bfloat16 exactly" if "bfloat16" in f"{dtype!r}" else ""
        try:
            kind = np.dtype(dtype)
        except TypeError:
            raise FieldError(f"a field's dtype must be one of NumPy's, but got {dtype!r}{hint}") from None
        if kind.kind not in "biufc" or not kind.isnative:
            raise FieldError(
                f"a field's dtype must be a native boolean, integer, float or complex one, but got {kind}{hint}"
            )
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


def single_frame(field: Field) -> Field:
    """Return the field of one of the frames that are stacked along a field's first axis."""
    return Field(field.shape[1:], field.dtype, compressed=field.compressed)


def field_at(path: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Field:
    """Return a field.

    Raises:
        FieldError: There is no such field; the message names the path.
    """
    try:
        return Field(shape, dtype)
    except FieldError as error:
        raise FieldError(f"field `{path}`: {error}") from None


Tree = Any
"""A value for every field, nested as the fields are: `Field`, or a mapping or tuple of trees."""


def core_fields(fields: Mapping[str, Field]) -> list[tuple[str, list[int], Any, bool]]:
    """Return the fields as the compiled core takes them: name, shape, dtype, whether compressed."""
    return [(name, list(field.shape), field.dtype, field.compressed) for name, field in fields.items()]


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
    key_by_name: dict[str, Any] = {}
    for key, child in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        name = _checked_key(path, key)
        if name in key_by_name:
            raise FieldError(
                f"the keys {key_by_name[name]!r} and {key!r} in field `{path}` are both written {name} in a path; "
                "rename one"
            )
        key_by_name[name] = key
        _check_nesting(f"{path}.{name}" if path else name, child)


def _checked_key(path: str, key: Any) -> str:
    """Return a key of nested fields as it appears in a path."""
    if isinstance(key, bool) or not isinstance(key, (str, int, np.integer)):
        raise FieldError(f"the keys in field `{path}` must be strings (or whole numbers), but one is {key!r}")
    name = f"{key}"
    if "." in name:
        raise FieldError(f"the key {key!r} in field `{path}` must not hold a dot, which separates keys in a path")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise FieldError(f"the key {key!r} in field `{path}` must be text without NUL and lone surrogates; rename it")
    return name


def need_field(needs: str, fields: Mapping[str, Field], name: str, declared: Field, why: str = "") -> None:
    """Raise `FieldError` unless a field is declared as `declared`."""
    if fields.get(name) != declared:
        dtype = "bool" if declared.dtype == np.bool_ else declared.dtype
        raise FieldError(f"{needs} needs the field `{name}` declared as Field((), {dtype}){why}")


def next_paths(needs: str, fields: Mapping[str, Field]) -> dict[str, str]:
    """Return for each path of ``obs`` the path of the next observation.

    Raises:
        FieldError: ``obs`` and ``next_obs`` are missing or differ.
    """
    obs_paths, next_obs_paths = (
        [path for path in fields if path.split(".")[0] == name] for name in ("obs", "next_obs")
    )
    pairs = {path: f"next_{path}" for path in obs_paths}
    if (
        not obs_paths
        or list(pairs.values()) != next_obs_paths
        or any(fields[path] != fields[pairs[path]] for path in obs_paths)
    ):
        raise FieldError(
            f"{needs} needs the fields `obs` and `next_obs`, declared alike, but got "
            f"{ {path: fields[path] for path in obs_paths + next_obs_paths} }"
        )
    return pairs


def names_error(
    call: str, arguments: Mapping[str, Any], fields: Iterable[str], *, any_of_them: bool = False
) -> FieldError:
    """Return the error for a call whose arguments are not every field exactly once, or `any_of_them`."""
    fields = tuple(fields)
    missing = [f"`{name}`" for name in fields if name not in arguments and not any_of_them]
    missing += ["a field"] * (any_of_them and not arguments)
    unknown = []
    for name in arguments:
        if name not in fields:
            close = get_close_matches(name, [field for field in fields if field not in arguments], n=1)
            unknown.append(f"`{name}`" + (f" (did you mean `{close[0]}`?)" if close else ""))
    parts = [f"is missing {', '.join(missing)}"] * bool(missing) + [f"got unknown {', '.join(unknown)}"] * bool(unknown)
    listed = ", ".join(f"`{name}`" for name in fields)
    return FieldError(f"`{call}` {' and '.join(parts)}; its fields are {listed}")
