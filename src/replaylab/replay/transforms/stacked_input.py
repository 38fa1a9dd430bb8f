"""Stacks that environments give: only their newest frame is stored, so the others must be what a batch shows there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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
    """Refuse stacks that begin an episode with other frames than padding.

    What a batch shows before an episode's first step is padding; frames that were given there would be lost
    silently. Values that do not fit their fields are refused elsewhere.

    Args:
        stack: The transform.
        values: Flat field values as given, stacks whole.
        where: Which steps are stored, as given.
        fields: The fields as given, those of stacks with an axis of k.
        leading: R, T, E.
        next_steps: Bool (R, E): whether the next step begins an episode, and whether the next one given is left out.
        resets_left_out: Whether the step after an episode's end is left out.

    Raises:
        FieldError: A stack begins so.
    """
    lengths = tuple(1 if n is None else n for n in leading)
    taken = np.ones(lengths, np.bool_) if where is None else _flags(where, lengths)
    ended = np.zeros(lengths, np.bool_)
    for name in ("terminated", "truncated"):
        flag = _flags(values[name], lengths) if name in values else None
        ended = ended if flag is None else ended | flag
    if taken is None:
        return
    first = _first_steps(taken, ended, *next_steps, resets_left_out)
    if not first.any():
        return
    for path in stack.leaves(fields):
        own, shown = path.removeprefix("next_"), np.asarray(values[path])
        after = own != path and own in fields  # its older frames are those of the step itself
        fits = shown.shape == (*_given(leading), *fields[path].shape) and shown.dtype.kind in "biufc"
        if after or not fits:
            continue
        frames = shown.reshape(*lengths, *fields[path].shape)[first]
        padding = frames[:, -1:] if stack.padding == "repeat" else np.zeros_like(frames[:, -1:])
        if not np.array_equal(
            frames[:, :-1], np.broadcast_to(padding, frames[:, :-1].shape), equal_nan=_floats(frames)
        ):
            raise FieldError(
                f"the stack given for `{path}` begins an episode with other frames than its newest one and padding "
                f'("{stack.padding}"), which FrameStack(stacked_input=True) would lose; set `padding` to what the '
                "environment does, or give single frames (stacked_input=False)"
            )


def _first_steps(taken: Flags, ended: Flags, begins: Flags, left_out: Flags, resets_left_out: bool) -> Flags:
    """Return which steps (R, T, E) are stored as the first of an episode."""
    first = np.zeros_like(taken)
    for t in range(taken.shape[1]):
        stored = taken[:, t] & ~left_out
        first[:, t] = stored & begins
        begins = np.where(stored, ended[:, t], begins)
        if resets_left_out:
            left_out = np.where(taken[:, t], ended[:, t] & ~left_out, left_out)
    return first


def _flags(value: Any, lengths: tuple[int, ...]) -> Flags | None:
    """Return bools (R, T, E), None where the value does not fit."""
    array = np.asarray(value)
    fits = array.size == np.prod(lengths) and array.dtype.kind in "biuf"
    return array.astype(np.bool_).reshape(lengths) if fits else None


def _given(leading: Leading) -> tuple[int, ...]:
    return tuple(n for n in leading if n is not None)


def _floats(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind in "fc"
