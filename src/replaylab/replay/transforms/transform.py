"""The base of transforms, which change drawn steps, and their options in the form of the compiled core.

Transforms can be combined in any order, at most one of a kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import ClassVar

import numpy as np

from replaylab import _core
from replaylab.arguments import check
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.data.fields import Field, need_field, next_paths

Fields = Mapping[str, Field]

OUTCOME = ("reward", "terminated", "truncated")


class Transform(ABC):
    """Base of the transforms; give some to `ReplayBuffer(transforms=...)`."""

    makes: ClassVar[tuple[str, ...]] = ()
    """Columns that it adds to a batch."""

    def __post_init__(self) -> None:
        check(self)

    @abstractmethod
    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Check the fields, and set the options of the core."""


def inside(path: str, name: str) -> bool:
    """Return whether a path is this field, or belongs to it."""
    return path == name or path.startswith(f"{name}.")


def need_outcome(transform: Transform, fields: Fields, names: ListOf[str] = OUTCOME) -> None:
    """Raise `FieldError` unless these of reward, terminated and truncated are declared in the usual way."""
    for name in names:
        field = Field() if name == "reward" else Field((), np.bool_)
        need_field(type(transform).__name__, fields, name, field)


def transform_config(transforms: ListOf[Transform], fields: Fields, derived: bool) -> _core.TransformConfig:
    """Return the options of the transforms, and of where next_obs is stored, in the form of the core.

    Raises:
        ConfigError: Something other than a transform is given, or two of one kind.
        FieldError: A required field is missing or of another shape, or a column that a transform makes is declared.
    """
    kinds = [type(transform) for transform in transforms]
    if not all(isinstance(transform, Transform) for transform in transforms) or len(set(kinds)) < len(kinds):
        raise ConfigError(f"`transforms` must hold transforms, at most one of a kind, but got {list(transforms)!r}")
    paths = list(fields)
    config = _core.TransformConfig()
    config.partners = [_partner(path, fields) for path in paths]
    config.derived = derived
    for transform in transforms:
        for name in transform.makes:
            if name in fields:
                raise FieldError(
                    f"{type(transform).__name__} makes the column `{name}` itself; give the field another name"
                )
        transform.configure(config, fields)
    for i in config.states:
        if i in config.desired:
            raise FieldError(
                f"`{paths[i]}` cannot be a `state` of Sequence, of which a row has one, and a goal of Hindsight, of "
                "which every step has one; leave it out of `state`, naming what is inside a nested field one by one"
            )
        if i in config.last:
            raise FieldError(
                f"`{paths[i]}` cannot be a `state` of Sequence, of which a row has one, and come from the last step of "
                "NStep, of which every step has one; leave it out of `state`, or rename the field"
            )
    outcome = [i for i, path in enumerate(paths) if path in OUTCOME]
    for i in config.stacked:
        if i in (*outcome, *config.states, *config.desired, *config.achieved):
            raise FieldError(
                f"FrameStack cannot stack `{paths[i]}`, which is an outcome, a goal or a recurrent state; name the "
                'fields or paths that hold frames, as in FrameStack(fields=("obs.camera",))'
            )
    if derived:
        next_paths('next_obs="derived"', fields)
    return config


def check_ends(fields: Fields, asks: str, ends: ListOf[str], manual: bool) -> None:
    """Raise `FieldError` unless declared fields terminated and truncated are one number a step.

    Args:
        fields: The fields by path.
        asks: Name of the feature that needs episodes, for the message.
        ends: The fields that end its episodes, of which at least one must be declared; empty: none must.
        manual: Whether `end_episode` ends episodes, too, which are then truncated.
    """
    declared = {path.split(".")[0] for path in fields}
    if ends and declared.isdisjoint(ends) and not (manual and "truncated" in ends):
        missing, remedy = "no `terminated`; declare it", "count truncated episodes, too: EpisodeEnds(truncated=True)"
        if "truncated" in ends:
            missing = "neither `terminated` nor `truncated`; declare them"
            remedy = 'pass episodes="manual" to the buffer and call end_episode() where one ends'
        raise FieldError(
            f"{asks} must know where episodes end, but the buffer has {missing} as Field((), bool), or {remedy}"
        )
    for path, field in fields.items():
        name = path.split(".")[0]
        if name in OUTCOME[1:] and (path != name or field.nbytes != field.dtype.itemsize or field.dtype.kind == "c"):
            raise FieldError(
                f"`{name}` must be one number a step, which ends its episode where it is not 0, since {asks} needs "
                f"episodes, but `{path}` is {field}; declare `{name}` as Field((), bool), and this under another name"
            )


def _partner(path: str, fields: Fields) -> int:
    """Return the number of the field x for next_x; −1 if no such field is declared in the same way."""
    current = path.removeprefix("next_")
    return list(fields).index(current) if current != path and fields.get(current) == fields[path] else -1
