"""Arguments of a `DeviceReplay` as tensors on its device.

Tensors are checked by shape and dtype only: values would need a wait. All other values are on the host, and are checked
as those of a `ReplayBuffer` are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.compiler import is_compiling

from replaylab.arguments import shown
from replaylab.episode_ends import ENDS
from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.replay.data.arrays import (
    CASTABLE,
    as_array,
    axes_of_ids,
    check_shape,
    feedback_of,
    fitted_to,
    ids_array,
    refuse,
    values_array,
)
from replaylab.replay.data.fields import Field
from replaylab.torch.options import DeviceOptions, top, torch_dtype
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED
from replaylab.trees import flatten_as


def on_host(value: Any) -> bool:
    """Whether a value is neither a tensor nor another library's array on a GPU, so that its numbers can be checked.

    A compiler passes only tensors.
    """
    return not (isinstance(value, Tensor) or hasattr(value, "__cuda_array_interface__") or is_compiling())


def moved(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device."""
    return as_tensor("the array", array if array.flags.writeable else array.copy(), device)


def as_tensor(what: str, value: Any, device: torch.device) -> Tensor:
    """Return any array-like as a tensor without gradient on a device.

    Raises:
        DtypeError: It is not an array of numbers.
    """
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(f"{what} must be a tensor or an array of numbers, but got {shown(value)} ({error})") from None
    tensor = tensor.detach() if tensor.requires_grad else tensor
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=device.type != "cpu")  # to the CPU, PyTorch would not wait for the copy


def field_tensor(
    path: str, value: Any, field: Field, dtype: torch.dtype, leading: dict[str, int], device: torch.device
) -> Tensor:
    """Return a field's value of the leading axes, then the field's shape, in its dtype of PyTorch.

    Raises:
        ShapeError: The value has another shape.
        DtypeError: Its dtype, or a value on the host, does not fit the field's.
    """
    if (
        type(value) is Tensor
        and value.dtype == dtype
        and value.device == device
        and value.shape == (*leading.values(), *field.shape)
    ):  # the most frequent case
        return value.detach() if value.requires_grad else value
    if on_host(value):
        return moved(fitted_to(path, value, field.dtype, field.shape, leading), device)
    tensor = as_tensor(f"field `{path}`", value, device)
    check_shape(path, tuple(tensor.shape), leading, field.shape)
    if tensor.dtype != dtype and not _fits(tensor.dtype, dtype, field):
        raise DtypeError(
            f"field `{path}` stores {field.dtype}, but got {tensor.dtype}, whose values may not fit and cannot be "
            f"checked on the device; convert it (`.to({dtype})`)"
        )
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _fits(source: torch.dtype, wanted: torch.dtype, field: Field) -> bool:
    """Whether every value of a dtype can be stored in another, except for a float's last digits."""
    if wanted.is_floating_point and source.is_floating_point:
        return True
    if source == torch.bfloat16:
        return False
    kind = torch.zeros(0, dtype=source).numpy().dtype
    return kind.kind in CASTABLE[field.dtype.kind] and (
        wanted.is_floating_point or bool(np.can_cast(kind, field.dtype, "safe"))
    )


def ids_tensor(ids: Any, device: torch.device) -> Tensor:
    """Return ids as int64.

    Raises:
        DtypeError: They are not integers.
        IdError: An id on the host is larger than any int64.
    """
    if on_host(ids):
        return moved(ids_array(ids), device)
    tensor = as_tensor("`ids`", ids, device)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise DtypeError(f"`ids` must be integers, but got {tensor.dtype}; pass the ids that add or sample returned")
    return tensor.to(torch.int64)


def written_tensors(ids: Any, values: Mapping[str, Any], options: DeviceOptions) -> tuple[Tensor, dict[str, Tensor]]:
    r"""Return ids (n,) and flat values (n, \*shape) of `write`.

    Raises:
        FieldError: A next observation is derived, so it cannot be written.
        ShapeError, DtypeError: A value does not fit its field or the ids.
    """
    derived = [path for path in values if options.derived and top(path) == "next_obs"]
    if derived:
        raise FieldError(
            f"`{derived[0]}` is derived from the `obs` of the next step in this DeviceReplay, so it cannot be written; "
            'write that `obs`, or make the replay with next_obs="stored"'
        )
    rows, device = ids_tensor(ids, options.device), options.device
    leading, tensors = axes_of_ids(tuple(rows.shape)), {}
    for path, value in values.items():
        field = options.config.flat[path]
        tensor = field_tensor(path, value, field, torch_dtype(path, field), leading, device)
        tensors[path] = tensor.reshape(-1, *field.shape)
    return rows.flatten(), tensors


def feedback_tensors(ids: Any, td_error: Any, priority: Any, options: DeviceOptions) -> tuple[Tensor, Tensor, bool]:
    """Return ids and values (n,) of `update_priorities`, and whether the values are priorities.

    Raises:
        ConfigError: Not exactly one of `td_error` and `priority` is given, or a priority to a sampler without.
        ShapeError, DtypeError: The tensors do not fit each other.
    """
    rows, sampler = ids_tensor(ids, options.device), options.config.sampler
    if priority is not None and not on_host(priority):
        priority = as_tensor("`priority`", priority, options.device)
        priority = priority if priority.ndim else priority.expand(rows.shape)  # `feedback_of` would wait for its value
    name, values = feedback_of(rows, td_error, priority, sampler, sampler.takes_priorities)
    values = _real_tensor(f"`{name}`", values, options.device)
    if values.shape != rows.shape:
        raise ShapeError(f"`{name}` must have the shape of `ids`, {tuple(rows.shape)}, but got {tuple(values.shape)}")
    return rows.flatten(), values.flatten(), name == "priority"


def _real_tensor(what: str, values: Any, device: torch.device) -> Tensor:
    """Return TD errors or priorities as a tensor.

    Raises:
        DtypeError: They are not real numbers.
    """
    if on_host(values):
        reals = values_array(what.strip("`"), values)
        return moved(reals.astype(np.float32) if device.type == "mps" else reals, device)
    tensor = as_tensor(what, values, device)
    if tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise DtypeError(f"{what} must be real numbers, but got {tensor.dtype}; pass one float an id")
    return tensor


def incoming_steps(
    options: DeviceOptions, call: str, steps: dict[str, Any], final_obs: Any, many: bool
) -> tuple[dict[str, Tensor], tuple[int, ...]]:
    r"""Return every field (\*leading axes, \*shape) of some steps, and the lengths of their leading axes.

    Args:
        options: Options of the replay.
        call: Name of the method, for errors.
        steps: The fields as passed.
        final_obs: As passed.
        many: Whether there is a T axis.

    Raises:
        FieldError: A field is missing or unknown, or `final_obs` is, or `where` was passed.
        ShapeError, DtypeError: A value does not fit its field.
    """
    if steps.pop("where", None) is not None:
        raise FieldError(
            f"`where` of `{call}` must be left out in a DeviceReplay, where every environment takes each step; store "
            "steps of some environments in a ReplayBuffer"
        )
    config, flat, device = options.config, options.config.flat, options.device
    nested = config.fields.keys() != flat.keys()
    values = dict(flatten_as(config.fields, steps)) if nested else steps
    if values.keys() != flat.keys() or (final_obs is not None and config.autoreset != "same_step"):
        refuse(call, values | {"final_obs": final_obs}, tuple(flat))
    leading = {} if config.num_envs is None else {"num_envs": config.num_envs}
    if many:
        first = next(iter(flat))
        what, value = f"field `{first}`", values[first]
        shape = as_array(what, value).shape if on_host(value) else as_tensor(what, value, device).shape
        if not shape:
            raise ShapeError(f"field `{first}` of `extend` must have a steps axis at place 0, but got shape ()")
        leading = {"steps": shape[0]} | leading
    tensors = {
        path: field_tensor(path, values[path], field, options.dtypes[path], leading, device)
        for path, field in flat.items()
    }
    if config.autoreset == "same_step":
        tensors |= _with_final_obs(options, tensors, final_obs, leading)
    return tensors, tuple(leading.values())


def end_flags(rows: dict[str, Tensor], count: int, device: torch.device) -> Tensor:
    """Return the flags of n steps that `StepRing` stores, uint8 (n,), of bools (n, 1)."""
    terminated, truncated = (rows[name][:, 0].view(torch.uint8) if name in rows else None for name in ENDS)
    if terminated is not None and truncated is not None:
        return torch.add(terminated, truncated, alpha=TRUNCATED)
    if terminated is not None:
        return terminated * TERMINATED
    return torch.zeros(count, dtype=torch.uint8, device=device) if truncated is None else truncated * TRUNCATED


def _with_final_obs(
    options: DeviceOptions, tensors: dict[str, Tensor], final_obs: Any, leading: dict[str, int]
) -> dict[str, Tensor]:
    """Return the fields of ``next_obs`` with those of ended environments replaced."""
    flat = options.config.flat
    paths = [path for path in flat if top(path) == "next_obs"]
    final_by_path = dict(flatten_as(options.config.fields, {"next_obs": final_obs}))
    if final_by_path.keys() != set(paths) or any(value is None for value in final_by_path.values()):
        raise FieldError(
            "`final_obs` must hold the last observations of all environments, as tensors nested and shaped as "
            f"`next_obs` is ({', '.join(paths)}), but got {type(final_obs).__name__}; only those of ended environments "
            "are used"
        )
    ended = tensors["terminated"] | tensors["truncated"]
    replaced = {}
    for path in paths:
        final = field_tensor(path, final_by_path[path], flat[path], options.dtypes[path], leading, options.device)
        mask = ended.view(ended.shape + (1,) * (final.ndim - ended.ndim))
        replaced[path] = torch.where(mask, final, tensors[path])
    return replaced
