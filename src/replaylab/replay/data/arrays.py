"""Checks and conversions of array arguments: shape, dtype, values.

The compiled core takes arrays that already fit; all other values are converted or refused here, so that every message
is written once.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST, InvalidArgument, checked, shown, whole
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError, DtypeError, FieldError, IdError, ShapeError
from replaylab.replay.data.fields import names_error
from replaylab.replay.data.progress import Progress

CASTABLE = {"b": "b", "i": "iub", "u": "iub", "f": "fiub", "c": "cfiub"}
"""For each kind of dtype, the kinds that can be stored in it without changing the meaning of values."""


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
        ShapeError: The value has another shape.
        DtypeError: The value cannot be stored in `dtype` unchanged.
    """
    lengths = {"replicas": replicas, "steps": steps, "num_envs": num_envs}
    return fitted_to(name, value, dtype, shape, {axis: n for axis, n in lengths.items() if n is not None})


def fitted_to_ids(
    name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], ids_shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return a field's values, one for each id, as a C-contiguous array of the shape of the ids, then `shape`.

    Raises:
        ShapeError, DtypeError: As for `fitted`.
    """
    return fitted_to(name, on_cpu(value), dtype, shape, axes_of_ids(ids_shape))


def axes_of_ids(ids_shape: tuple[int, ...]) -> dict[str, int]:
    """Return the lengths of the axes of ids, by names for messages."""
    return {f"ids.shape[{axis}]": n for axis, n in enumerate(ids_shape)}


def fitted_to(
    name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], leading: Mapping[str, int]
) -> npt.NDArray[Any]:
    """Return a field's value as a C-contiguous array of the leading axes, by their names, then `shape`.

    Raises:
        ShapeError, DtypeError: As for `fitted`.
    """
    array = as_array(f"field `{name}`", value)
    check_shape(name, array.shape, leading, shape)
    return cast(f"field `{name}`", array, dtype)


def check_shape(name: str, shape: tuple[int, ...], leading: Mapping[str, int], own_shape: tuple[int, ...]) -> None:
    """Check a value's shape.

    Args:
        name: Name of the field.
        shape: Shape of the value.
        leading: Lengths of the leading axes, by their names, in their order.
        own_shape: The field's declared shape, which follows them.

    Raises:
        ShapeError: The value has another shape.
    """
    expected = (*leading.values(), *own_shape)
    if shape != expected:
        axes = ", ".join(f"{axis}={n}" for axis, n in leading.items())
        meaning = f" ({axes}, then the shape of one value, {own_shape})" if axes else ""
        raise ShapeError(
            f"field `{name}` must have shape {expected}{meaning}, but got {shape}; pass such a value, or declare the "
            "field with another shape"
        )


def cast(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the array as a C-contiguous array of `dtype`; only a float's last digits may change.

    Raises:
        DtypeError: The kinds differ, or a value does not fit. An array without values fits every dtype.
    """
    if array.dtype == dtype and array.flags.carray:
        return array
    if not array.size:
        return np.zeros(array.shape, dtype)
    if array.dtype == object:
        raise DtypeError(
            f"{name} stores {dtype}, which cannot hold {type(array.flat[0]).__name__} objects, "
            "or numbers beyond 64 bits; pass an array or a number"
        )
    original, array = array.dtype, widened(array)
    if array.dtype.kind not in CASTABLE[dtype.kind]:
        raise DtypeError(
            f"{name} stores {dtype}, but got {original}, and {dtype} cannot hold every {original}; convert the values, "
            "or declare the field with another dtype"
        )
    if dtype.kind in "iu" and array.dtype != dtype:
        limits = np.iinfo(dtype)
        for extreme in (array.min(), array.max()):
            if not limits.min <= int(extreme) <= limits.max:
                raise DtypeError(
                    f"{name} stores {dtype} ({limits.min} to {limits.max}), which cannot hold {int(extreme)}; "
                    "declare the field with a wider dtype"
                )
    try:
        with np.errstate(over="raise"):
            return np.require(array, dtype, ["C", "A"])
    except FloatingPointError:
        raise DtypeError(
            f"{name} stores {dtype}, which cannot hold a value as large as {np.abs(array).max()}; "
            "declare the field with a wider dtype"
        ) from None


def as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return any array-like as an array.

    Raises:
        ShapeError: The value is a list of lists of unequal lengths.
        DtypeError: The value is another library's array that NumPy does not take; the message holds NumPy's advice.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array, but NumPy cannot make one of it: {error}") from None
    except (TypeError, RuntimeError) as error:  # PyTorch raises these for bfloat16 and for tensors with gradients
        if f"{getattr(value, 'dtype', None)}" == "torch.bfloat16":
            return as_array(name, value.float())
        raise DtypeError(f"{name} must be an array, but NumPy cannot make one of it: {error}") from None


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers of ml_dtypes, such as JAX's bfloat16, in a NumPy dtype that holds them exactly."""
    if array.dtype.kind != "V":
        return array
    dtype = next(
        (candidate for candidate in (np.int8, np.uint8, np.float32) if np.can_cast(array.dtype, candidate)), array.dtype
    )
    return array.astype(dtype)


def steps_of(name: str, value: Any, axis: int) -> int:
    """Return the length of a value's steps axis.

    Raises:
        ShapeError: The value has no such axis.
    """
    shape = value.shape if isinstance(value, np.ndarray) else as_array(f"field `{name}`", value).shape
    if len(shape) <= axis:
        raise ShapeError(f"field `{name}` of `extend` must have a steps axis at place {axis}, but got shape {shape}")
    return int(shape[axis])


def on_cpu(values: Any) -> Any:
    """Return a tensor of PyTorch detached and on the CPU, so that NumPy takes it; other values unchanged."""
    if type(values).__module__.partition(".")[0] != "torch" or not hasattr(values, "detach"):
        return values
    return values.detach().cpu()


def ids_array(ids: Any) -> npt.NDArray[np.int64]:
    """Return ids as int64.

    Raises:
        DtypeError: The ids are not integers (a boolean mask is not ids).
        IdError: An id is larger than any int64.
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
        DtypeError: The values are not real numbers.
    """
    array = widened(as_array(f"`{name}`", on_cpu(values)))
    if array.dtype.kind not in "fiu":
        raise DtypeError(f"`{name}` must be real numbers, but got {array.dtype}; pass one float an id")
    return np.require(array, np.float64, ["C", "A"])


def feedback_of(ids: Any, td_error: Any, priority: Any, sampler: object, takes_priorities: bool) -> tuple[str, Any]:
    """Return the name and value of the argument passed to `update_priorities`; one priority is repeated for all ids.

    Raises:
        ConfigError: Both were passed, or none; or priorities, to a sampler that does not use any.
    """
    if (td_error is None) == (priority is None):
        raise ConfigError("`update_priorities` takes either `td_error` or `priority`; pass exactly one of them")
    if priority is None:
        return "td_error", td_error
    if not takes_priorities:
        raise ConfigError(
            f"`priority` needs a sampler that uses priorities, but {sampler!r:.200} draws a step whatever its priority "
            "is; make the buffer with sampler=Prioritized(), or pass `td_error`, which this sampler ignores"
        )
    values = priority if hasattr(priority, "ndim") else as_array("`priority`", priority)
    return "priority", values if values.ndim else np.full(np.shape(ids), values_array("priority", values))


def picked(name: str, selection: Any, count: int) -> list[int]:
    """Return the selected numbers below `count`, from numbers or from a mask of `count` booleans.

    Raises:
        ConfigError: The selection is neither, selects nothing, or holds a number out of range.
    """
    array = as_array(f"`{name}`", selection)
    if array.shape == (count,) and array.dtype.kind == "b":
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size or ((array < 0) | (array >= count)).any():
        rule = f"numbers from 0 to {count - 1}, at least one, or {count} booleans"
        raise ConfigError(f"`{name}` must be {rule}, but got {shown(selection)}")
    return [int(number) for number in array]


def positive(name: str, value: Any, most: int = LARGEST, least: int = 1) -> int:
    """Return the value as an int from `least` to `most`.

    Raises:
        ConfigError: The value is not an integer in this range.
    """
    return checked(name, value, whole(least, most))


def checked_progress(progress: float | npt.ArrayLike, replicas: int | None) -> list[float]:
    """Return training progress as a list of one number for all replicas, or of one for each.

    Raises:
        ConfigError: A number is not in [0, 1], or there are neither one nor R numbers.
    """
    if isinstance(progress, float) and 0.0 <= progress <= 1.0:
        return [progress]  # the most frequent case
    array = _progress_array(progress)
    if array is None or array.shape not in ((), () if replicas is None else (replicas,)):
        per_replica = "" if replicas is None else f", one number or one for each of {replicas} replicas"
        raise ConfigError(
            f"`progress` must be in [0, 1] (0: the run begins, 1: it ends){per_replica}, but got {progress!r}"
        )
    shares: list[float] = array.astype(np.float64).ravel().tolist()
    steps = getattr(progress, "steps", None)
    return shares if steps is None else [Progress(share, steps) for share in shares]


def a_progress(value: Any) -> Any:
    """Training progress, as functions of a batch's number return it: a number, or one for each replica."""
    if _progress_array(value) is None:
        raise InvalidArgument("a number in [0, 1] (0: training begins, 1: it ends), or one for each replica")
    return value


def _progress_array(value: Any) -> npt.NDArray[Any] | None:
    """Return real numbers in [0, 1] as an array, None for any other value."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None
    real = array.dtype.kind in "iuf"
    return array if real and ((array >= 0.0) & (array <= 1.0)).all() else None


def refuse(call: str, arguments: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """Raise the error for a call whose arguments are not every field exactly once."""
    if arguments.get("final_obs") is not None:
        raise FieldError(
            '`final_obs` belongs to autoreset="same_step", which this buffer does not have; leave it out, or make '
            'the buffer with autoreset="same_step"'
        )
    steps = {name: value for name, value in arguments.items() if name not in ("where", "final_obs")}
    raise names_error(call, steps, fields)


def writable(fields: Iterable[str], clocks: tuple[str, ...]) -> frozenset[str]:
    """Return the fields that `write` may change: not those that end episodes or are a sampler's clock."""
    return frozenset(fields) - {*ENDS, *clocks}


def write_error(values: Mapping[str, Any], fields: tuple[str, ...], clocks: tuple[str, ...]) -> FieldError:
    """Return the error for a call of `write` whose arguments are not fields that can be changed.

    Args:
        values: The arguments by path.
        fields: The paths of all fields.
        clocks: Those that are a sampler's clock.
    """
    fixed = next((name for name in (*ENDS, *clocks) if name in values), None)
    if fixed is None:
        return names_error("write", values, fields, any_of_them=True)
    depends = "episodes depend" if fixed in ENDS else "its age depends"
    return FieldError(f"`{fixed}` of a stored step cannot be changed, since {depends} on it; leave it out")
