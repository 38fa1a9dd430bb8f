"""Episodes from the arrays of offline data sets, in the formats of D4RL and OGBench; needs only NumPy."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, mapping, one_of, optional, text
from replaylab.episode_ends import truncated_at_the_end
from replaylab.errors import ConfigError, FieldError, ShapeError

STEPS = {"action": "actions", "reward": "rewards"}
"""Fields of a step, and the names of their arrays; either may be missing."""

FLAGS = ("terminals", "timeouts", "masks", "valids")
SCALARS = ("rewards", *FLAGS)
"""Arrays that hold one number a step."""


def episodes(
    arrays: Mapping[str, Any],
    *,
    terminals: Literal["terminated", "ends"] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a data set, in the form that `ReplayBuffer.extend_episode` takes.

    Without ``next_observations``, the next observation of an episode's last step is missing. If the episode terminated,
    no target needs it, and the last observation is repeated. If the episode was truncated, or the data end, this step
    is left out, and the previous step is truncated, since its next observation is known. With ``next_observations``,
    every valid row is kept as a step. An episode then also ends where the next row's observation
    differs from them, for example because rows were left out.

    Args:
        arrays: ``observations`` (N, ...), ``terminals`` (N,), and optionally ``actions``, ``rewards``,
            ``next_observations``, ``timeouts``, ``masks``, ``valids``. An opened HDF5 file works, too. Arrays with one
            number a step may have shape (N, 1).
        terminals: Meaning of ``terminals``. "terminated": the task ended, as in D4RL. "ends": the trajectory ended, as
            in OGBench, where ``masks`` of 0 mark termination. None: as in OGBench with ``masks`` or ``valids``, as in
            D4RL with ``timeouts``.
        extra: More fields of a step: the field's name → the array's name, such as ``{"qpos": "infos/qpos"}``.

    Raises:
        FieldError: An array is missing, or `extra` names a field that every episode has.
        ShapeError: The arrays' lengths differ, observations have two shapes, or an array with one number a step is
            neither (N,) nor (N, 1).
        ConfigError: The meaning of ``terminals`` is not passed, and the arrays do not show it.

    Example:
        >>> arrays = {"observations": np.arange(5.0), "terminals": [0, 1, 0, 0, 0], "timeouts": [0, 0, 0, 0, 1]}
        >>> [(episode["obs"].tolist(), episode["terminated"].tolist()) for episode in episodes(arrays)]
        [([0.0, 1.0, 1.0], [False, True]), ([2.0, 3.0, 4.0], [False, False])]
    """
    arrays = checked("arrays", arrays, mapping)
    extra = checked("extra", extra or {}, mapping)
    names = STEPS | {name: checked("extra", array_name, text) for name, array_name in extra.items()}
    if reserved := sorted({"obs", "next_obs", "terminated", "truncated", *STEPS} & set(extra)):
        raise FieldError(
            f"`extra` must name its own fields, but {reserved[0]!r} is one that every episode has; rename it"
        )
    for name in ("observations", "terminals", *extra.values()):
        if name not in arrays:
            raise FieldError(f"the data set must have the array `{name}`, but has {', '.join(arrays)}")
    read = {name: np.asarray(arrays[name]) for name in _used(arrays, names)}
    check_one_length("the arrays of a data set", read)
    shapes = {name: read[name].shape for name in ("observations", "next_observations") if name in read}
    if len(set(shapes.values())) != 1:
        raise ShapeError(f"the observations of a data set must have one shape, but got {shapes}")
    read |= {name: _one_a_step(name, read[name]) for name in SCALARS if name in read}
    columns = {name: read[array_name] for name, array_name in names.items() if array_name in read}
    terminated, over = _ends(read, checked("terminals", terminals, optional(one_of("terminated", "ends"))))
    steps = read["valids"] != 0 if "valids" in read else np.ones_like(over)
    return _split(read["observations"], read.get("next_observations"), columns, terminated, over, steps)


def check_one_length(noun: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise `ShapeError` unless all columns have the same number of rows."""
    lengths = {name: len(column) for name, column in columns.items() if column.ndim}
    if len(set(lengths.values())) != 1 or len(lengths) < len(columns):
        raise ShapeError(f"{noun} must have one length, but got {lengths}")


def _used(arrays: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    candidates = ("observations", "next_observations", *FLAGS, *names.values())
    return [name for name in candidates if name in arrays]


def _one_a_step(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.shape[1:] not in ((), (1,)):
        n = len(array)
        raise ShapeError(
            f"`{name}` of a data set must have one number a step, ({n},) or ({n}, 1), but has shape {array.shape}; "
            "give the column that holds it"
        )
    return array.reshape(len(array))


def _ends(read: Mapping[str, Any], terminals: str | None) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return where episodes terminated, and where they are over for any reason (N,)."""
    flags = {name: read[name] != 0 for name in FLAGS if name in read}
    if terminals is None:
        if not {"masks", "valids", "timeouts"} & flags.keys():
            raise ConfigError(
                "the data set does not show whether `terminals` are ends of the task or of the recording; pass "
                'terminals="terminated" (D4RL: no bootstrap there) or terminals="ends" (OGBench: bootstrap)'
            )
        terminals = "ends" if {"masks", "valids"} & flags.keys() else "terminated"
    over = flags["terminals"] | flags.get("timeouts", np.zeros_like(flags["terminals"]))
    if terminals == "terminated":
        return flags["terminals"], over
    terminated = ~flags["masks"] if "masks" in flags else np.zeros_like(over)
    if "valids" not in flags:
        return terminated, over
    return terminated & flags["valids"], ~flags["valids"]  # an invalid row holds an observation, but no step


def _same(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which numbers are equal after rounding to the coarser dtype of both; NaN equals NaN."""
    if first.dtype.kind != "f" or second.dtype.kind != "f":
        return np.asarray(first == second)
    coarse = min(first.dtype, second.dtype, key=lambda dtype: dtype.itemsize)
    with np.errstate(over="ignore"):
        first_rounded, second_rounded = first.astype(coarse, copy=False), second.astype(coarse, copy=False)
    return np.asarray((first_rounded == second_rounded) | (np.isnan(first_rounded) & np.isnan(second_rounded)))


def _split(
    obs: Any,
    next_obs: Any,
    columns: Mapping[str, Any],
    terminated: npt.NDArray[np.bool_],
    over: npt.NDArray[np.bool_],
    is_step: npt.NDArray[np.bool_],
) -> Iterator[dict[str, Any]]:
    if next_obs is not None and len(obs):
        follows = _same(next_obs[:-1], obs[1:]).all(tuple(range(1, obs.ndim)))
        over = over.copy()
        over[:-1] |= ~follows
    begin = 0
    for end in dict.fromkeys([*(np.flatnonzero(over) + 1).tolist(), len(obs)]):
        last_is_step = end > 0 and (terminated[end - 1] or (next_obs is not None and is_step[end - 1]))
        steps = slice(begin, end if last_is_step else end - 1)
        begin = end
        if steps.stop <= steps.start:
            continue
        last = obs[end - 1] if next_obs is None else next_obs[steps.stop - 1]
        ends = {"terminated": terminated[steps], "truncated": truncated_at_the_end(terminated[steps])}
        yield {
            "obs": np.concatenate([obs[steps], last[None]]),
            **{name: columns[name][steps] for name in columns},
            **ends,
        }
