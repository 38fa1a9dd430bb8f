"""Checks of stacks from environments: only the newest frame is stored, so the older ones must be recoverable."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import ENDS
from replaylab.errors import FieldError
from replaylab.replay.data.autoreset import Leading
from replaylab.replay.data.fields import Field
from replaylab.replay.transforms.frame_stack import FrameStack

Flags = npt.NDArray[np.bool_]


def check_first_stacks(
    stack: FrameStack,
    values: Mapping[str, Any],
    where: Any,
    fields: Mapping[str, Field],
    leading: Leading,
    next_steps: tuple[Flags, Flags],
    resets_left_out: bool,
) -> None:
    """Raise `FieldError` for stacks at the beginning of an episode whose older frames are not padding.

    What a batch shows before an episode's first step is padding; frames that were given there would be lost
    silently. Values that do not fit their fields are refused elsewhere.

    Args:
        stack: The transform.
        values: Flat field values as passed to `add`, with complete stacks.
        where: Which steps are stored, as passed to `add`.
        fields: The fields as passed to `add`, those of stacks with an axis of k.
        leading: R, T, E.
        next_steps: Bool (R, E): whether the next step begins an episode, and whether the next one given is left out.
        resets_left_out: Whether the step after an episode's end is left out.

    Raises:
        FieldError: The older frames of such a stack are not padding.
    """
    lengths = tuple(1 if n is None else n for n in leading)
    mask = np.ones(lengths, np.bool_) if where is None else _flags(where, lengths)
    ended = np.zeros(lengths, np.bool_)
    for name in ENDS:
        flag = _flags(values[name], lengths) if name in values else None
        ended = ended if flag is None else ended | flag
    if mask is None:
        return
    first = _first_steps(mask, ended, *next_steps, resets_left_out)
    if not first.any():
        return
    axes = tuple(n for n in leading if n is not None)
    for path in stack.leaves(fields):
        current, frames_given = path.removeprefix("next_"), np.asarray(values[path])
        after = current != path and current in fields  # older frames of `next_obs` are those of `obs`
        fits = frames_given.shape == (*axes, *fields[path].shape) and frames_given.dtype.kind in "biufc"
        if after or not fits:
            continue
        frames = frames_given.reshape(*lengths, *fields[path].shape)[first]
        older, newest = frames[:, :-1], frames[:, -1:]
        padding = np.broadcast_to(newest if stack.padding == "repeat" else np.zeros_like(newest), older.shape)
        if not np.array_equal(older, padding, equal_nan=frames.dtype.kind in "fc"):
            raise FieldError(
                f"the stack given for `{path}` begins an episode with other frames than its newest one and padding "
                f'("{stack.padding}"), which FrameStack(stacked_input=True) would lose; set `padding` to what the '
                "environment does, or give single frames (stacked_input=False)"
            )


def _first_steps(mask: Flags, ended: Flags, begins: Flags, left_out: Flags, resets_left_out: bool) -> Flags:
    """Return which steps (R, T, E) are stored as the first of an episode."""
    first = np.zeros_like(mask)
    for t in range(mask.shape[1]):
        stored = mask[:, t] & ~left_out
        first[:, t] = stored & begins
        begins = np.where(stored, ended[:, t], begins)
        if resets_left_out:
            left_out = np.where(mask[:, t], ended[:, t] & ~left_out, left_out)
    return first


def _flags(value: Any, lengths: tuple[int, ...]) -> Flags | None:
    """Return bools (R, T, E), None where the value does not fit."""
    array = np.asarray(value)
    fits = array.size == np.prod(lengths) and array.dtype.kind in "biuf"
    return array.astype(np.bool_).reshape(lengths) if fits else None
