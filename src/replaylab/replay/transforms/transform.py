"""Transforms: what a drawn step becomes. Any of them go together, in any order, at most one of a kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import FRACTION, check, checked, flag, one_of, reals, text, tuple_of, whole
from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.replay.data.fields import Field

Fields = Mapping[str, Field]
OUTCOME = ("reward", "terminated", "truncated")


class Transform(ABC):
    """Base of the transforms; give some to `ReplayBuffer(transforms=...)`."""

    makes: ClassVar[tuple[str, ...]] = ()
    """Columns that it adds to a batch."""

    @abstractmethod
    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know, after checking that the fields allow it."""


@dataclass(frozen=True)
class NStep(Transform):
    """n-step returns, put together at draw time.

    From the drawn step on, up to K steps are taken together: fewer if the episode ends (terminated or truncated) or
    the newest stored step of that environment is reached. A batch then holds

    * ``reward`` = Σ_{k<n} γ^k·r_{t+k}, with n ≤ K the steps taken;
    * ``next_obs``, ``terminated`` and ``truncated`` of the last of them;
    * ``discount`` float32: γ^n, or 0 if that one terminated, so the target is ``reward + discount·Q(next_obs)``;
    * ``n_steps`` int64: n.

    All else is of the drawn step itself. Source: Watkins 1989; Hessel et al. 2018 (K = 3).

    Attributes:
        steps: K ≥ 1.
        gamma: Discount γ in [0, 1].
    """

    steps: int = 3
    gamma: float = 0.99

    makes: ClassVar[tuple[str, ...]] = ("discount", "n_steps")

    def __post_init__(self) -> None:
        check(self, steps=whole(most=2**31), gamma=FRACTION)

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know."""
        need_outcome(self, fields)
        if not any(path.split(".")[0] == "next_obs" for path in fields):
            raise FieldError("NStep needs the field `next_obs`, which becomes the last step's")
        config.n_step, config.gamma = self.steps, self.gamma


@dataclass(frozen=True)
class FrameStack(Transform):
    """Stacks of the last k frames, put together from frames that are stored once.

    A named field is declared and stored as a single frame; in a batch it has shape ``[R] B k *shape``, oldest
    frame first. The stack of ``next_obs`` is that of ``obs``, one step later. What lies before the oldest stored
    frame of the episode is padding, so no stack reaches into another episode. Source: Mnih et al. 2015 (k = 4).

    Attributes:
        length: k ≥ 1.
        fields: Which fields, by name or, inside a nested one, by path (``"obs.camera"``); each takes its partner
            ``next_...`` along.
        padding: "repeat" the oldest frame (as Gymnasium's `FrameStackObservation` does after a reset) or "zero".
        stacked_input: Whether `add`, `extend` and ``final_obs`` are given whole stacks ``[...] k *shape``, of which
            the newest frame is stored; else single frames. A batch holds the stacks that were given where they move on
            by a frame a step. One that begins an episode must hold its newest frame and `padding` only: frames from
            before would be lost, and are refused (but with a `storage`, where they are lost).
    """

    length: int = 4
    fields: tuple[str, ...] = ("obs",)
    padding: Literal["repeat", "zero"] = "repeat"
    stacked_input: bool = False

    def __post_init__(self) -> None:
        names = tuple_of(text, "a tuple of field names", 1)
        check(self, length=whole(most=2**31), fields=names, padding=one_of("repeat", "zero"), stacked_input=flag)

    def leaves(self, fields: Fields) -> list[str]:
        """Return the paths of the stacked fields.

        Raises:
            FieldError: A name is not declared, or a partner is of another shape or dtype.
        """
        found = []
        for name in self.fields:
            own = [path for path in fields if path == name or path.startswith(f"{name}.")]
            if not own:
                raise FieldError(
                    f"FrameStack stacks the field `{name}`, which is not declared; declare it, or leave it out"
                )
            found += own
        for path in list(found):
            partner = f"next_{path}"
            if partner not in fields:
                continue
            if fields[partner] != fields[path]:
                raise FieldError(
                    f"`{partner}` must be declared as `{path}` is, to be stacked with it, but they are "
                    f"{fields[partner]} and {fields[path]}"
                )
            found.append(partner)
        return list(dict.fromkeys(found))

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know."""
        paths = list(fields)
        config.frames, config.repeat = self.length, self.padding == "repeat"
        config.stacked = [paths.index(path) for path in self.leaves(fields)]

    def newest(self, path: str, value: Any, axis: int) -> npt.NDArray[Any]:
        """Return the newest frame of each of the given stacks, whose k frames lie along this axis."""
        stacks = np.asarray(value)
        if stacks.ndim <= axis or stacks.shape[axis] != self.length:
            raise ShapeError(
                f"field `{path}` must be given as stacks of {self.length} frames along axis {axis} "
                f"(FrameStack(stacked_input=True)), but got shape {stacks.shape}"
            )
        return np.asarray(np.take(stacks, -1, axis))


@dataclass(frozen=True)
class Sequence(Transform):
    """Stretches of an episode, for recurrent networks.

    An episode is cut into blocks of ``length − overlap`` steps. A drawn step stands for its block, whose sequence
    is the `burn_in` steps before it and the `length` steps from its beginning on; it never leaves the episode. Every
    column gets an axis of T = burn_in + length steps after B, and a batch also holds ``mask`` bool ``[R] B T``: where
    a step is stored. Elsewhere all values are zero. Column `burn_in` is the block's first step.

    A row's ``id`` is that of the block's oldest stored step and its ``probability`` the sampler's law summed over
    the block, so that blocks are drawn by what their steps are worth together. `update_priorities` with that id sets
    every step of the block; `priority` makes one of the steps' errors. Source: Kapturowski et al. 2019 (R2D2).

    Attributes:
        length: m ≥ 1, the steps that are learned from.
        overlap: o < m, the steps that neighbouring sequences share.
        burn_in: b ≥ 0, steps before them, to warm up the recurrent state.
        state: Fields (recurrent states) of which a batch holds only the value of the first stored step of each
            sequence, ``[R] B *shape``.
        eta: η of `priority`.
    """

    length: int = 80
    overlap: int = 40
    burn_in: int = 40
    state: tuple[str, ...] = ()
    eta: float = 0.9

    makes: ClassVar[tuple[str, ...]] = ("mask",)

    def __post_init__(self) -> None:
        steps = whole(0, 2**31)
        check(self, length=whole(most=2**31), overlap=steps, burn_in=steps)
        check(self, state=tuple_of(text, "a tuple of field names"), eta=FRACTION)
        if self.overlap >= self.length:
            raise ConfigError(
                f"`overlap` of Sequence must be smaller than `length`, but got (overlap={self.overlap}, "
                f"length={self.length})"
            )

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know."""
        paths = list(fields)
        config.length, config.stride, config.burn_in = self.length, self.length - self.overlap, self.burn_in
        for name in self.state:
            own = [path for path in fields if path == name or path.startswith(f"{name}.")]
            if not own or name.split(".")[0] in ("next_obs", *OUTCOME):
                raise FieldError(f"`state` of Sequence must name declared fields that hold a state, but got `{name}`")
            config.states = [*config.states, *(paths.index(path) for path in own)]

    def priority(self, td_error: npt.ArrayLike, mask: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return a priority for each sequence: η·max|δ| + (1 − η)·mean|δ| over its stored learned steps.

        Args:
            td_error: δ ``[R] B T``, or of the learned steps alone, ``[R] B length``.
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


def transform_config(transforms: ListOf[Transform], fields: Fields, derived: bool) -> _core.TransformConfig:
    """Return what the core needs to know of the transforms and of where next_obs comes from.

    Raises:
        ConfigError: Something else than a transform is given, or two of a kind.
        FieldError: A field that is needed is not declared so, or one that is made is declared already.
    """
    kinds = [type(one) for one in transforms]
    if not all(isinstance(one, Transform) for one in transforms) or len(set(kinds)) < len(kinds):
        raise ConfigError(f"`transforms` must hold transforms, at most one of a kind, but got {list(transforms)!r}")
    paths = list(fields)
    config = _core.TransformConfig()
    config.partners = [_partner(path, fields) for path in paths]
    config.derived = derived
    for one in transforms:
        for name in one.makes:
            if name in fields:
                raise FieldError(f"{type(one).__name__} makes the column `{name}` itself; give the field another name")
        one.configure(config, fields)
    for i in config.states:
        if i in config.desired:
            raise FieldError(
                f"`{paths[i]}` cannot be a `state` of Sequence, of which a row has one, and a goal of Hindsight, of "
                "which every step has one; leave it out of `state`, naming what is inside a nested field one by one"
            )
    outcome = [i for i, path in enumerate(paths) if path in OUTCOME]
    for i in config.stacked:
        if i in (*outcome, *config.states, *config.desired, config.achieved):
            raise FieldError(
                f"FrameStack cannot stack `{paths[i]}`, which is an outcome, a goal or a recurrent state; name the "
                'fields or paths that hold frames, as in FrameStack(fields=("obs.camera",))'
            )
    if derived:
        _check_derived(fields, config)
    return config


def need_outcome(transform: Transform, fields: Fields, names: ListOf[str] = OUTCOME) -> None:
    """Raise `FieldError` unless these of reward, terminated and truncated are declared in the usual way."""
    for name in names:
        field = Field() if name == "reward" else Field((), np.bool_)
        if fields.get(name) != field:
            raise FieldError(
                f"{type(transform).__name__} needs the field `{name}` declared as Field((), {field.dtype})"
            )


def check_ends(fields: Fields, asks: str) -> None:
    """Raise `FieldError` unless what is declared as terminated or truncated says of each step whether it ended."""
    for path, field in fields.items():
        name = path.split(".")[0]
        if name in OUTCOME[1:] and (path != name or field.nbytes != field.dtype.itemsize or field.dtype.kind == "c"):
            raise FieldError(
                f"`{name}` must be one number a step, which ends its episode where it is not 0, for {asks} goes by "
                f"episodes, but `{path}` is {field}; declare `{name}` as Field((), bool), and this under another name"
            )


def _partner(path: str, fields: Fields) -> int:
    """Return the number of the field x for next_x, −1 where there is none alike."""
    own = path.removeprefix("next_")
    return list(fields).index(own) if own != path and fields.get(own) == fields[path] else -1


def _check_derived(fields: Fields, config: _core.TransformConfig) -> None:
    paths = list(fields)
    after = [path for path in paths if path.split(".")[0] == "next_obs"]
    before = [path for path in paths if path.split(".")[0] == "obs"]
    if (
        not after
        or [f"next_{path}" for path in before] != after
        or any(config.partners[paths.index(p)] < 0 for p in after)
    ):
        raise FieldError(
            'next_obs="derived" needs the fields `obs` and `next_obs`, declared alike, but got '
            f"{ {path: fields[path] for path in before + after} }"
        )
