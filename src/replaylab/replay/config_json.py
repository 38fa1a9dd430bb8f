"""Fields, samplers, transforms and schedules as plain JSON values, and back."""

from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from inspect import isabstract
from typing import Any, get_origin

import numpy as np

from replaylab.errors import SnapshotError
from replaylab.replay.data.fields import Field, Tree
from replaylab.replay.data.schedules import Schedule
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage import MappedStorage, Retention
from replaylab.replay.transforms import Transform

BASES: tuple[type, ...] = (Sampler, Schedule, Transform, Retention, MappedStorage)
"""Base classes of the configurations that are saved by name."""


def fields_to_json(tree: Tree) -> Any:
    """Return nested fields as ``{"shape", "dtype"}``, ``{"mapping": {...}}`` or ``{"tuple": [...]}``.

    A compressed field also has ``"compressed": true``. A mapping with other keys than strings, which JSON has not, is
    ``{"items": [[key, field], ...]}``.
    """
    if isinstance(tree, Mapping) and not all(isinstance(key, str) for key in tree):
        return {
            "items": [
                [key.item() if isinstance(key, np.generic) else key, fields_to_json(child)]
                for key, child in tree.items()
            ]
        }
    if isinstance(tree, Mapping):
        return {"mapping": {key: fields_to_json(child) for key, child in tree.items()}}
    if isinstance(tree, tuple):
        return {"tuple": [fields_to_json(child) for child in tree]}
    return {"shape": list(tree.shape), "dtype": tree.dtype.str} | ({"compressed": True} if tree.compressed else {})


def fields_from_json(value: Any) -> Tree:
    """Return the fields that `fields_to_json` converted."""
    if "items" in value:
        return {key: fields_from_json(child) for key, child in value["items"]}
    if "mapping" in value:
        return {key: fields_from_json(child) for key, child in value["mapping"].items()}
    if "tuple" in value:
        return tuple(fields_from_json(child) for child in value["tuple"])
    return Field(tuple(value["shape"]), np.dtype(value["dtype"]), compressed=value.get("compressed", False))


def config_to_json(config: Any) -> Any:
    """Return a configuration of this library by name and options; of a custom class, only its name."""
    if isinstance(config, np.ndarray | np.generic):
        config = config.tolist()
    if isinstance(config, (tuple, list)):
        return [config_to_json(entry) for entry in config]
    if config is None or isinstance(config, (str, int, float)):
        return config
    name, kind = type(config).__name__, type(config)
    if _kinds().get(name) is not kind:
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    return {"type": name} | {
        field.name: config_to_json(getattr(config, field.name)) for field in dataclass_fields(config)
    }


def is_custom(value: Any) -> bool:
    """Whether a result of `config_to_json` contains a custom class, of which it holds only the name."""
    if isinstance(value, list):
        return any(is_custom(entry) for entry in value)
    return isinstance(value, dict) and ("custom" in value or any(is_custom(entry) for entry in value.values()))


def config_from_json(value: Any) -> Any:
    """Return the configuration that `config_to_json` converted.

    Raises:
        SnapshotError: It contains a custom class.
    """
    if isinstance(value, list):
        return tuple(config_from_json(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    options = {name: config_from_json(option) for name, option in value.items() if name not in ("type", "custom")}
    if (kind := _kinds().get(value.get("type", ""))) is not None:
        return kind(**options)
    raise SnapshotError(
        f"snapshots cannot store {value.get('custom', value.get('type'))}, which is not a replaylab class or holds "
        "functions; pass it again: ReplayBuffer.load(path, sampler=...), load(path, transforms=...) or "
        "load(path, storage=...)"
    )


def _kinds() -> dict[str, type]:
    """Return this library's configuration classes that can be saved, by name: those that hold no functions."""
    by_name: dict[str, type] = {}
    waiting = list(BASES)
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        in_library = kind.__module__.startswith(("replaylab.replay.", "replaylab.research."))
        is_saved = in_library and is_dataclass(kind) and not isabstract(kind)
        if is_saved and not any(get_origin(field.type) is Callable for field in dataclass_fields(kind)):
            by_name[kind.__name__] = kind
    return by_name
