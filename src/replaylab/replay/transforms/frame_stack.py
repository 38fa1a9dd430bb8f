"""Stacks of frames, of which only the newest frame is stored, so the older ones must be recoverable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import flag, one_of, option, text, tuple_of, whole
from replaylab.episode_ends import ENDS
from replaylab.errors import FieldError, ShapeError
from replaylab.replay.data.autoreset import Leading
from replaylab.replay.data.fields import Field
from replaylab.replay.transforms.transform import Fields, Transform

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FrameStack(Transform):
    """Stacks of the last k frames, put together from frames that are stored once.

    A named field is declared and stored as a single frame; in a batch it has shape ``[R] B k *shape``, oldest
    frame first. The stack of ``next_obs`` is that of ``obs``, one step later. Frames before the oldest stored
    frame of the episode are padding, so no stack reaches into another episode. Source: Mnih et al. 2015 (k = 4).

    Attributes:
        length: k ≥ 1.
        fields: The stacked fields, by name or, inside a nested field, by path (``"obs.camera"``); the partner
            ``next_...`` of each is stacked too.
        padding: "repeat" the oldest frame (as Gymnasium's `FrameStackObservation` does after a reset) or "zero".
        stacked_input: Whether `add`, `extend` and ``final_obs`` are given whole stacks ``[...] k *shape``, of which
            the newest frame is stored; else single frames. A batch holds the stacks that were given where they move on
            by a frame a step. One that begins an episode must hold its newest frame and `padding` only: frames from
            before would be lost, and are refused (but with a `storage`, where they are lost).
    """

    length: int = option(whole(most=2**31), 4)
    fields: tuple[str, ...] = option(tuple_of(text, "a tuple of field names", 1), ("obs",))
    padding: Literal["repeat", "zero"] = option(one_of("repeat", "zero"), "repeat")
    stacked_input: bool = option(flag, False)

    def leaves(self, fields: Fields) -> list[str]:
        """Return the paths of the stacked fields.

        Raises:
            FieldError: A name is not declared, or a partner is of another shape or dtype.
        """
        stacked = []
        for name in self.fields:
            matching = [path for path in fields if path == name or path.startswith(f"{name}.")]
            if not matching:
                raise FieldError(
                    f"FrameStack stacks the field `{name}`, which is not declared; declare it, or leave it out"
                )
            stacked += matching
        for path in list(stacked):
            partner = f"next_{path}"
            if partner not in fields:
                continue
            if fields[partner] != fields[path]:
                raise FieldError(
                    f"`{partner}` must be declared as `{path}` is, to be stacked with it, but they are "
                    f"{fields[partner]} and {fields[path]}"
                )
            stacked.append(partner)
        return list(dict.fromkeys(stacked))

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Set the options of the core."""
        paths = list(fields)
        config.frames, config.repeat = self.length, self.padding == "repeat"
        config.stacked = [paths.index(path) for path in self.leaves(fields)]

    def newest(self, path: str, value: Any, axis: int) -> npt.NDArray[Any]:
        """Return the newest frame of each stack; `axis` is the axis of the k frames."""
        stacks = np.asarray(value)
        if stacks.ndim <= axis or stacks.shape[axis] != self.length:
            raise ShapeError(
                f"field `{path}` must be given as stacks of {self.length} frames along axis {axis} "
                f"(FrameStack(stacked_input=True)), but got shape {stacks.shape}"
            )
        return np.asarray(np.take(stacks, -1, axis))


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

    Frames before an episode's first step are padding in a batch; frames passed there would be lost silently. Values
    that do not fit their fields are refused elsewhere.

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
