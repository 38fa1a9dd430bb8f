"""Settings as canonical JSON, whose hash identifies a run."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from replaylab.arguments import unchanged_since


def plain(value: Any) -> Any:
    """Return settings as JSON values: dataclasses by class name and fields, functions and classes by name.

    Example:
        >>> plain({"shape": (2, 3), "function": max})
        {'shape': [2, 3], 'function': 'builtins.max'}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Set):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    name = f"{named.__module__}.{named.__qualname__}"
    if not is_dataclass(value) or isinstance(value, type):
        return name
    options = {option: getattr(value, option.name) for option in fields(value)}
    return {"type": name, **{o.name: plain(v) for o, v in options.items() if not unchanged_since(o, v)}}


def canonical(value: Any) -> str:
    """Return JSON values as text; equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]
