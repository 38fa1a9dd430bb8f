"""Steps of data pipelines: values by field name or in the order of the fields, single or in lists."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from replaylab.errors import FieldError
from replaylab.replay.data.arrays import as_array, widened
from replaylab.replay.data.fields import Field, Tree, field_at
from replaylab.trees import flatten, unflatten


def steps_of(item: Any, names: Sequence[str] | None = None) -> Sequence[Mapping[str, Any]]:
    """Return an item of a source as a sequence of steps.

    A step is a mapping, a NamedTuple or a dataclass of values by name; or a tuple with a value for each of `names`.

    Raises:
        FieldError: It is neither a step nor a list of steps.
    """
    single = _step(item, names)
    if single is not None:
        return (single,)
    steps = [_step(step, names) for step in item] if isinstance(item, list | tuple) else [None]
    if None in steps:
        forms = "NamedTuples, dataclasses, or tuples where `names` says what their values are"
        raise FieldError(
            f"the source must give steps (mappings of a field's name to its value, {forms}) or lists of them, but gave "
            f"{item!r:.80}"
        )
    return [step for step in steps if step is not None]


def _step(item: Any, names: Sequence[str] | None) -> Mapping[str, Any] | None:
    """Return a step as a mapping, None if the item is not a step."""
    if isinstance(item, Mapping):
        return item
    if is_dataclass(item) and not isinstance(item, type):
        return {step_field.name: getattr(item, step_field.name) for step_field in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    plain = isinstance(item, tuple) and names is not None and len(item) == len(names)
    if plain and any(_step(value, names) is None for value in item):  # otherwise it is a tuple of steps
        return dict(zip(names or (), item, strict=True))
    return None


def fields_of_step(step: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the fields that hold one step: arrays keep shape and dtype; Python's floats become float32.

    Example:
        >>> fields_of_step({"obs": np.zeros((2, 2), np.uint8), "reward": 1.0})
        {'obs': Field((2, 2), uint8), 'reward': Field((), float32)}
    """

    def field(path: str, value: Any) -> Field:
        array = widened(as_array(f"field `{path}`", value))
        plain = not hasattr(value, "dtype") and array.dtype == np.float64
        return field_at(path, array.shape, np.float32 if plain else array.dtype)

    fields: dict[str, Tree] = unflatten(step, iter([field(path, value) for path, value in flatten(step)]))
    return fields
