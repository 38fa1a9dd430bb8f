"""The training loop's own part of a snapshot, such as networks, optimizers and random states, as JSON and arrays.

Only plain data is stored, and nothing that runs when it is read. The JSON of a value is

* None, True, False, text and finite floats: themselves; so are whole numbers of 64 bits; others are
  ``{"integer": "0x..."}``, and NaN and infinities ``{"float": "nan"}``, "inf", "-inf";
* a list: an array; a tuple: ``{"tuple": [...]}``;
* a mapping: ``{"mapping": {...}}``, or ``{"items": [[key, value], ...]}`` if a key is a whole number;
* ``{"array": name}``, ``{"scalar": name}`` and ``{"bytes": name}``: an array, its only entry, or its bytes;
* ``{"tensor": name, "dtype": "float32"}``: a tensor of PyTorch. If NumPy lacks its dtype, the array has one more axis,
  the bytes of each entry.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, instance, shown
from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.trees import DEEPEST

PREFIX = "loop."
"""First part of the names of the arrays."""

RULE = "None, a bool, a number, text, bytes, a NumPy array, a tensor of PyTorch, or a dict, list or tuple of these"

STATES = {
    "state_dict": "state_dict()",
    "bit_generator": "bit_generator.state",
    "getstate": "getstate()",
    "get_state": "get_state()",
}
"""Attribute of an object that cannot be stored, and the expression for its state that can."""


def written(state: Any) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    """Return a state as JSON and arrays; arrays and tensors of the CPU are not copied.

    Raises:
        ConfigError: The state is not a mapping, or a value in it cannot be stored.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    rule = instance(Mapping, "a mapping of names to values")
    return _json_of(checked("state", state, rule), "state", 0, arrays), arrays


def read(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the state of `written`; tensors are on the CPU.

    Raises:
        LookupError, TypeError, ValueError, RuntimeError: The JSON or an array is not as `written` returned it.
        MissingExtraError: The state has tensors, and PyTorch is not installed.
    """
    return _value_of(value, {name: array for name, array in arrays.items() if name.startswith(PREFIX)})


def _json_of(value: Any, path: str, depth: int, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    def child(entry: Any, key: Any) -> Any:
        return _json_of(entry, f"{path}[{key!r}]", depth + 1, arrays)

    def named(array: npt.NDArray[Any]) -> str:
        name = f"{PREFIX}{len(arrays)}"
        arrays[name] = array
        return name

    if depth > DEEPEST and isinstance(value, Mapping | list | tuple):
        raise ConfigError(
            f"`{path}` must be nested at most {DEEPEST} levels deep, but got {shown(value)}; nest it less"
        )
    if isinstance(value, np.ndarray | np.generic):
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: named(checked(path, value, _plain_array))}
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else {"integer": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, bytes):
        return {"bytes": named(np.frombuffer(value, np.uint8))}
    if isinstance(value, list):
        return [child(entry, key) for key, entry in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [child(entry, key) for key, entry in enumerate(value)]}
    if isinstance(value, Mapping):
        keys = [checked(f"a key of {path}", key, _key) for key in value]
        entries = [child(value[key], key) for key in keys]
        if all(isinstance(key, str) for key in keys):
            return {"mapping": dict(zip(keys, entries, strict=True))}
        return {"items": [list(item) for item in zip(keys, entries, strict=True)]}
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    if torch is not None and isinstance(value, torch.Tensor):
        array = checked(path, value, _tensor_array)
        return {"tensor": named(array), "dtype": str(value.dtype).removeprefix("torch.")}
    raise ConfigError(f"`{path}` must be {RULE}, but got {shown(value)}; {_fix_of(value)}")


def _fix_of(value: Any) -> str:
    """Return how to store a value of another type."""
    for attribute, expression in STATES.items():
        if hasattr(value, attribute):
            return f"pass its `{expression}`"
    if hasattr(value, "__array__"):
        return "pass `numpy.asarray` of it"
    return "convert it, or pass its bytes, such as `pickle.dumps` of it, and unpickle only files that you trust"


def _key(value: Any) -> Any:
    """A key of a mapping: text or a whole number."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument("text or a whole number", fix="convert it with `str`")
    return value


def _plain_array(value: Any) -> npt.NDArray[Any]:
    """An array of numbers, bools, dates or text."""
    array = np.asarray(value, order="C")
    if array.dtype.kind not in "biufcmMSU" or not array.dtype.itemsize or isinstance(value, np.ma.MaskedArray):
        raise InvalidArgument(
            "an array of numbers, bools, dates, text or bytes, without a mask",
            fix="convert it with `astype`, or store each part as a separate array",
        )
    return array


def _tensor_array(value: Any) -> npt.NDArray[Any]:
    """A dense tensor of PyTorch, as an array of its values, or of their bytes if NumPy lacks the dtype."""
    import torch

    invalid = InvalidArgument("a dense tensor of numbers", fix="pass its `to_dense()` or `dequantize()`")
    if value.layout is not torch.strided or value.is_meta:
        raise invalid
    dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        array: npt.NDArray[Any] = dense.numpy()
    except TypeError:
        if not _only_in_torch(value.dtype):
            raise invalid from None
        array = dense.clone(memory_format=torch.contiguous_format).unsqueeze(-1).view(torch.uint8).numpy()
    return array


def _only_in_torch(dtype: Any) -> bool:
    """Whether a dtype that NumPy lacks is one of numbers, such as bfloat16; others are quantized or parts of a byte."""
    return bool(dtype.is_floating_point or dtype.is_complex)


def _value_of(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return the value of JSON; each array is used once, so that a state is not larger than its file."""
    if isinstance(value, list):
        return [_value_of(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    kind, *_ = value
    content = value[kind]
    if kind == "mapping":
        return {key: _value_of(entry, arrays) for key, entry in content.items()}
    if kind == "items":
        return {_key(key): _value_of(entry, arrays) for key, entry in content}
    if kind == "tuple":
        return tuple(_value_of(entry, arrays) for entry in content)
    if kind == "integer":
        return int(content, 16)
    if kind == "float":
        return float(content)
    array = arrays.pop(content)
    if kind == "tensor":
        return _tensor_of(array, value["dtype"])
    if kind == "bytes":
        return array.tobytes()
    if kind == "scalar":
        return array.reshape(())[()]
    if kind == "array":
        return array
    raise ValueError(f"a value of the kind {kind!r:.80}")


def _tensor_of(array: npt.NDArray[Any], dtype_name: str) -> Any:
    with needs("a snapshot whose state has tensors", "torch"):
        import torch
    dtype = getattr(torch, dtype_name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a tensor of dtype {dtype_name!r:.80}")
    tensor = torch.from_numpy(array)
    if tensor.dtype == dtype:
        return tensor
    if not _only_in_torch(dtype):
        raise ValueError(f"a tensor of {dtype}")
    of_bytes = tensor.clone(memory_format=torch.contiguous_format)  # an empty array has strides that `view` refuses
    return of_bytes.view(dtype).squeeze(-1)
