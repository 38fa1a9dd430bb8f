"""Conversion of the arguments of `add` and `extend` to flat rows on the device."""

from typing import Any

import torch
from torch import Tensor

from replaylab.errors import FieldError, ShapeError
from replaylab.replay.data.arrays import as_array, refuse
from replaylab.torch.options import ENDS, DeviceOptions, top
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED
from replaylab.torch.rows.tensors import as_tensor, field_tensor, on_host
from replaylab.trees import flatten_as


def incoming_steps(
    options: DeviceOptions, call: str, steps: dict[str, Any], final_obs: Any, many: bool
) -> tuple[dict[str, Tensor], tuple[int, ...]]:
    r"""Return every field (T·E, \*shape) of some steps, and the lengths of their leading axes.

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
    values = dict(flatten_as(config.fields, steps))
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
    tensors = {path: field_tensor(path, values[path], field, leading, device) for path, field in flat.items()}
    if config.autoreset == "same_step":
        tensors |= _with_final_obs(options, tensors, final_obs, leading)
    rows = {path: tensors[path].reshape(-1, *field.shape) for path, field in flat.items()}
    return rows, tuple(leading.values())


def end_flags(rows: dict[str, Tensor], count: int, device: torch.device) -> Tensor:
    """Return the flags of n steps that `StepRing` stores, uint8 (n,)."""
    terminated, truncated = (rows[name].view(torch.uint8) if name in rows else None for name in ENDS)
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
        final = field_tensor(path, final_by_path[path], flat[path], leading, options.device)
        mask = ended.view(ended.shape + (1,) * (final.ndim - ended.ndim))
        replaced[path] = torch.where(mask, final, tensors[path])
    return replaced
