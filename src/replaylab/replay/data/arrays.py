"""The rules an argument must keep: its shape, its dtype, its values.

The compiled core takes arrays that already fit as they are; everything else comes here to be made to fit or
refused, so that every message is written once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST, checked, shown, whole
from replaylab.errors import ConfigError, DtypeError, FieldError, IdError, ShapeError

CASTABLE = {"b": "b", "i": "iub", "u": "iub", "f": "fiub", "c": "cfiub"}
"""Kinds of dtype a kind can take in: nothing that would change what a value means."""


def fitted(
    name: str,
    value: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    replicas: int | None,
    steps: int | None,
    num_envs: int | None,
) -> npt.NDArray[Any]:
    """Return a field's value as a C-contiguous array of the leading axes that are present, then `shape`.

    Raises:
        ShapeError: Its shape is another one.
        DtypeError: It cannot be stored in `dtype` unchanged.
    """
    array = as_array(f"field `{name}`", value)
    leading = {"replicas": replicas, "steps": steps, "num_envs": num_envs}
    leading = {axis: n for axis, n in leading.items() if n is not None}
    wanted = (*leading.values(), *shape)
    if array.shape != wanted:
        axes = ", ".join(f"{axis}={n}" for axis, n in leading.items())
        raise ShapeError(
            f"field `{name}` must have shape {wanted}, that is "
            f"{f'the leading axes ({axes}) and ' if axes else ''}its own shape {shape}, but got {array.shape}; "
            "leading axes are replicas, steps, environments in this order, each only where declared or called for"
        )
    return cast(f"field `{name}`", array, dtype)


def cast(what: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the array C-contiguous and as `dtype`, its values unchanged but for a float's last digits.

    Raises:
        DtypeError: The kinds differ, or a value does not fit.
    """
    if array.dtype == object:
        raise DtypeError(
            f"{what} stores {dtype}, which cannot hold {type(array.flat[0]).__name__} objects, "
            "or numbers beyond 64 bits; pass an array or a number"
        )
    if array.dtype.kind not in CASTABLE[dtype.kind]:
        raise DtypeError(
            f"{what} stores {dtype}, but got {array.dtype}, which would change what the values mean; convert it "
            f'(`.astype("{dtype}")`) or declare the field with another dtype'
        )
    if dtype.kind in "iu" and array.dtype != dtype and array.size:
        limits = np.iinfo(dtype)
        for extreme in (array.min(), array.max()):
            if not limits.min <= int(extreme) <= limits.max:
                raise DtypeError(
                    f"{what} stores {dtype} ({limits.min} to {limits.max}), which cannot hold {int(extreme)}; "
                    "declare the field with a wider dtype"
                )
    try:
        with np.errstate(over="raise"):
            return np.require(array, dtype, ["C", "A"])
    except FloatingPointError:
        raise DtypeError(
            f"{what} stores {dtype}, which cannot hold a value as large as {np.abs(array).max()}; "
            "declare the field with a wider dtype"
        ) from None


def as_array(what: str, value: Any) -> npt.NDArray[Any]:
    """Return any array-like as an array.

    Raises:
        ShapeError: It is a list of lists of unequal lengths.
        DtypeError: It is another library's array that NumPy has no type for, or that must be detached before.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{what} must be an array, but NumPy cannot make one of it: {error}") from None
    except (TypeError, RuntimeError) as error:  # PyTorch's, of bfloat16 and of tensors with gradients
        raise DtypeError(
            f"{what} must be an array, but NumPy cannot make one of it: {error}; give `.detach()`, and `.float()` of "
            f"bfloat16"
        ) from None


def steps_of(name: str, value: Any, axis: int) -> int:
    """Return the length of a value's steps axis.

    Raises:
        ShapeError: It has no such axis.
    """
    shape = value.shape if isinstance(value, np.ndarray) else as_array(f"field `{name}`", value).shape
    if len(shape) <= axis:
        raise ShapeError(f"field `{name}` of `extend` must have a steps axis at place {axis}, but got shape {shape}")
    return int(shape[axis])


def on_cpu(values: Any) -> Any:
    """Return a tensor of PyTorch as one that NumPy takes: on the CPU, without a gradient; all else as it is."""
    if type(values).__module__.partition(".")[0] != "torch" or not hasattr(values, "detach"):
        return values
    return values.detach().cpu()


def ids_array(ids: Any) -> npt.NDArray[np.int64]:
    """Return ids as int64.

    Raises:
        DtypeError: They are no integers (a boolean mask is not ids).
        IdError: One is larger than any id.
    """
    array = as_array("`ids`", on_cpu(ids))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DtypeError(f"`ids` must be integers, but got {array.dtype}; pass the ids that add or sample returned")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise IdError(f"id {array.max()} was never given out: ids are int64")
    return np.require(array, np.int64, ["C", "A"])


def values_array(name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return TD errors or priorities as float64.

    Raises:
        DtypeError: They are no real numbers.
    """
    array = as_array(f"`{name}`", on_cpu(values))
    if array.dtype.kind not in "fiu":
        raise DtypeError(f"`{name}` must be real numbers, but got {array.dtype}; pass one float an id")
    return np.require(array, np.float64, ["C", "A"])


def picked(name: str, given: Any, count: int) -> list[int]:
    """Return which of `count` are meant by their numbers, or by one bool for each.

    Raises:
        ConfigError: It is neither, there is no such number, or none is meant.
    """
    array = as_array(f"`{name}`", given)
    if array.shape == (count,) and array.dtype.kind == "b":
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size or ((array < 0) | (array >= count)).any():
        rule = f"numbers from 0 to {count - 1}, at least one, or {count} booleans"
        raise ConfigError(f"`{name}` must be {rule}, but got {shown(given)}")
    return [int(number) for number in array]


def positive(name: str, value: Any, most: int = LARGEST, least: int = 1) -> int:
    """Return the value as an int from `least` to `most`.

    Raises:
        ConfigError: It is no whole number, or outside.
    """
    return checked(name, value, whole(least, most))


def checked_progress(progress: float | npt.ArrayLike, replicas: int | None) -> list[float]:
    """Return training progress: of all replicas together, or of each of R.

    Raises:
        ConfigError: It is not in [0, 1], or neither one number nor R.
    """
    if isinstance(progress, float) and 0.0 <= progress <= 1.0:
        return [progress]  # in a hurry
    try:
        given = np.asarray(progress)
    except ValueError:  # lists of unequal lengths
        given = np.array(None)
    fits = given.dtype.kind in "iuf" and given.shape in ((), () if replicas is None else (replicas,))
    if not fits or not ((given >= 0.0) & (given <= 1.0)).all():
        each = "" if replicas is None else f", one number or one for each of {replicas} replicas"
        raise ConfigError(f"`progress` must be in [0, 1] (0: the run begins, 1: it ends){each}, but got {progress!r}")
    found: list[float] = given.astype(np.float64).ravel().tolist()
    return found


def refuse(call: str, given: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """Raise the error for a call that did not give every field exactly once, and nothing else."""
    if given.get("final_obs") is not None:
        raise FieldError(
            '`final_obs` belongs to autoreset="same_step", which this buffer does not have; leave it out, or make '
            'the buffer with autoreset="same_step"'
        )
    from replaylab.replay.data.fields import names_error

    raise names_error(
        call, {name: value for name, value in given.items() if name not in ("where", "final_obs")}, fields
    )
