"""Stacks of frames."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import flag, one_of, option, text, tuple_of, whole
from replaylab.errors import FieldError, ShapeError
from replaylab.replay.transforms.transform import Fields, Transform


@dataclass(frozen=True)
class FrameStack(Transform):
    """Stacks of the last k frames, put together from frames that are stored once.

    A named field is declared and stored as a single frame; in a batch it has shape ``[R] B k *shape``, oldest
    frame first. The stack of ``next_obs`` is that of ``obs``, one step later. What lies before the oldest stored
    frame of the episode is padding, so no stack reaches into another episode. Source: Mnih et al. 2015 (k = 4).

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
