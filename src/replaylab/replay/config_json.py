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
from replaylab.replay.storage.mapped import MappedStorage
from replaylab.replay.storage.retention import Retention
from replaylab.replay.transforms.transform import Transform

BASES: tuple[type, ...] = (Sampler, Schedule, Transform, Retention, MappedStorage)
"""Whose classes can be written down, by name."""


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
    """Return what `fields_to_json` was given."""
    if "items" in value:
        return {key: fields_from_json(child) for key, child in value["items"]}
    if "mapping" in value:
        return {key: fields_from_json(child) for key, child in value["mapping"].items()}
    if "tuple" in value:
        return tuple(fields_from_json(child) for child in value["tuple"])
    return Field(tuple(value["shape"]), np.dtype(value["dtype"]), compressed=value.get("compressed", False))


def config_to_json(config: Any) -> Any:
    """Return one of this library's configurations by name and options; of others the name alone."""
    if isinstance(config, np.ndarray | np.generic):
        config = config.tolist()
    if isinstance(config, (tuple, list)):
        return [config_to_json(one) for one in config]
    if config is None or isinstance(config, (str, int, float)):
        return config
    name, kind = type(config).__name__, type(config)
    if _kinds().get(name) is not kind:
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    return {"type": name} | {
        field.name: config_to_json(getattr(config, field.name)) for field in dataclass_fields(config)
    }


def is_custom(value: Any) -> bool:
    """Whether something within is none of this library's, of which `config_to_json` returned the name alone."""
    if isinstance(value, list):
        return any(is_custom(one) for one in value)
    return isinstance(value, dict) and ("custom" in value or any(is_custom(one) for one in value.values()))


def _as_declared(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with what older snapshots may hold (True for 1.0, 8.0 for 8, any truth value) as its type."""
    types: dict[str, Any] = {field.name: field.type for field in dataclass_fields(kind)}
    found = dict(options)
    for name, value in options.items():
        wanted = types[name] if name in types else type(value)
        odd = (wanted is float and isinstance(value, bool)) or (wanted is int and isinstance(value, float))
        if odd or wanted is bool:
            found[name] = wanted(value)
    return found


def config_from_json(value: Any) -> Any:
    """Return what `config_to_json` was given.

    Raises:
        SnapshotError: It was none of this library's.
    """
    if isinstance(value, list):
        return tuple(config_from_json(one) for one in value)
    if not isinstance(value, dict):
        return value
    options = {name: config_from_json(option) for name, option in value.items() if name not in ("type", "custom")}
    if (made := _kinds().get(value.get("type", ""))) is not None:
        return made(**_as_declared(made, options))
    raise SnapshotError(
        f"the snapshot's {value.get('custom', value.get('type'))} is none of this library's that can be written down; "
        "pass it: ReplayBuffer.load(path, sampler=...), load(path, transforms=...) or load(path, storage=...)"
    )


def _kinds() -> dict[str, type]:
    """Return this library's configurations that can be written down, by name: those that hold no functions."""
    found: dict[str, type] = {}
    waiting = list(BASES)
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        ours = kind.__module__.startswith("replaylab.replay.") and is_dataclass(kind) and not isabstract(kind)
        if ours and not any(get_origin(field.type) is Callable for field in dataclass_fields(kind)):
            found[kind.__name__] = kind
    return found
