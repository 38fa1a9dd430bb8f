"""Sequences of steps, for recurrent networks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import FRACTION, checked, option, reals, text, tuple_of, whole
from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.replay.transforms.transform import OUTCOME, Fields, Transform


@dataclass(frozen=True)
class Sequence(Transform):
    """Stretches of an episode, for recurrent networks.

    An episode is cut into blocks of ``length − overlap`` steps. A drawn step represents its block, whose sequence
    is the `burn_in` steps before it and the `length` steps from its beginning on; it never leaves the episode. Every
    column gets an axis of T = burn_in + length steps after B, and a batch also holds ``mask`` bool ``[R] B T``: where
    a step is stored. Elsewhere all values are zero. Column `burn_in` is the block's first step.

    A row's ``id`` is that of the block's oldest stored step and its ``probability`` the sampler's distribution summed
    over the block, so that blocks are drawn by what their steps are worth together. `update_priorities` with that id
    sets every step of the block; `priority` makes one of the steps' errors. Source: Kapturowski et al. 2019 (R2D2).

    Attributes:
        length: m ≥ 1, the steps that are learned from.
        overlap: o < m, the steps that neighbouring sequences share.
        burn_in: b ≥ 0, steps before them, to warm up the recurrent state.
        state: Fields (recurrent states) of which a batch holds only the value of the first stored step of each
            sequence, ``[R] B *shape``.
        eta: η of `priority`.
    """

    length: int = option(whole(most=2**31), 80)
    overlap: int = option(whole(0, 2**31), 40)
    burn_in: int = option(whole(0, 2**31), 40)
    state: tuple[str, ...] = option(tuple_of(text, "a tuple of field names"), ())
    eta: float = option(FRACTION, 0.9)

    makes: ClassVar[tuple[str, ...]] = ("mask",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap >= self.length:
            raise ConfigError(
                f"`overlap` of Sequence must be smaller than `length`, but got (overlap={self.overlap}, "
                f"length={self.length})"
            )

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Set the options of the core."""
        paths = list(fields)
        config.length, config.stride, config.burn_in = self.length, self.length - self.overlap, self.burn_in
        for name in self.state:
            paths_of_state = [path for path in fields if path == name or path.startswith(f"{name}.")]
            if not paths_of_state or name.split(".")[0] in ("next_obs", *OUTCOME):
                raise FieldError(f"`state` of Sequence must name declared fields that hold a state, but got `{name}`")
            config.states = [*config.states, *(paths.index(path) for path in paths_of_state)]

    def priority(self, td_error: npt.ArrayLike, mask: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return a priority for each sequence: η·max|δ| + (1 − η)·mean|δ| over its stored learned steps.

        Args:
            td_error: δ ``[R] B T``, or only of the learned steps, ``[R] B length``.
            mask: bool ``[R] B T``, the batch's.

        Returns:
            float64 ``[R] B``, for ``update_priorities(batch.id, priority=...)``.
        """
        errors, valid = np.abs(checked("td_error", td_error, reals())), np.asarray(mask, np.bool_)
        if valid.shape[-1:] == (self.burn_in + self.length,):
            valid = valid[..., self.burn_in :]
        if errors.shape[-1:] == (self.burn_in + self.length,):
            errors = errors[..., self.burn_in :]
        if errors.shape != valid.shape or errors.shape[-1:] != (self.length,):
            raise ShapeError(
                f"`td_error` must be of shape [R] B {self.burn_in + self.length} (or {self.length}: the learned steps) "
                f"as `mask` is, but got {np.shape(td_error)} and {np.shape(mask)}"
            )
        errors = np.where(valid, errors, 0.0)
        mean = errors.sum(-1) / np.maximum(valid.sum(-1), 1)
        return np.asarray(self.eta * errors.max(-1) + (1.0 - self.eta) * mean, np.float64)
