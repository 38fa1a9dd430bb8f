"""The base of transforms, which change drawn steps. They can be combined in any order, at most one of a kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import ClassVar

import numpy as np

from replaylab import _core
from replaylab.arguments import check
from replaylab.replay.data.fields import Field, need_field

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
