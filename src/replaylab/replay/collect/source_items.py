"""Steps as a data pipeline gives them: mappings of a field's name to its value, alone or in lists."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replaylab.errors import FieldError
from replaylab.replay.data.fields import Field, Tree, check_depth


def steps_of(item: Any) -> Sequence[Mapping[str, Any]]:
    """Return an item of a source as a sequence of steps.

    Raises:
        FieldError: It is neither a step nor a list of steps.
    """
    if isinstance(item, Mapping):
        return (item,)
    if isinstance(item, (list, tuple)) and all(isinstance(step, Mapping) for step in item):
        return item
    raise FieldError(
        f"the source must give steps (mappings of a field's name to its value) or lists of them, but gave {item!r:.80}"
    )


def fields_of_step(step: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the fields that hold one step: arrays keep shape and dtype; Python's floats become float32.

    Example:
        >>> fields_of_step({"obs": np.zeros((2, 2), np.uint8), "reward": 1.0})
        {'obs': Field((2, 2), uint8), 'reward': Field((), float32)}
    """

    def field(value: Any, path: str) -> Tree:
        check_depth(path)
        if isinstance(value, Mapping):
            return {name: field(child, f"{path}.") for name, child in value.items()}
        if isinstance(value, tuple):
            return tuple(field(child, f"{path}.") for child in value)
        array = np.asarray(value)
        plain = not hasattr(value, "dtype") and array.dtype == np.float64
        return Field(array.shape, np.float32 if plain else array.dtype)

    return {name: field(value, name) for name, value in step.items()}
