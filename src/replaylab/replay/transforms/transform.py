"""The base of transforms, which change drawn steps. They can be combined in any order, at most one of a kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import ClassVar

import numpy as np

from replaylab import _core
from replaylab.errors import FieldError
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


def need_outcome(transform: Transform, fields: Fields, names: ListOf[str] = OUTCOME) -> None:
    """Raise `FieldError` unless these of reward, terminated and truncated are declared in the usual way."""
    for name in names:
        field = Field() if name == "reward" else Field((), np.bool_)
        if fields.get(name) != field:
            raise FieldError(
                f"{type(transform).__name__} needs the field `{name}` declared as Field((), {field.dtype})"
            )
